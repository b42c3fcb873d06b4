"""How a stored record is damaged, for the tests of what nobody can read."""

from __future__ import annotations

from holdfast.store import Ref, Store
from holdfast.stores.redis.rows import name_of, pack
from holdfast.stores.redis.store import RedisStore

RULES = b'{"retry": {"kind": "list", "delays_s": [1e999]}, "max_attempts": "many"}'


async def spoil(store: Store, ref: Ref) -> None:
    """Damages the rules of a job."""
    assert isinstance(store, RedisStore)
    shards = store._mine()
    tag = shards.tag(shards.of(ref.tenant))
    name = name_of(ref.tenant, ref.id)
    seq = await store.links.command("HGET", f"{tag}:names", name, key=tag)
    body = pack(("json", 1, RULES, b"{}"))
    await store.links.command("HSET", f"{tag}:bodies", seq, body, key=tag)
