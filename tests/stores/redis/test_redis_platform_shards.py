"""Limits of the platform on a store with several shards: what dies half way, and what it costs."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.test_redis_commands import _commands

from holdfast.core.bounds import PERMIT_LIFE_S
from holdfast.core.job import Completed, Lease, State
from holdfast.core.lifecycle import decide
from holdfast.core.rate import rate
from holdfast.core.scope import Pause, Scope, ScopeSettings, decode, encode
from holdfast.operate import audit
from holdfast.store import Claim, Put, Ref, Store
from holdfast.stores.redis.limits_platform import Question, ask_home, scope_name
from holdfast.stores.redis.shards import Shards
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import LEASE, MAIL, job, over_all, tenant_of, type_of
from holdfast.testing.contract.inside import each_platform_scope

TENANTS = [f"t{n}" for n in range(12)]
"""They live in at least eight of the shards."""
EACH = 4
LIMIT = 3
SHARDS = 16
FEW = 4
"""Shards of the tests that try each call: at each they try again."""


class Killed(Exception):
    """The process is gone: no call of it reaches a server any more."""


class Mortal:
    """The shards as a process sees them that dies at its n-th call, before or after the server has
    done it.
    """

    def __init__(self, shards: Shards, at: int, late: bool) -> None:
        self._call = shards.call
        self._left = at
        self._late = late
        self.is_dead = False
        shards.call = self.call  # type: ignore[method-assign]

    async def call(self, *args: Any, **options: Any) -> Any:
        if self.is_dead:
            raise Killed
        self._left -= 1
        if self._left >= 0:
            return await self._call(*args, **options)
        self.is_dead = True
        if self._late:
            await self._call(*args, **options)
        raise Killed


def sharded(node: RedisNode, shards: int = SHARDS) -> Bench:
    """On a new store with shards, and a clock of its own."""
    url, clock = f"{node.fresh()}&shards={shards}", ManualClock()
    return Bench(lambda: RedisStore.from_url(url, clock), clock)


async def fill(bench: Bench, each: int = EACH) -> None:
    await bench.add(*(job(f"j{n}", tenant=tenant) for n in range(each) for tenant in TENANTS))


async def alive(store: Store) -> int:
    states = (State.ENQUEUED, State.RETRYING, State.SCHEDULED, State.PROCESSING)
    found = await store.count(None)
    return sum(tally.counts.get(state, 0) for tally in found for state in states)


async def running(store: Store) -> int:
    return sum(tally.counts.get(State.PROCESSING, 0) for tally in await store.count(None))


async def limit_of(bench: Bench, scope: Scope) -> int:
    found = await bench.setting(scope)
    most = None if found is None else decode(scope.name, found.value).max_running
    return EACH * len(TENANTS) if most is None else most


async def drain(bench: Bench, scope: Scope) -> None:
    """Does all that is left. The limit that is stored is used in full, and never exceeded."""
    while left := await alive(bench.store):
        most = await limit_of(bench, scope)
        leases = await bench.claim(100)
        assert await running(bench.store) == min(most, left)
        assert await bench.claim(100) == []
        assert leases
        for lease in leases:
            await bench.end(lease, Completed())
    for tally in await bench.store.count(scope.tenant, by=scope.kind, recount=True):
        assert (tally.counts, tally.correction) == ({}, 0)


Act = Callable[[Bench, list[Lease], Scope], Awaitable[object]]


async def _claim(bench: Bench, leases: list[Lease], scope: Scope) -> None:
    await bench.claim(100)


async def _ack(bench: Bench, leases: list[Lease], scope: Scope) -> None:
    await bench.store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])


async def _cancel(bench: Bench, leases: list[Lease], scope: Scope) -> None:
    await bench.store.cancel([Ref(one.job.tenant, one.job.id) for one in leases])


def _put(**fields: Any) -> Act:
    async def put(bench: Bench, leases: list[Lease], scope: Scope) -> None:
        await bench.configure(scope, **fields)

    return put


ACTS: dict[str, tuple[Act, dict[str, Any], int]] = {
    # What is done half way, the settings before, and how many jobs run before.
    "claim": (_claim, {"max_running": LIMIT}, 1),
    "claim-by-rate": (_claim, {"rate": rate("100/s")}, 1),
    "ack": (_ack, {"max_running": LIMIT}, LIMIT),
    "cancel": (_cancel, {"max_running": LIMIT}, LIMIT),
    "create": (_put(max_running=LIMIT), {}, LIMIT + 2),
    "raise": (_put(max_running=2 * LIMIT), {"max_running": LIMIT}, LIMIT),
    "lower": (_put(max_running=LIMIT), {"max_running": 2 * LIMIT}, LIMIT + 2),
    "delete": (_put(), {"max_running": LIMIT}, LIMIT),
}


async def _dies(node: RedisNode, scope: Scope, name: str, at: int, late: bool) -> bool:
    """Whether a process that dies at this call died at all. Others find all in order after it."""
    act, before, started = ACTS[name]
    bench = sharded(node, FEW)
    await bench.open()
    other = bench._make()
    await other.open()
    try:
        await fill(bench)
        if before:
            await bench.configure(scope, **before)
        leases = await bench.claim(started)
        assert len(leases) == started
        assert isinstance(bench.store, RedisStore)
        mortal = Mortal(bench.store._mine(), at, late)
        try:
            await act(bench, leases, scope)
        except Killed:
            assert mortal.is_dead
        await bench.store.close()
        bench.store = other
        most = await limit_of(bench, scope)
        await bench.claim(100)
        assert await running(other) <= max(most, started)
        # What the dead process held lapses, and what it kept from others is taken back.
        bench.clock.advance(LEASE / 1_000_000 + PERMIT_LIFE_S)
        await drain(bench, scope)
        return mortal.is_dead
    finally:
        await other.close()


@pytest.mark.parametrize("name", ACTS)
@each_platform_scope
async def test_a_process_may_die_between_any_two_calls(
    node: RedisNode, scope: Scope, name: str
) -> None:
    """P13: no limit is exceeded, and no place is lost, wherever it stops."""
    for at in itertools.count():
        died = [await _dies(node, scope, name, at, late) for late in (False, True)]
        if not any(died):
            break
        node.clear()
    assert at > 2


async def test_a_dead_put_holds_nobody_for_long(node: RedisNode) -> None:
    """P13: the old settings count again after a second."""
    bench = sharded(node)
    await bench.open()
    await bench.configure(over_all(MAIL), max_running=LIMIT)
    await fill(bench)
    assert isinstance(bench.store, RedisStore)
    dying = RedisStore(bench.store.options, bench.clock)
    await dying.open()
    Mortal(dying._mine(), 1 + SHARDS, late=False)
    with pytest.raises(Killed):
        await dying.settings([Put(over_all(MAIL).name, encode(ScopeSettings(max_running=9)), 1)])

    assert await bench.claim(100) == []
    bench.clock.advance(PERMIT_LIFE_S)
    assert len(await bench.claim(100)) == LIMIT
    await dying.close()
    await bench.close()


async def test_a_permit_is_used_once(node: RedisNode) -> None:
    """P13: a permit that comes late, or twice, starts nothing."""
    bench = sharded(node)
    await bench.open()
    await bench.configure(over_all(MAIL), max_running=1)
    await bench.put("a", "b", tenant="t1")
    store = bench.store
    assert isinstance(store, RedisStore)
    shards, now = store._mine(), bench.clock.now()
    shard, name = shards.of("t1"), scope_name(over_all(MAIL))
    wanted = Question(wanted=[(shard, name, 1)])
    [(number, epoch)] = (await ask_home(shards, wanted, now)).permits
    assert number == 1

    def lease(nonce: str) -> Awaitable[Any]:
        claim = ("w", [nonce], 10, LEASE, None, None, None)
        grants = [("t1", 2, 2, 0, (name, 2), (MAIL, 2))]
        return shards.call("claim", shard, (claim, grants, (name, number, epoch)), now)

    taken = [await lease("n1"), await lease("n2")]

    assert [numbers for _, numbers, *_ in taken] == [[1], [0]]
    [(number, _)] = (await ask_home(shards, wanted, now)).permits
    assert number == 0
    await bench.close()


@each_platform_scope
async def test_one_place_goes_round_over_all_shards_by_weight(
    node: RedisNode, scope: Scope
) -> None:
    """P19: a limit of 1 over 16 shards: each tenant has its turns, one with weight 3 three."""
    bench = sharded(node)
    await bench.open()
    await bench.configure(tenant_of("t3"), weight=3)
    await bench.configure(scope, max_running=1)
    await fill(bench, 30)
    got: Counter[str] = Counter()
    rounds = 4
    for _ in range(rounds * (len(TENANTS) + 2)):
        [lease] = await bench.claim(10)
        got[lease.job.tenant] += 1
        await bench.end(lease, Completed())

    assert got == {tenant: rounds * (3 if tenant == "t3" else 1) for tenant in TENANTS}
    await bench.close()


async def test_limits_under_claimers_and_changes_at_once(node: RedisNode) -> None:
    """P13: claims and changes of several processes at the same time, judged by the log."""
    url = f"{node.fresh()}&shards={SHARDS}"
    stores = [RedisStore.from_url(url) for _ in range(4)]
    for store in stores:
        await store.open()
    scopes = [type_of(), over_all(MAIL), Scope("", type_of().kind, "read")]
    await stores[0].enqueue([job(f"j{n}", tenant=tenant) for n in range(10) for tenant in TENANTS])

    async def work(number: int) -> None:
        store = stores[number % len(stores)]
        for turn in itertools.count():
            if turn % 8 == 7 and not await alive(store):
                return
            nonce = f"n{number}-{turn}"
            leases = await store.claim(
                Claim(worker=f"w{number}", nonce=nonce, limit=1 + turn % 5, lease_us=LEASE)
            )
            await asyncio.sleep(0)
            await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])

    async def change() -> None:
        for turn in range(60):
            scope = scopes[turn % 2]
            found = {one.name: one.version for one in await stores[0].settings(under=scope.name)}
            paused = Pause("because", "ann") if turn % 7 == 3 else None
            value = encode(
                ScopeSettings(max_running=1 + turn % 4, rate=rate("400/s", 5), paused=paused)
            )
            put = Put(scope.name, None if turn % 11 == 10 else value, found.get(scope.name, 0))
            await stores[0].settings([put])
        for scope in scopes[:2]:
            found = {one.name: one.version for one in await stores[0].settings(under=scope.name)}
            loose = encode(ScopeSettings(max_running=5))
            await stores[0].settings([Put(scope.name, loose, found.get(scope.name, 0))])

    async with asyncio.timeout(60):
        await asyncio.gather(change(), *(work(number) for number in range(8)))

    found = await audit(stores[0])
    assert found.breaches == []
    for scope in scopes[:2]:
        tallies = await stores[0].count("", by=scope.kind, recount=True)
        assert [(tally.counts, tally.correction) for tally in tallies] == [({}, 0)]
    for store in stores:
        await store.close()


async def test_a_store_without_limits_of_the_platform_pays_nothing(node: RedisNode) -> None:
    """P15: also one that had some."""
    bench = sharded(node)
    await bench.open()

    async def cost() -> list[int]:
        found = []
        for tenants in (("t1",), None):
            await bench.put(f"{bench.clock.now()}", tenant="t1")
            node.ask("CONFIG", "RESETSTAT")
            [lease] = await bench.claim(10, tenants=tenants)
            await bench.end(lease, Completed())
            found.append(_commands(node))
            bench.clock.advance(1)
        return found

    await cost()
    before = await cost()
    await bench.configure(over_all(MAIL), max_running=1)
    limited = await cost()
    await bench.configure(over_all(MAIL))
    await bench.claim(10)

    assert await cost() == before
    assert all(one > other for one, other in zip(limited, before, strict=True))
    await bench.close()
