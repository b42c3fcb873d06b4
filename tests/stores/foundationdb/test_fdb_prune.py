"""Prune leaves no keys behind that nothing else would ever clear away."""

from __future__ import annotations

import pytest
from tests.foundationdb_engine import Engine

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed
from holdfast.core.rate import Rate
from holdfast.core.scope import GroupRules
from holdfast.stores.foundationdb import maintenance_sweep
from holdfast.stores.foundationdb.layout import Keys, Space, after
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import group_of, queue_of, rules

KEYS = Keys(b"c\0")
GROUPS = 30
NO_KEEPING = rules(keep_us=0)


def _left(engine: Engine, space: Space) -> int:
    prefix = KEYS.all(space)
    return len(engine.database().get_range(prefix, after(prefix)))


async def _run_groups(bench: Bench) -> None:
    """Runs a job of each of many groups that are limited and have a rate."""
    limits = GroupRules(max_running=2, rate=Rate(count=6, per_us=60 * SECOND, burst=1))
    await bench.configure(queue_of(), groups=limits)
    for number in range(GROUPS):
        await bench.put(f"j{number}", group=f"g{number}", rules=NO_KEEPING)
    while leases := await bench.claim(7):
        for lease in leases:
            await bench.end(lease, Completed())


async def test_nothing_is_left_of_groups_that_are_gone(bench: Bench, engine: Engine) -> None:
    """Neither counters, nor buckets, nor the keys that were contended for."""
    await _run_groups(bench)
    assert _left(engine, Space.BUCKETS) == GROUPS
    assert _left(engine, Space.LIMIT_LOCKS) >= GROUPS
    bench.clock.advance(3600)

    for _ in range(3):
        await bench.store.prune(100, 0)

    spaces = (
        Space.BUCKETS,
        Space.LIMIT_LOCKS,
        Space.OPENS,
        Space.REOPEN,
        Space.CLAIMERS,
        Space.COUNTS,
    )
    assert {space.name: _left(engine, space) for space in spaces} == {
        space.name: 0 for space in spaces
    }


async def test_a_bucket_stays_until_it_was_full_for_a_while(bench: Bench, engine: Engine) -> None:
    """Dropped before, it would give tokens that were taken already."""
    await _run_groups(bench)

    await bench.store.prune(100, 0)
    bench.clock.advance(5)
    await bench.store.prune(100, 0)

    assert _left(engine, Space.BUCKETS) == GROUPS


async def test_what_time_opens_does_not_wait_for_a_claim(bench: Bench, engine: Engine) -> None:
    """Prune looks at it as a claim does: where nobody claims it would stay for ever."""
    await bench.configure(group_of(), rate=Rate(count=6, per_us=60 * SECOND, burst=1))
    await bench.put("a", "b", group=group_of().part)
    await bench.one()
    assert _left(engine, Space.REOPEN) == _left(engine, Space.OPENS) == 1
    bench.clock.advance(30)

    await bench.store.prune(100, 0)

    assert _left(engine, Space.REOPEN) == _left(engine, Space.OPENS) == 0
    assert (await bench.one()).job.id == "b"


async def test_names_of_claimers_that_are_gone_are_cleared_away(
    bench: Bench, engine: Engine
) -> None:
    """A store that was killed does not take its name from lines that nobody visits again."""
    await bench.put("a")
    await bench.one()
    assert _left(engine, Space.CLAIMERS) == 1

    await bench.store.prune(100, 0)
    assert _left(engine, Space.CLAIMERS) == 1
    bench.clock.advance(60)
    await bench.store.prune(100, 0)

    assert _left(engine, Space.CLAIMERS) == 0


async def test_what_is_in_use_is_not_swept(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep of small steps goes round, and takes nothing from a scope that has jobs."""
    monkeypatch.setattr(maintenance_sweep, "SWEEP_STEP", 4)
    await bench.configure(queue_of(), max_running=1)
    await bench.put("a", "b")
    await bench.one()
    bench.clock.advance(10)

    for _ in range(10):
        await bench.store.prune(100, 0)

    assert _left(engine, Space.LIMIT_LOCKS) == 1
    assert await bench.claim(5) == []
    [tally] = await bench.store.count(None, recount=True)
    assert tally.correction == 0
