"""Stores of several shards on one server, their calls counted, cut off or interrupted."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast.core.scope import ScopeSettings
from holdfast.core.scope import encode as encode_settings
from holdfast.core.tiers import Defaults, encode, name_of
from holdfast.store import Claim, Put
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.builders import LEASE, tenant_of
from holdfast.testing.contract.platform import shares

SHARDS = 4
STEPS_MAX = 60
"""More calls than any change of a tier makes."""


PRO, FREE = "pro", "free"

Act = Callable[[RedisStore], Awaitable[None]]
"""What a process does with its store."""


class Killed(Exception):
    """The process of a store is gone."""


def calls_of(store: RedisStore, instead: Callable[..., Awaitable[Any]]) -> Any:
    """Puts this in place of the calls of a store to its server. Returns what made them before."""
    real = store.links.script
    store.links.script = instead  # type: ignore[method-assign, assignment]
    return real


class Steps:
    """Counts the calls of a store to its server. Before call number `at` something happens."""

    def __init__(self, store: RedisStore, at: int, happens: Callable[[], Awaitable[None]]) -> None:
        self.number = 0
        self._at = at
        self._happens = happens
        self._real = calls_of(store, self._script)

    async def _script(self, *args: Any, **options: Any) -> Any:
        number, self.number = self.number, self.number + 1
        if number == self._at:
            await self._happens()
        return await self._real(*args, **options)


class Kill(Steps):
    """Call number `at` and all later ones never reach the server."""

    def __init__(self, store: RedisStore, at: int) -> None:
        self.done = False

        async def die() -> None:
            self.done = True

        super().__init__(store, at, die)

    async def _script(self, *args: Any, **options: Any) -> Any:
        if self.done or self.number == self._at:
            self.done = True
            raise Killed
        return await super()._script(*args, **options)


async def quiet() -> None: ...


@asynccontextmanager
async def opened(url: str, clock: Any = None) -> AsyncIterator[RedisStore]:
    store = RedisStore.from_url(url, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def sharded(url: str) -> str:
    return f"{url}&shards={SHARDS}"


def one_of_each(store: RedisStore, prefix: str = "t") -> list[str]:
    """A tenant of each shard."""
    shards, found = store._mine(), dict[int, str]()
    for n in itertools.count():
        found.setdefault(shards.of(f"{prefix}{n}"), f"{prefix}{n}")
        if len(found) == shards.number:
            return [found[shard] for shard in shards.all()]
    raise AssertionError


async def version_of(store: RedisStore, name: str) -> int:
    """0 if there is no such setting."""
    found = [each for each in await store.settings(under=name) if each.name == name]
    return found[0].version if found else 0


async def set_tier(store: RedisStore, tier: str, **fields: Any) -> None:
    name = name_of(tier)
    await store.settings([Put(name, encode(Defaults(**fields)), await version_of(store, name))])


async def delete_tier(store: RedisStore, tier: str) -> None:
    name = name_of(tier)
    await store.settings([Put(name, None, await version_of(store, name))])


async def assign(store: RedisStore, tenant: str, tier: str | None) -> None:
    name = tenant_of(tenant).name
    value = None if tier is None else encode_settings(ScopeSettings(tier=tier))
    await store.settings([Put(name, value, await version_of(store, name))])


async def in_pro(store: RedisStore) -> list[str]:
    """A tenant of each shard, in a tier that lets each run one job."""
    await set_tier(store, PRO, max_running=1)
    tenants = one_of_each(store)
    for tenant in tenants:
        await assign(store, tenant, PRO)
    return tenants


async def tier_of(store: RedisStore, tenant: str) -> str | None:
    found = await store.settings(under=tenant_of(tenant).name)
    return json.loads(found[0].value).get("tier") if found else None


async def listed(store: RedisStore) -> dict[str, dict[str, Any]]:
    """What each tier sets, as the listing says."""
    found = await store.settings(under=name_of(""))
    return {each.name: json.loads(each.value) for each in found}


async def applied(store: RedisStore, shard: int) -> dict[str, dict[str, Any]]:
    """What each tier sets, as a shard applies it."""
    tag = store._mine().tag(shard)
    flat = await store.links.command("HGETALL", f"{tag}:tiers", key=tag)
    pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    texts = {name.decode(): text.split(b" ", 3)[3] for name, text in pairs}
    return {name_of(tier): json.loads(text) for tier, text in texts.items() if text}


async def closing(store: RedisStore, shard: int) -> list[bytes]:
    """The tiers that a shard puts no tenant into although they exist."""
    return await _members(store, shard, "closing")


async def pending(store: RedisStore) -> list[bytes]:
    """What home lists as not known to all shards."""
    return await _members(store, 0, "copying")


async def _members(store: RedisStore, shard: int, name: str) -> list[bytes]:
    tag = store._mine().tag(shard)
    return [*await store.links.command("SMEMBERS", f"{tag}:{name}", key=tag)]


async def assert_settled(store: RedisStore) -> None:
    """Every shard applies what is listed, none has a tier closed, and nothing is pending."""
    expected = await listed(store)
    assert [await applied(store, shard) for shard in range(store.shards)] == (
        [expected] * store.shards
    )
    assert [await closing(store, shard) for shard in range(store.shards)] == [[]] * store.shards
    assert await pending(store) == []


# -- what processes do -----------------------------------------------------------------------------


async def prune(store: RedisStore) -> None:
    await store.prune(10, 0)


async def reconcile(store: RedisStore) -> None:
    await store.count(None, recount=True)


async def change_another(store: RedisStore) -> None:
    await set_tier(store, "other", weight=2)


async def reopen(store: RedisStore) -> None:
    other = RedisStore(store.options)
    await other.open()
    await other.close()


def putting(most: int) -> Act:
    async def put(store: RedisStore) -> None:
        await set_tier(store, PRO, max_running=most)

    return put


def assigning(shard: int) -> Act:
    async def put(store: RedisStore) -> None:
        await assign(store, one_of_each(store)[shard], PRO)

    return put


async def deleting(store: RedisStore) -> None:
    await delete_tier(store, PRO)


_nonces = itertools.count()


async def claimed(store: RedisStore, limit: int = 100) -> dict[str, int]:
    """How many jobs of each tenant a claim gives."""
    nonce = f"n{next(_nonces)}"
    leases = await store.claim(Claim(worker="w", nonce=nonce, limit=limit, lease_us=LEASE))
    return dict(shares(leases))
