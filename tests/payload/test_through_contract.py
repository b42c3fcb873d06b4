"""Stores behind two mappers pass the behaviour suite: what jobs carry comes back as it was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.payload.mirror import Mirror

from holdfast.dispatch import Dispatcher, inner_of
from holdfast.payload.through import ThroughStore
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract import TOPICS, suite
from holdfast.testing.contract.bench import Bench


@pytest.fixture(params=["memory", "sqlite"])
async def bench(request: Any, tmp_path: Path) -> AsyncIterator[Bench]:
    """An empty store on a ManualClock, behind two mappers."""
    clock = ManualClock()
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"

    def make() -> Dispatcher:
        inner = inner_of(open_store(url, clock))
        return Dispatcher(ThroughStore(ThroughStore(inner, Mirror()), Mirror()))

    bench = Bench(make, clock)
    await bench.open()
    yield bench
    await bench.close()


BYTES = {"caps", "caps_journals", "journal_bytes", "steps_kept"}
"""Topics that count bytes exactly. A store counts the bytes that it stores, which are more."""

globals().update(suite(*(topic for topic in TOPICS if topic not in BYTES)))
