"""Every measure runs, at a small size, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.crew import Failed, member
from bench.figures import Figures
from bench.measure import MEASURES, Bench, Sizes, half_load
from bench.places import Memory, Place, Sqlite

TINY = Sizes(
    rounds=1,
    jobs=200,
    singles=20,
    pickups=3,
    load_s=0.1,
    shallow=100,
    deep=300,
    rule_jobs=50,
)


async def _measured(place: Place, *names: str) -> Figures:
    said: list[str] = []
    found = await Bench(place, TINY, said.append).run(names)
    assert found.failed == {}
    assert len(said) >= len(names)
    return found


async def test_every_measure_gives_figures_on_the_memory_store() -> None:
    """Client and worker are one process there; there is no scaling."""
    found = await _measured(Memory("memory", "memory://"), *MEASURES)

    for column in (found.single, found.concurrent, found.bulk, found.drain, found.floor):
        assert len(column) == 1
        assert column[0] > 0
    assert found.pickup_p50_ms[0] <= found.pickup_p99_ms[0]
    assert [one.queued for one in found.depth] == [100, 300]
    assert len(found.growth) == 6
    assert found.scaling == []


async def test_client_and_workers_are_processes_of_their_own(tmp_path: Path) -> None:
    """On a store that processes can share; its files are gone in the end."""
    place = Sqlite("sqlite-normal", tmp_path, "normal")

    found = await _measured(place, "drain", "depth", "pickup")

    assert found.drain[0] > 0
    assert found.depth[1].engine_mb > 0
    assert place.size() == 0


async def test_a_measure_that_fails_is_noted_and_the_others_go_on() -> None:
    """Load needs what enqueue and drain found."""
    found = await Bench(Memory("memory", "memory://"), TINY, lambda _: None).run(["load", "pickup"])

    assert "needs the measures" in found.failed["load"]
    assert found.pickup_p50_ms


async def test_a_process_that_cannot_open_its_store_says_so() -> None:
    """And does not hang."""
    async with member("nothing://") as broken:
        with pytest.raises(Failed, match="the process ended with 1"):
            await broken.do("seen")


def test_half_of_the_load_counts_both_sides() -> None:
    """Taking and giving share the store's time."""
    assert half_load(100.0, 100.0) == pytest.approx(25.0)
