"""Shards are one store to those who ask for all; slots that move are followed."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest
from redis.crc import key_slot
from tests.servers.cluster import Cluster, ClusterNode
from tests.servers.kinds import Missing, install_of

from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput, StoreUnavailable
from holdfast.core.job import Completed, EventKind, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import ScopeSettings, encode
from holdfast.store import Act, Claim, Put, Watch
from holdfast.stores.redis.claim_shards import ShardedClaim, share
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.builders import ACME, GLOBEX, changing, finding, job, tenant_of

Open = Callable[..., Awaitable[RedisStore]]


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A cluster that may be hurt."""
    try:
        cluster = Cluster(install_of("cluster"))
    except Missing as missing:
        missing.end_test()
    with cluster:
        yield cluster


_nonces = itertools.count()


def claim(limit: int, tenants: tuple[str, ...] | None = (ACME,)) -> Claim:
    nonce = f"n{next(_nonces)}"
    return Claim(worker="w", nonce=nonce, limit=limit, lease_us=60 * SECOND, tenants=tenants)


async def test_events_of_many_shards_come_once_each(cluster: Cluster, opened: Open) -> None:
    """P14: a reader of all tenants misses no fact, whatever shard it is in."""
    store = await opened(cluster.fresh())
    place = 0
    seen: list[tuple[str, str]] = []
    for n in range(12):
        await store.enqueue([job(f"j{n}-{k}", tenant=f"t{k}") for k in range(40)])
        page = await store.events(None, place, 37)
        seen += [(event.tenant, event.job_id) for event in page.events]
        place = page.cursor
    while (page := await store.events(None, place, 37)).events:
        seen += [(event.tenant, event.job_id) for event in page.events]
        place = page.cursor

    assert len(seen) == len(set(seen)) == 12 * 40


async def test_a_reader_beside_writers_misses_nothing(cluster: Cluster, opened: Open) -> None:
    """P14: nothing is stored behind a cursor that a reader of all tenants has passed."""
    store = await opened(cluster.fresh())
    seen: list[tuple[str, str]] = []
    done = asyncio.Event()

    async def write(tenant: str) -> None:
        for n in range(40):
            await store.enqueue([job(f"j{n}", tenant=tenant)])

    async def read() -> None:
        place = 0
        while True:
            last = done.is_set()
            page = await store.events(None, place, 50)
            seen.extend((event.tenant, event.job_id) for event in page.events)
            place = page.cursor
            if last and not page.events:
                return

    reader = asyncio.create_task(read())
    await asyncio.gather(*(write(f"t{n}") for n in range(8)))
    done.set()
    await reader

    assert len(seen) == len(set(seen)) == 8 * 40


async def test_pages_keep_the_order_of_a_batch(cluster: Cluster, opened: Open) -> None:
    """P9: jobs of many tenants enqueued together are listed in their order."""
    store = await opened(cluster.fresh())
    names = [f"t{n:03}" for n in range(100)]
    await store.enqueue([job("x", tenant=name) for name in names])

    page = await store.find(finding(None, newest_first=False, limit=100))

    assert [each.tenant for each in page.jobs] == names


async def test_a_change_of_all_tenants_goes_through_all_shards(
    cluster: Cluster, opened: Open
) -> None:
    """P15: in bounded steps, each job once."""
    store = await opened(cluster.fresh())
    await store.enqueue([job("x", tenant=f"t{n}") for n in range(50)])
    done: list[str] = []
    after: int | None = 0
    while after is not None:
        wish = changing(Act.REPRIORITISE, None, priority=4, limit=7, after=after)
        changed = await store.change(wish)
        assert len(changed.done) <= 7
        done += [ref.tenant for ref in changed.done]
        after = changed.cursor

    assert sorted(done) == sorted(f"t{n}" for n in range(50))


async def test_settings_of_two_shards_are_not_put_in_one_step(
    cluster: Cluster, opened: Open
) -> None:
    """P15: all or nothing cannot be promised over shards, so it is refused."""
    store = await opened(cluster.fresh())
    value = encode(ScopeSettings(weight=2))
    puts = [Put(tenant_of(f"t{n}").name, value, 0) for n in range(8)]

    with pytest.raises(InvalidInput):
        await store.settings(puts)

    assert await store.settings(under="") == []


async def test_a_hint_crosses_nodes(cluster: Cluster, opened: Open) -> None:
    """P10: a sleeper of one store is woken by an enqueue of another, on any node."""
    url = cluster.fresh()
    sleeper, other = await opened(url), await opened(url)
    async with asyncio.timeout(15):
        task = asyncio.create_task(sleeper.wait(Watch(tenants=(GLOBEX,)), 50.0))
        assert sleeper._subscriptions is not None
        assert await sleeper._subscriptions.here().listen(10.0)
        await other.enqueue([job("a", tenant=GLOBEX)])
        await task

    assert len(await other.claim(claim(1, (GLOBEX,)))) == 1


# -- claims over all shards ------------------------------------------------------------------------


def housed(store: RedisStore, shard: int, number: int) -> list[str]:
    """So many tenants that live in a shard."""
    shards = store._mine()
    names = (f"t{n}" for n in itertools.count())
    return list(itertools.islice((name for name in names if shards.of(name) == shard), number))


@pytest.mark.parametrize("size", [1, 4, 25])
async def test_a_shard_has_no_more_turns_than_its_tenants(
    cluster: Cluster, opened: Open, size: int
) -> None:
    """P19: one tenant alone in its shard has as much as each of many that share another."""
    store = await opened(cluster.fresh())
    alone, crowd = housed(store, 3, 1), housed(store, 7, 12)
    for tenant in (*alone, *crowd):
        await store.enqueue([job(f"j{n}", tenant=tenant) for n in range(60)])

    got: Counter[str] = Counter()
    while got.total() < 13 * 10:
        got.update(lease.job.tenant for lease in await store.claim(claim(size, None)))

    assert set(got) == {*alone, *crowd}
    assert max(got.values()) - min(got.values()) <= 1 + size // 8
    assert abs(got[alone[0]] - 10) <= 1 + size // 8


async def test_claims_of_one_nonce_lease_no_more_than_one_claim(
    cluster: Cluster, opened: Open
) -> None:
    """P15: also when they are made at the same time, by processes that see different shards."""
    url = cluster.fresh()
    stores = [await opened(url) for _ in range(3)]
    await stores[0].enqueue([job(f"j{n}", tenant=f"t{k}") for k in range(40) for n in range(5)])
    for attempt in range(8):
        one = claim(20, None)
        answers = await asyncio.gather(*(store.claim(one) for store in stores))
        again = await stores[attempt % 3].claim(one)

        found = {(each.job.tenant, each.job.id) for leases in answers for each in leases}
        assert {(each.job.tenant, each.job.id) for each in again} >= found
        assert len(again) <= 20
        held = await stores[0].find(finding(None, states=(State.PROCESSING,), limit=1000))
        assert len(held.jobs) <= 20
        acks = [decide(Completed(), each.job, each.token, 0.0) for each in again]
        await stores[0].ack(acks)


async def test_a_claim_cut_off_between_shards_is_found_whole(
    cluster: Cluster, opened: Open
) -> None:
    """P15: what it leased before its end is what the repeat answers, and nothing besides."""
    store = await opened(cluster.fresh())
    await store.enqueue([job("x", tenant=f"t{k}") for k in range(40)])
    one = claim(30, None)
    shards = store._mine()
    claiming = ShardedClaim(shards, one, shards.all(), None)
    seen = await claiming._candidates(30, first=True)
    assert seen is not None
    tenants, base = seen
    first = [each for each in share(tenants, 30) if each.shard < 8]
    await claiming._take(first, base, 0)

    again = await store.claim(one)

    assert sorted(lease.job.tenant for lease in again) == sorted(each.tenant for each in first)
    assert await store.claim(one) == again
    assert len(await store.claim(claim(100, None))) == 40 - len(again)


# -- slots that move -------------------------------------------------------------------------------


class Move:
    """The slot of a shard on its way from one master to another."""

    def __init__(self, cluster: Cluster, tag: str) -> None:
        self._slot = key_slot(tag.encode())
        self._masters = cluster.masters()
        self._source = next(each for each in self._masters if self._has(each))
        self._target = next(each for each in self._masters if each is not self._source)

    def _has(self, node: ClusterNode) -> bool:
        return any(
            start <= self._slot <= end and master[1] == node.port
            for start, end, master, *_ in node.ask("CLUSTER", "SLOTS")
        )

    def begin(self) -> None:
        self._target.ask("CLUSTER", "SETSLOT", self._slot, "IMPORTING", self._source.id())
        self._source.ask("CLUSTER", "SETSLOT", self._slot, "MIGRATING", self._target.id())

    def move(self, count: int) -> None:
        """So many of its keys."""
        for key in self._source.ask("CLUSTER", "GETKEYSINSLOT", self._slot, count):
            self._source.ask("MIGRATE", "127.0.0.1", self._target.port, key, 0, 5000)

    def end(self) -> None:
        for node in (self._target, self._source):
            node.ask("CLUSTER", "SETSLOT", self._slot, "NODE", self._target.id())


async def test_a_slot_that_moved_is_followed(own_cluster: Cluster, opened: Open) -> None:
    """P15: verbs of its tenants wait while it moves, and lose nothing."""
    store = await opened(own_cluster.fresh())
    shards = store._mine()
    await store.enqueue([job(f"j{n}") for n in range(20)])
    moving = Move(own_cluster, shards.tag(shards.of(ACME)))

    moving.begin()
    waiting = asyncio.create_task(store.claim(claim(10)))
    await asyncio.to_thread(moving.move, 1000)
    moving.end()
    leases = await waiting
    acks = [decide(Completed(), each.job, each.token, 0.0) for each in leases]
    answers = await store.ack(acks)
    await store.enqueue([job("after")])

    assert len(leases) == 10
    assert {answer.state for answer in answers} == {State.COMPLETED}
    kinds = [each.kind for each in (await store.events(ACME, 0, 100)).events]
    assert kinds.count(EventKind.ENQUEUED) == 21
    assert len(await store.claim(claim(100))) == 11


async def test_half_a_shard_is_never_written_to(own_cluster: Cluster, opened: Open) -> None:
    """P1: while its keys are on two masters, a verb is refused rather than done on one of them."""
    store = await opened(f"{own_cluster.fresh()}&retry_s=0.3")
    shards = store._mine()
    await store.enqueue([job(f"j{n}") for n in range(20)])
    moving = Move(own_cluster, shards.tag(shards.of(ACME)))
    moving.begin()

    for count in (0, 3, 3):
        moving.move(count)
        with pytest.raises(StoreUnavailable):
            await store.enqueue([job("half")])
        with pytest.raises(StoreUnavailable):
            await store.claim(claim(5))
    moving.move(1000)
    moving.end()

    assert len(await store.claim(claim(100))) == 20
