"""A part of the behaviour suite over a socket, with SQLite behind the service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.servers.service import Host

from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract import suite
from holdfast.testing.contract.bench import Bench


@pytest.fixture
async def bench(own_host: Host, tmp_path: Path) -> AsyncIterator[Bench]:
    """A remote store by its URL; the clock is the one that the service's store reads."""
    clock = ManualClock()
    place = own_host.place("live", clock, store=f"sqlite:///{tmp_path}/live.db?synchronous=normal")
    bench = Bench(lambda: open_store(place.url), clock)
    await bench.open()
    yield bench
    await bench.close()


globals().update(suite("enqueue", "ack", "hold", "wait", "life"))
