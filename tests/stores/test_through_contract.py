"""Stores behind mappers pass the behaviour suite: what jobs carry comes back as it was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.payload.mirror import Mirror

from holdfast.config import Config
from holdfast.core.edge_bounds import OFFLOADED_MAX
from holdfast.dispatch import Dispatcher
from holdfast.encryption import Keys, encrypted
from holdfast.mapped_store import offloading
from holdfast.payload.app_blobs import AppBlobs
from holdfast.payload.bucket import open_bucket
from holdfast.payload.through import ThroughStore
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract import TOPICS, suite
from holdfast.testing.contract.bench import Bench


def behind(store: Dispatcher, what: str) -> Dispatcher:
    """The store behind two mappers that change every value, behind the encryption, or with a bucket
    that holds blobs and takes larger bodies than the suite has.
    """
    if what == "mirrors":
        return Dispatcher(ThroughStore(ThroughStore(store.inner, Mirror()), Mirror()))
    if what == "blobs":
        config = Config(blob_above=OFFLOADED_MAX)
        return offloading(store, AppBlobs(open_bucket("memory://"), config))
    return encrypted(store, Keys({"m1": b"k" * 32}, require=True))


@pytest.fixture(params=["memory-mirrors", "memory-encrypted", "sqlite-encrypted", "sqlite-blobs"])
async def bench(request: Any, tmp_path: Path) -> AsyncIterator[Bench]:
    """An empty store on a ManualClock, behind mappers."""
    clock = ManualClock()
    kind, what = request.param.split("-")
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/jobs.db"

    def make() -> Dispatcher:
        return behind(open_store(url, clock), what)

    bench = Bench(make, clock)
    await bench.open()
    yield bench
    await bench.close()


BYTES = {"caps", "caps_journals", "journal_bytes", "shadow", "steps_kept"}
"""Topics that count bytes exactly. A store counts the bytes that it stores, which are more."""

globals().update(suite(*(topic for topic in TOPICS if topic not in BYTES)))
