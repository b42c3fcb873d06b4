"""A bucket and a memory store on a clock of its own, for the sweep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.upkeep.swept import Shop

from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Memory, on a clock of its own."""
    clock = ManualClock()
    bench = Bench(lambda: open_store("memory://", clock), clock)
    await bench.open()
    yield bench
    await bench.close()


@pytest.fixture
def shop(bench: Bench, tmp_path: Path) -> Shop:
    return Shop(bench, tmp_path / "blobs")
