"""Schedules: overlap, missed ticks, many tenants."""

from __future__ import annotations

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed
from holdfast.store import Find, Selection
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
)
from holdfast.testing.contract.ticking import PERIOD, Deadly, Died, Ticking

# -- overlap ---------------------------------------------------------------------------------------


async def test_skip_makes_no_job_while_the_last_one_runs(bench: Bench) -> None:
    """And the next one after it has ended, also across an edit."""
    ticking = Ticking(bench)
    await ticking.set()
    bench.clock.advance(PERIOD / SECOND)
    await ticking.ticks()
    [lease] = await bench.claim(9, queues=("reports",), lease_us=3600 * SECOND)

    bench.clock.advance(PERIOD / SECOND)
    await ticking.ticks()
    await ticking.handle.set(phase=1, every=PERIOD / SECOND)
    bench.clock.advance(PERIOD / SECOND)
    await ticking.ticks()
    assert await bench.claim(9, queues=("reports",)) == []

    await bench.end(lease, Completed())
    await ticking.walk(1)
    assert len(ticking.instants) == 1


async def test_queue_lets_one_job_wait_and_runs_them_in_turn(bench: Bench) -> None:
    """Never two at once, and never two that wait."""
    bench.needs("scopes")
    ticking = Ticking(bench)
    await ticking.set(overlap="queue")
    for _ in range(4):
        bench.clock.advance(PERIOD / SECOND)
        await ticking.ticks()

    select = Selection(tenant=ACME, queues=("reports",))
    assert len((await bench.store.find(Find(select=select))).jobs) == 2
    [first] = await bench.claim(9, queues=("reports",))
    assert await bench.claim(9, queues=("reports",)) == []
    await bench.end(first, Completed())
    assert len(await bench.claim(9, queues=("reports",))) == 1


async def test_allow_makes_every_job(bench: Bench) -> None:
    """However many still run."""
    ticking = Ticking(bench)
    await ticking.set(overlap="allow")
    for _ in range(3):
        bench.clock.advance(PERIOD / SECOND)
        await ticking.ticks()

    assert len(await bench.claim(9, queues=("reports",))) == 3


async def test_cancel_ends_the_last_one(bench: Bench) -> None:
    """And makes the new one."""
    ticking = Ticking(bench)
    await ticking.set(overlap="cancel")
    bench.clock.advance(PERIOD / SECOND)
    await ticking.ticks()
    [lease] = await bench.claim(9, queues=("reports",), lease_us=3600 * SECOND)
    bench.clock.advance(PERIOD / SECOND)

    await ticking.ticks()

    answer = await bench.end(lease, Completed())
    assert answer.error is not None
    assert len(await bench.claim(9, queues=("reports",))) == 1


# -- missed ticks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("missed", "number"), [("skip", 0), ("one", 1), ("all", 10)])
async def test_missed_ticks_are_made_up_for_as_the_schedule_says(
    bench: Bench, missed: str, number: int
) -> None:
    """The newest one, all of them, or none that is later than five minutes."""
    ticking = Ticking(bench)
    await ticking.handle.set(ticking.report(), every=3600, missed=missed)
    bench.clock.advance(10 * 3600 + 1200)

    await ticking.run()

    assert len(ticking.instants) == number
    bench.clock.advance(2400)
    await ticking.run()
    await ticking.walk(1, 3600)
    assert len(ticking.instants) == number + 2


async def test_within_says_how_late_a_tick_may_be(bench: Bench) -> None:
    """Under every rule about missed ticks."""
    ticking = Ticking(bench)
    await ticking.handle.set(ticking.report(), every=3600, missed="all", within=2 * 3600)
    bench.clock.advance(10 * 3600 + 1200)

    await ticking.run()

    assert len(ticking.instants) == 2


# -- many tenants ----------------------------------------------------------------------------------


async def test_one_tick_makes_a_job_for_each_of_many_tenants(bench: Bench) -> None:
    """In parts, each of which may be repeated, and once for each."""
    ticking = Ticking(bench)
    tenants = [f"t{number}" for number in range(250)]
    ticking.app.schedule(every=300, tenants=lambda: tenants, name="all")(ticking.report)
    await ticking.run()
    bench.clock.advance(PERIOD / SECOND)

    lease = await ticking.claim_tick()
    assert lease is not None
    with pytest.raises(Died):
        await ticking.fire(lease, Deadly(bench.store, 4, late=True), lambda: iter(tenants))
    bench.clock.advance(61)
    await ticking.run()

    assert sorted(ticking.tenants) == sorted(tenants)
    await ticking.walk(1)
    assert len(ticking.tenants) == 500
