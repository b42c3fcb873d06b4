"""Ended jobs in parts by day: small days go job by job and in time, large ones at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.clock import SECOND, Micros
from holdfast.core.finding import Level
from holdfast.core.job import Completed, Failed, State
from holdfast.core.scope import TENANT_KINDS, ScopeKind
from holdfast.store import Enqueued, Pruned, Ref, Tally
from holdfast.stores.postgres import maintenance
from holdfast.stores.postgres.doctor import examine
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, HOUR, job, rules

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

    from holdfast.stores.postgres.step import Step
    from holdfast.stores.postgres.store import PostgresStore

DAY = maintenance.DAY
LARGE = 30
"""Jobs of a day that goes at once, in these tests."""
BOUND_S = 10.0
KEPT = rules(keep_us=DAY, keep_failed_us=DAY)


@pytest.fixture
def bench(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """At midnight."""
    monkeypatch.setattr(maintenance, "WHOLE_MIN", LARGE)
    monkeypatch.setattr(maintenance, "SLICE", 7)
    monkeypatch.setattr(maintenance, "LOCK_PAUSE_S", 0.01)
    clock = store._clock
    assert isinstance(clock, ManualClock)
    assert clock.now() % DAY == 0
    return Bench(lambda: store, clock)


async def canceled(bench: Bench, number: int, prefix: str = "j", **options: Any) -> list[str]:
    """So many jobs, ended now; kept for a day unless told."""
    ids = [f"{prefix}{n}" for n in range(number)]
    await bench.put(*ids, **{"rules": KEPT, **options})
    await bench.store.cancel([Ref(options.get("tenant", ACME), id) for id in ids])
    return ids


async def parts(connection: Any) -> dict[str, int]:
    """How many jobs are in which part of the history."""
    found = await connection.fetch(
        "SELECT tableoid::regclass::text, count(*) FROM history GROUP BY 1"
    )
    return {name.rpartition("history_")[2]: number for name, number in found}


def part_of(at: Micros) -> str:
    return str(at // DAY % 9)


async def counts(bench: Bench) -> list[list[Tally]]:
    return [await bench.store.count(None, by=kind) for kind in TENANT_KINDS]


async def exact(bench: Bench) -> None:
    """The counts are those that counting the jobs gives."""
    kept = await counts(bench)
    await bench.store.count(None, recount=True)
    assert await counts(bench) == kept


async def test_a_job_is_in_the_part_of_the_day_that_ends_its_keeping(
    bench: Bench, connect: Connect
) -> None:
    """P6: kept for one to seven days; less and more are in the rest."""
    now = bench.clock.now()
    kept = {
        "short": DAY - 1,
        "day": DAY,
        "half": 3 * DAY // 2,
        "week": 7 * DAY,
        "long": 7 * DAY + 1,
    }
    for name, length in kept.items():
        await canceled(bench, 1, name, rules=rules(keep_us=length))

    found = await parts(await connect())

    assert found == {"rest": 2, part_of(now + DAY): 2, part_of(now + 7 * DAY): 1}


async def test_acks_of_all_kinds_find_their_part(bench: Bench, connect: Connect) -> None:
    """P6: completed by the short way, failed by the rules."""
    done = await bench.held("done", rules=KEPT)
    await bench.end(done, Completed(b"1"))
    dead = await bench.held("dead", rules=KEPT)
    await bench.end(dead, Failed("no", retryable=False))

    assert await parts(await connect()) == {part_of(bench.clock.now() + DAY): 2}


async def test_a_small_day_is_pruned_in_time(bench: Bench) -> None:
    """P6: job by job, at its instant, bounded as ever."""
    await canceled(bench, LARGE - 1)
    bench.clock.set(bench.clock.now() + DAY - 1)
    assert await bench.store.prune(100, DAY) == Pruned(0, 0, more=False)

    bench.clock.set(bench.clock.now() + 1)
    first = await bench.store.prune(20, 9 * DAY)
    second = await bench.store.prune(20, 9 * DAY)

    assert (first, second) == (Pruned(20, 0, more=True), Pruned(9, 0, more=False))
    await exact(bench)


async def test_a_large_day_goes_at_once_when_it_is_over(bench: Bench, connect: Connect) -> None:
    """P6: up to a day late, whatever the limit, and by emptying its table."""
    connection = await connect()
    file = f"SELECT pg_relation_filenode('history_{part_of(bench.clock.now() + DAY)}')"
    await canceled(bench, LARGE)
    bench.clock.advance(3600)
    await canceled(bench, 1, "last")
    before = await connection.fetchval(file)

    bench.clock.set(bench.clock.now() + DAY - 1)
    assert await bench.store.prune(5, 9 * DAY) == Pruned(0, 0, more=False)
    assert await bench.state("j0") is State.CANCELED

    bench.clock.set(bench.clock.now() + 1)
    assert await bench.store.prune(5, 9 * DAY) == Pruned(LARGE + 1, 0, more=True)
    assert await bench.store.prune(5, 9 * DAY) == Pruned(0, 0, more=False)
    assert await connection.fetchval(file) != before
    assert await bench.peek("j0") is None
    assert await bench.add(job("j0", type="other")) == [Enqueued("j0", True)]


async def test_counts_stay_exact_when_a_day_goes(bench: Bench) -> None:
    """P13: of every tenant, queue, group and state; what is kept elsewhere still counts."""
    await canceled(bench, 10)
    await canceled(bench, 10, tenant=GLOBEX)
    await canceled(bench, 10, "a", queue="audio")
    await canceled(bench, 10, "g", group="crawl")
    await canceled(bench, 3, "kept", group="crawl", rules=rules(keep_us=5 * DAY))
    await bench.put(*(f"c{n}" for n in range(9)), rules=KEPT, group="crawl")
    for n, lease in enumerate(await bench.claim(9)):
        await bench.end(lease, Completed() if n % 3 else Failed("no", retryable=False))
    await bench.put("alive")
    bench.clock.set(bench.clock.now() + 2 * DAY)

    assert (await bench.store.prune(5, 9 * DAY)).jobs == 49

    await exact(bench)
    [tally] = await bench.store.count(None, by=ScopeKind.TENANT)
    assert {state: n for state, n in tally.counts.items() if n} == {
        State.ENQUEUED: 1,
        State.CANCELED: 3,
    }


async def test_a_day_that_goes_frees_keys_whose_time_is_over(
    bench: Bench, connect: Connect
) -> None:
    """P12: as single jobs do; a key that is held for longer stays."""
    await canceled(bench, LARGE)
    await canceled(bench, 1, "over", key="over", rules=rules(keep_us=DAY, key_us=HOUR))
    await canceled(bench, 1, "held", key="held", rules=rules(keep_us=DAY, key_us=9 * DAY))
    bench.clock.set(bench.clock.now() + 2 * DAY)

    assert (await bench.store.prune(5, 9 * DAY)).jobs == LARGE + 2

    keys = await (await connect()).fetch("SELECT key FROM keys")
    assert [key for (key,) in keys] == ["held"]
    assert await bench.add(job("n", key="held")) == [Enqueued("held0", False)]


async def test_a_day_that_somebody_reads_goes_later(bench: Bench, connect: Connect) -> None:
    """P15: upkeep does the rest of its work, nobody waits for long, and nothing is counted off."""
    await canceled(bench, LARGE)
    await canceled(bench, 2, "short", rules=rules(keep_us=HOUR))
    bench.clock.set(bench.clock.now() + 2 * DAY)
    connection = await connect()
    async with asyncio.timeout(BOUND_S), connection.transaction():
        await connection.fetch("SELECT count(*) FROM history")
        assert await bench.store.prune(100, 9 * DAY) == Pruned(2, 0, more=False)
        assert await bench.state("j0") is State.CANCELED
        await exact(bench)

    assert (await bench.store.prune(100, 9 * DAY)).jobs == LARGE
    await exact(bench)


async def test_who_comes_to_read_while_it_is_counted_puts_it_off(
    bench: Bench, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P13: what was counted off already is taken back."""
    await canceled(bench, LARGE)
    bench.clock.set(bench.clock.now() + 2 * DAY)
    connection = await connect()
    reading = connection.transaction()
    count_and_empty = maintenance._count_and_empty

    async def read_first(step: Step, day: int) -> int:
        await reading.start()
        await connection.fetch("SELECT count(*) FROM history")
        return await count_and_empty(step, day)

    monkeypatch.setattr(maintenance, "_count_and_empty", read_first)
    assert await bench.store.prune(100, 9 * DAY) == Pruned(0, 0, more=False)
    await reading.rollback()
    await exact(bench)
    assert await bench.state("j0") is State.CANCELED


async def test_enqueue_and_ack_go_on_while_a_day_is_counted(bench: Bench, connect: Connect) -> None:
    """P15: its lock keeps out only who would change that day."""
    lease = await bench.held("a", rules=KEPT)
    bench.clock.advance(1)
    connection = await connect()
    async with asyncio.timeout(BOUND_S), connection.transaction():
        day = int(part_of(bench.clock.now()))
        assert await connection.fetchval("SELECT lock_history_day($1, 'writers')", day)
        await bench.put("b")
        assert (await bench.end(lease, Completed())).error is None
        assert await bench.state("a") is State.COMPLETED


async def test_two_who_prune_at_once_count_a_day_once(bench: Bench) -> None:
    """P13: one of them takes it, the other leaves it."""
    await canceled(bench, LARGE)
    bench.clock.set(bench.clock.now() + 2 * DAY)

    pruned = await asyncio.gather(*(bench.store.prune(100, 9 * DAY) for _ in range(4)))
    pruned.append(await bench.store.prune(100, 9 * DAY))

    assert sum(one.jobs for one in pruned) == LARGE
    await exact(bench)


async def test_two_days_in_one_part_are_pruned_job_by_job(bench: Bench) -> None:
    """P15: nobody pruned for days; what is still kept stays."""
    await canceled(bench, LARGE)
    bench.clock.set(bench.clock.now() + 4 * DAY)
    await canceled(bench, 3, "new", rules=rules(keep_us=6 * DAY))

    first = await bench.store.prune(20, 9 * DAY)
    second = await bench.store.prune(20, 9 * DAY)

    assert (first.jobs, second.jobs) == (20, LARGE - 20)
    assert await bench.state("new0") is State.CANCELED
    await exact(bench)


async def test_without_the_right_to_truncate_jobs_go_one_by_one(
    bench: Bench, connect: Connect, store: PostgresStore
) -> None:
    """P15: and in time; the doctor names what is missing."""
    await canceled(bench, LARGE)
    bench.clock.set(bench.clock.now() + DAY + SECOND)
    part = part_of(bench.clock.now())
    await (await connect()).execute(f"REVOKE TRUNCATE ON history_{part} FROM CURRENT_USER")

    assert await bench.store.prune(100, 9 * DAY) == Pruned(LARGE, 0, more=False)
    [rights] = [one for one in await examine(store) if one.what == "rights"]
    assert rights.level is Level.WARNING
    assert f"history_{part}" in rights.words
