"""Schedules over long times: clock changes."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest

from holdfast.core.clock import instant
from holdfast.definitions import instants
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.ticking import Ticking


@pytest.fixture
async def bench() -> Any:
    """Memory, on a clock of its own."""
    clock = ManualClock()
    bench = Bench(lambda: open_store("memory://", clock), clock)
    await bench.open()
    yield bench
    await bench.close()


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
