"""Schedules over long times: ten thousand takeovers, and clock changes."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest

from holdfast.core.clock import SECOND, instant
from holdfast.core.job import Completed
from holdfast.definitions import instants
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.ticking import Deadly, Died, Ticking, waiting


@pytest.fixture
async def bench() -> Any:
    """Memory, on a clock of its own."""
    clock = ManualClock()
    bench = Bench(lambda: open_store("memory://", clock), clock)
    await bench.open()
    yield bench
    await bench.close()


async def test_ten_thousand_takeovers_fire_each_tick_once(bench: Bench) -> None:
    """The worker that fires dies at a random call, over and over; all ticks come, none twice."""
    chance = random.Random(19)
    ticking = Ticking(bench)
    await ticking.set(every=90, missed="all", overlap="allow")
    begin = bench.clock.now()
    takeovers = 0
    while takeovers < 10_000:
        bench.clock.advance(chance.choice([61, 90, 200]))
        while (lease := await ticking.claim_tick()) is not None:
            dying = Deadly(bench.store, chance.randint(1, 7), late=chance.random() < 0.5)
            try:
                await ticking.fire(lease, dying)
            except Died:
                takeovers += 1
                break
            await bench.end(lease, Completed())
        if takeovers % 50 == 0:
            await ticking.jobs()
    bench.clock.advance(300)
    await ticking.run()

    expected = list(range(begin - begin % (90 * SECOND), bench.clock.now(), 90 * SECOND))
    assert sorted(ticking.instants) == [at for at in expected if begin < at <= bench.clock.now()]
    assert len(await waiting(bench)) == 1


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/30 2 * * *", "0 2,3 * * *", "*/20 * * * *"])
async def test_two_clock_changes_in_simulated_time(bench: Bench, cron: str) -> None:
    """From March to November in Berlin, with a late worker now and then: each tick once."""
    chance = random.Random(cron)
    for first in (datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)):
        bench.clock.set(instant(first))
        ticking = Ticking(bench)
        await ticking.set(cron=cron, zone="Europe/Berlin", missed="all", overlap="allow")
        state = await ticking.handle.get()
        coming = instants(state, bench.clock.now(), 400)
        end = instant(first + timedelta(days=3))
        while bench.clock.now() < end:
            bench.clock.advance(
                min(chance.choice([300, 1200, 5000]), 1 + (end - bench.clock.now()) / 1e6)
            )
            await ticking.run()

        passed = takewhile(lambda at: instant(at) <= bench.clock.now(), coming)
        assert ticking.instants == [instant(at) for at in passed]
        await ticking.handle.delete()
