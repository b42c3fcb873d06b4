"""A bench on the memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    clock = ManualClock()
    store = open_store("memory://", clock)
    bench = Bench(lambda: store, clock)
    await bench.open()
    yield bench
    await bench.close()
