"""A FoundationDB behind one fixture: the engine, and a real cluster where one is named."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
import tests.foundationdb_engine
from tests.foundationdb_engine import Engine, Faults
from tests.foundationdb_engine.cluster import Cluster
from tests.servers.foundationdb import Absent, binding, file_named, is_named

from holdfast.testing import ManualClock


def real() -> Iterator[Cluster]:
    """The cluster that the environment names; the keys of the test are removed afterwards."""
    try:
        file = file_named()
    except Absent as absent:
        pytest.skip(str(absent))
    fdb = binding()
    db = fdb.open(file)
    prefix = b"holdfast test " + os.urandom(8)
    pass_time = time.sleep  # nothing else can be waited for: the time of a cluster
    yield Cluster(db, fdb, prefix, pass_time)
    tr = db.create_transaction()
    tr.clear_range_startswith(prefix)
    tr.commit().wait()


@pytest.fixture(params=["engine", *(["cluster"] if is_named() else [])])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """For the engine and for a real cluster: an empty place for keys."""
    if request.param == "cluster":
        yield from real()
    else:
        clock = ManualClock()
        db = Engine(clock).database()
        yield Cluster(db, tests.foundationdb_engine, b"test ", clock.advance)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Engine:
    """The engine alone, for what a real cluster cannot be told to do."""
    return Engine(clock, faults=Faults(seed=1))
