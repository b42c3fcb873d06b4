"""Every script is written for one format of the keys, and touches no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.servers.cluster import Cluster
from tests.servers.redis_node import RedisNode

from holdfast.core.errors import SchemaTooNew, SchemaTooOld, StoreUnsupported
from holdfast.core.job import Completed
from holdfast.store import Claim, Ref
from holdfast.stores.redis.layout import FORMAT
from holdfast.stores.redis.scripts import VERBS
from holdfast.stores.redis.store import RedisStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, LEASE, MAIL, finding, ids, job

Open = Callable[..., Awaitable[RedisStore]]


def key(store: RedisStore, name: str) -> str:
    return f"{{{store.options.prefix}0}}:{name}"


def keys(node: RedisNode, store: RedisStore) -> dict[bytes, bytes]:
    """Every key of a store and what it holds."""
    found = node.ask("KEYS", f"{{{store.options.prefix}*")
    return {key: node.ask("DUMP", key) for key in found}


def age(node: RedisNode, store: RedisStore, format: int = 3) -> None:
    """Makes the store one of an earlier format."""
    node.ask("HSET", key(store, "heads"), "format", format)
    node.ask("HSET", key(store, "meta"), "format", format)


@pytest.mark.parametrize("name", sorted(set(VERBS) - {"migrate"}))
async def test_each_script_refuses_another_format(node: RedisNode, opened: Open, name: str) -> None:
    """P1: a program beside a newer or an older store stops, and says what to do."""
    store = await opened(node.fresh())
    await store.enqueue([job("a")])

    node.ask("HSET", key(store, "heads"), "format", FORMAT + 1)
    before = keys(node, store)
    with pytest.raises(SchemaTooNew) as newer:
        await store._mine().call(name, 0, (), None)
    assert keys(node, store) == before
    node.ask("HDEL", key(store, "heads"), "format")
    with pytest.raises(SchemaTooOld) as older:
        await store._mine().call(name, 0, (), None)

    assert newer.value.facts["found"] == FORMAT + 1
    assert (older.value.facts["found"], older.value.facts["known"]) == (2, FORMAT)
    assert "holdfast migrate" in str(older.value)


async def test_a_store_that_was_migrated_meanwhile_is_told_by_every_verb(
    node: RedisNode, opened: Open
) -> None:
    """P1: no empty claims, no duplicates: an error."""
    store = await opened(node.fresh())
    await store.enqueue([job("a")])
    node.ask("HSET", key(store, "heads"), "format", FORMAT + 1)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.enqueue([job("b")]),
        lambda: store.claim(Claim(worker="w", nonce="n", limit=1, lease_us=LEASE)),
        lambda: store.cancel([Ref(ACME, "a")]),
        lambda: store.find(finding()),
        lambda: store.count(None),
        lambda: store.explain(Ref(ACME, "a")),
        lambda: store.hold(under=""),
    ]

    for call in calls:
        with pytest.raises(SchemaTooNew):
            await call()


async def test_an_older_store_is_migrated_only_when_asked(node: RedisNode, opened: Open) -> None:
    """P1: whoever opens it is refused, until somebody migrates it or says migrate=auto."""
    url, clock = node.fresh(), ManualClock()
    bench = Bench(lambda: RedisStore.from_url(url, clock), clock)
    await bench.open()
    store = bench.store
    assert isinstance(store, RedisStore)
    await bench.put("a", "b", "c", queue=MAIL)
    await bench.put("d", "e", queue=AUDIO)
    await bench.put("f", "g", tenant=GLOBEX)
    await bench.end(await bench.one(), Completed())
    read = (await store.events(None, 0, 100)).events
    age(node, store)

    with pytest.raises(SchemaTooOld):
        await bench.claim(1)
    with pytest.raises(SchemaTooOld) as caught:
        await RedisStore.from_url(url).open()
    assert await RedisStore.from_url(url).migrate() == FORMAT
    assert await RedisStore.from_url(url).migrate() == FORMAT
    await opened(url)

    assert caught.value.facts == {"store": store.options.name, "found": 3, "known": FORMAT}
    leases = [await bench.one() for _ in range(6)]
    assert [one.job.tenant for one in leases].count(GLOBEX) == 2
    assert sorted(ids(leases)) == ["b", "c", "d", "e", "f", "g"]
    page = await store.events(None, read[2].cursor, 100)
    assert page.lost
    assert {event.kind.value for event in page.events} == {"leased"}
    await bench.close()


@pytest.mark.parametrize("format", [2, 3])
async def test_jobs_of_a_format_that_cannot_be_read_are_not_touched(
    node: RedisNode, opened: Open, format: int
) -> None:
    """P1: a store with packs, or older than them, is left as it is; the error says what to do."""
    url = node.fresh()
    store = await opened(url)
    await store.enqueue([job("a")])
    age(node, store, format)
    node.ask("HSET", key(store, "loads"), "0000000000000001", "payloads of a pack")
    before = keys(node, store)

    with pytest.raises(StoreUnsupported, match="finish its jobs first"):
        await RedisStore.from_url(url).migrate()

    assert keys(node, store) == before


async def test_migrate_auto_brings_an_older_store_up(node: RedisNode, opened: Open) -> None:
    """P1: the process that is told to migrate does so when it opens."""
    url = node.fresh()
    store = await opened(url)
    await store.enqueue([job("a"), job("b", tenant=GLOBEX)])
    age(node, store)

    later = await opened(f"{url}&migrate=auto")

    claim = Claim(worker="w", nonce="n", limit=5, lease_us=LEASE)
    assert sorted(ids(await later.claim(claim))) == ["a", "b"]
    assert node.ask("HGET", key(store, "meta"), "format") == b"%d" % FORMAT


async def test_an_empty_server_needs_no_migration(node: RedisNode, opened: Open) -> None:
    """P1: the first to open it lays it out; a server that lost all it had is laid out again."""
    store = await opened(node.fresh())
    await store.enqueue([job("a")])
    assert node.ask("HGET", key(store, "heads"), "format") == b"%d" % FORMAT

    node.ask("DEL", *keys(node, store))
    assert await store.claim(Claim(worker="w", nonce="n", limit=5, lease_us=LEASE)) == []
    await store.enqueue([job("a")])

    assert node.ask("HGET", key(store, "heads"), "format") == b"%d" % FORMAT


async def test_all_shards_of_a_cluster_have_the_format(cluster: Cluster, opened: Open) -> None:
    """P1: each is checked by itself, for a script sees only one."""
    store = await opened(cluster.fresh())
    await store.enqueue([job("a", tenant=f"t{n}") for n in range(60)])
    shards = store._mine()
    for shard in shards.all():
        name = f"{shards.tag(shard)}:heads"
        found = await store.links.command("HGET", name, "format", key=name)
        assert found == b"%d" % FORMAT
