"""Large limits are in parts, so that claimers of one queue do not wait for each other (P13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.foundationdb_engine import Engine, Faults

from holdfast.core.job import Completed, Lease
from holdfast.core.lifecycle import decide
from holdfast.core.scope import Scope, ScopeSettings, encode
from holdfast.store import Claim, Put, Take
from holdfast.stores.foundationdb.layout import Keys, Space, after
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, HOUR, LEASE, job, queue_of, tenant_of

CLAIMERS = 16
JOBS = 1000
LIMIT = 320
WASTED_MAX = 0.20
KEYS = Keys(b"c\0")


def _store(engine: Engine) -> FoundationStore:
    return FoundationStore(Options(prefix="c", retry_s=600), None, engine.database())


def _held(engine: Engine) -> int:
    """How many jobs are held at this very moment."""
    rows = engine.database().get_range(KEYS.all(Space.HELD), after(KEYS.all(Space.HELD)))
    return len(rows)


def _parts(engine: Engine, scope: Scope) -> list[int]:
    """The held jobs that each part of a limit counts."""
    counters = KEYS.scope(Space.COUNTS, scope)
    rows = engine.database().get_range(counters + b"\x80", counters + b"\x90")
    return [int.from_bytes(row.value, "little", signed=True) for row in rows]


async def _end(store: FoundationStore, leases: list[Lease]) -> None:
    changes = [decide(Completed(), one.job, one.token, 0.0) for one in leases]
    assert all(answer.error is None for answer in await store.ack(changes))


async def _opened(engine: Engine, count: int) -> list[FoundationStore]:
    stores = [_store(engine) for _ in range(count)]
    for store in stores:
        await store.open()
    return stores


async def _drain(engine: Engine, stores: list[FoundationStore], jobs: int, most: int) -> None:
    """Runs all jobs by all stores at once, and sees that never more than so many are held."""
    done = 0

    async def work(number: int, store: FoundationStore) -> None:
        nonlocal done
        calls = 0
        while done < jobs:
            calls += 1
            nonce = f"{number}-{calls}"
            claim = Claim(worker=f"w{number}", nonce=nonce, limit=10, lease_us=LEASE)
            leases = await store.claim(claim)
            assert _held(engine) <= most
            await _end(store, leases)
            done += len(leases)

    await asyncio.gather(*(work(number, store) for number, store in enumerate(stores)))
    assert done == jobs


async def test_claimers_of_a_limited_queue_waste_few_transactions(
    record_property: Callable[[str, object], None],
) -> None:
    """With one key for all places four of five tries would be in vain."""
    engine = Engine(faults=Faults(seed=1, delay=0.8))
    stores = await _opened(engine, CLAIMERS)
    setting = Put(queue_of().name, encode(ScopeSettings(max_running=LIMIT)), 0)
    await stores[0].settings([setting])
    await stores[0].enqueue([job(f"j{number}") for number in range(JOBS)])
    before = engine.counts

    await _drain(engine, stores, JOBS, LIMIT)

    tries = engine.counts.attempts - before.attempts
    wasted = 1 - (engine.counts.commits - before.commits) / tries
    record_property("wasted", round(wasted, 4))
    print(f"limited queue: {tries} tries, {wasted:.1%} in vain")
    assert wasted <= WASTED_MAX
    for store in stores:
        await store.close()


@pytest.mark.parametrize("seed", range(6))
async def test_no_limit_in_parts_is_exceeded_while_the_cluster_fails(seed: int) -> None:
    """A queue's within a tenant's, of which one has fewer parts than there are claimers."""
    engine = Engine(faults=Faults(seed, delay=0.6, conflict=0.05, unknown=0.1))
    stores = await _opened(engine, 5)
    for scope, most in ((queue_of(), 20), (tenant_of(), 4)):
        await stores[0].settings([Put(scope.name, encode(ScopeSettings(max_running=most)), 0)])
    await stores[0].enqueue([job(f"j{number}") for number in range(120)])

    await _drain(engine, stores, 120, 4)

    engine.faults.heal()
    for scope in (queue_of(), tenant_of()):
        assert set(_parts(engine, scope)) == {0}
    assert all(tally.correction == 0 for tally in await stores[0].count(ACME, recount=True))
    for store in stores:
        await store.close()


# -- when the limit changes ------------------------------------------------------------------------


@pytest.fixture
async def bench(bench: Bench) -> Bench:
    """With a hundred jobs in line."""
    await bench.put(*(f"j{number}" for number in range(100)))
    return bench


async def test_a_lowered_limit_lets_no_part_start_more_than_all_may(bench: Bench) -> None:
    """Even if all that run have their places in one part, and the others are empty."""
    await bench.configure(queue_of(), max_running=64)
    leases = await bench.claim(64)
    assert len(leases) == 64
    for lease in leases[12:]:
        await bench.end(lease, Completed())

    await bench.configure(queue_of(), max_running=16)
    started = [await bench.claim(3) for _ in range(3)]

    assert sum(map(len, started)) == 4
    await bench.configure(queue_of(), max_running=10)
    assert await bench.claim(3) == []
    for lease in leases[:8]:
        await bench.end(lease, Completed())
    assert len(await bench.claim(10)) == 2


async def test_held_jobs_are_dealt_out_to_the_parts(bench: Bench, engine: Engine) -> None:
    """A claimer that is alone fills one after the other, and what ends leaves its own."""
    await bench.configure(queue_of(), max_running=20)
    leases = await bench.claim(15)

    assert _parts(engine, queue_of()) == [2] * 4 + [1] * 7
    for lease in leases[:8]:
        await bench.end(lease, Completed())
    assert _parts(engine, queue_of()) == [0] * 4 + [1] * 7
    assert len(await bench.claim(50)) == 13
    assert _parts(engine, queue_of()) == [2] * 4 + [1] * 12


async def test_a_raised_limit_is_used_to_the_full(bench: Bench) -> None:
    """Though the parts are others then, and more."""
    await bench.configure(queue_of(), max_running=20)
    assert len(await bench.claim(50)) == 20

    await bench.configure(queue_of(), max_running=50)

    assert len(await bench.claim(50)) == 30
    assert await bench.claim(50) == []


async def test_jobs_that_began_without_a_limit_count(bench: Bench) -> None:
    """They have no place in any part."""
    early = await bench.claim(30)

    await bench.configure(queue_of(), max_running=40)

    assert len(await bench.claim(50)) == 10
    for lease in early:
        await bench.end(lease, Completed())
    assert len(await bench.claim(50)) == 30


async def test_slots_take_places_of_the_parts(bench: Bench) -> None:
    """Those of outsiders count as jobs do."""
    await bench.configure(queue_of(), max_running=32, slots_count=True)
    takes = [Take(f"{queue_of().slots}s{number}", "o", HOUR, "") for number in range(5)]
    await bench.store.hold(takes)

    assert len(await bench.claim(50)) == 27
    assert await bench.claim(50) == []


async def test_lapsed_leases_give_their_places_back(bench: Bench) -> None:
    """To the parts that they were of."""
    await bench.configure(queue_of(), max_running=32)
    assert len(await bench.claim(50)) == 32

    bench.clock.advance(61)

    assert len(await bench.claim(50)) == 32
    [tally] = await bench.store.count(ACME, recount=True)
    assert tally.correction == 0
