"""Versions as a clock, recoveries, a cluster that is down: properties of the engine alone."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, FDBError

from holdfast.testing import ManualClock


def version(engine: Engine) -> int:
    tr = engine.database().create_transaction()
    found: int = tr.get_read_version().wait()
    return found


def write(engine: Engine, value: bytes = b"v") -> int:
    tr = engine.database().create_transaction()
    tr[b"k"] = value
    tr.commit().wait()
    return tr.get_committed_version()


def code_of(future: Any) -> int:
    """The code that the future fails with; 0 if it does not."""
    try:
        future.wait()
    except FDBError as error:
        return error.code
    return 0


def test_versions_run_at_a_million_a_second(engine: Engine, clock: ManualClock) -> None:
    """Of the clock that the engine was given."""
    first = write(engine)
    clock.advance(15)

    assert abs(write(engine) - first - 15_000_000) <= 1


def test_an_idle_cluster_moves_in_steps_of_two_seconds(engine: Engine, clock: ManualClock) -> None:
    """In between every request gets the same version, up to 2 s behind."""
    write(engine)
    seen = []
    for _ in range(400):
        clock.advance(0.1)
        seen.append(version(engine))

    steps = {after - before for before, after in pairwise(seen)} - {0}
    assert steps == {2_000_000}
    assert 18 <= len(set(seen)) <= 21


def test_writes_refresh_the_version(engine: Engine, clock: ManualClock) -> None:
    """One write each half second makes steps of half a second."""
    first = write(engine)
    for _ in range(4):
        clock.advance(0.5)
        write(engine)

    assert abs(version(engine) - first - 2_000_000) <= 4


def test_a_transaction_lives_for_five_seconds(engine: Engine, clock: ManualClock) -> None:
    """Then 1007, for a read and for a commit; one of an idle cluster may live a step longer."""
    db = engine.database()
    write(engine)
    reader, writer = db.create_transaction(), db.create_transaction()
    for tr in (reader, writer):
        tr.get_read_version().wait()
    writer[b"mine"] = b"1"
    clock.advance(5.5)

    assert code_of(reader.get(b"k")) == 0
    write(engine)
    assert code_of(reader.get(b"k")) == 1007
    assert code_of(writer.commit()) == 1007


def test_a_recovery_jumps_by_a_hundred_million_versions(engine: Engine, clock: ManualClock) -> None:
    """Afterwards they run at the same pace from there, never back; old transactions are too old."""
    before = write(engine)
    tr = engine.database().create_transaction()
    tr.get_read_version().wait()
    tr[b"mine"] = b"1"
    engine.recover()
    after = version(engine)
    clock.advance(2)

    assert abs(after - before - 100_000_000) <= 1
    assert abs(version(engine) - after - 2_000_000) <= 1
    assert code_of(tr.commit()) == 1007


def test_a_watch_outlives_a_recovery(engine: Engine) -> None:
    """The next change still fires it."""
    tr = engine.database().create_transaction()
    watch = tr.watch(b"k")
    tr.commit().wait()
    engine.stop()
    engine.start()

    assert not watch.is_ready()
    write(engine)
    assert watch.is_ready()


async def test_a_cluster_that_is_down_answers_nothing_but_by_time_out(engine: Engine) -> None:
    """1031 with one; without, the call waits, and is answered after the start."""
    db = engine.database()
    write(engine)
    engine.stop()
    hasty, patient = db.create_transaction(), db.create_transaction()
    hasty.options.set_timeout(10)
    short, long = hasty.get(b"k"), patient.get(b"k")

    assert code_of(await settled(short)) == 1031
    assert not long.is_ready()
    engine.start()
    assert long.value == b"v"


async def settled(future: Any) -> Any:
    """The future, once it is ready: the bridge from its callback to this loop."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    future.on_ready(lambda _: loop.call_soon_threadsafe(finish))
    await asyncio.wait_for(done, 10)
    return future


def test_commits_on_their_way_when_it_goes_down_are_of_unknown_result(engine: Engine) -> None:
    """1021; none of them was applied, all acknowledged ones are there."""
    db = engine.database()
    write(engine, b"acknowledged")
    engine.stop()
    transactions = [db.create_transaction() for _ in range(50)]
    futures = []
    for number, tr in enumerate(transactions):
        tr[b"lost %d" % number] = b"v"
        futures.append(tr.commit())
    engine.start()

    assert {code_of(future) for future in futures} == {1021}
    assert engine.keys == 1


def test_old_values_are_dropped_when_nobody_can_see_them(
    engine: Engine, clock: ManualClock
) -> None:
    """Those that an open transaction sees stay; the rest goes by number and by age."""
    db = engine.database()
    write(engine, b"first")
    held = db.create_transaction()
    held.get_read_version().wait()
    for number in range(2_000):
        write(engine, b"%d" % number)

    assert held[b"k"].value == b"first"
    assert engine._storage.past == 2_000
    del held
    write(engine)
    assert engine._storage.past <= 256
    clock.advance(60)
    write(engine)
    assert engine._storage.past <= 1


@pytest.mark.parametrize("rows", [1, 3_000])
def test_cleared_keys_leave_nothing_behind(engine: Engine, clock: ManualClock, rows: int) -> None:
    """A queue that was worked off is as quick to walk over as a new one."""
    db = engine.database()
    for first in range(0, rows, 100):
        tr = db.create_transaction()
        for number in range(first, min(first + 100, rows)):
            tr[b"row %05d" % number] = b"v"
        tr.commit().wait()
    tr = db.create_transaction()
    tr.clear_range(b"", b"\xff")
    tr.commit().wait()
    clock.advance(60)
    write(engine)

    assert engine.keys == 1
    assert engine._storage._keys == [b"k"]
