"""Every store, behind one fixture: an empty store on a clock of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.clock import Clock
from holdfast.store import Store
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench

STORES = ["memory", "sqlite"]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """For each store: the URL of the place with this name, new and empty for each test."""
    urls: dict[str, Callable[[str], str]] = {
        "memory": lambda name: "memory://",
        "sqlite": lambda name: f"sqlite:///{tmp_path / name}.db",
    }
    return urls[request.param]


@pytest.fixture
def make(url: Callable[[str], str]) -> Callable[[str, Clock | None], Store]:
    """For each store: makes it, not opened yet, at the place with this name."""
    return lambda name, clock: open_store(url(name), clock)


@pytest.fixture
async def bench(make: Callable[[str, Clock | None], Store]) -> AsyncIterator[Bench]:
    """For each store: opened, empty, on a ManualClock."""
    clock = ManualClock()
    bench = Bench(lambda: make("jobs", clock), clock)
    await bench.open()
    yield bench
    await bench.close()
