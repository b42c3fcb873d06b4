"""What tests of the FoundationDB store share: an engine in the process, and the store on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.foundationdb_engine import Engine

from holdfast.stores.foundationdb import claim_sharing
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench


@pytest.fixture
def engine() -> Engine:
    """A cluster whose clock the test moves."""
    return Engine(ManualClock())


@pytest.fixture
async def bench(engine: Engine) -> AsyncIterator[Bench]:
    """The store on it, opened and empty; its keys begin with `c`."""
    clock = engine.clock
    assert isinstance(clock, ManualClock)
    database = engine.database()
    bench = Bench(lambda: FoundationStore(Options(prefix="c"), clock, database), clock)
    await bench.open()
    yield bench
    await bench.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines rest as soon as a claim finds them without room."""
    monkeypatch.setattr(claim_sharing, "FULL_MAX", 1)
