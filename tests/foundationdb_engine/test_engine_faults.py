"""Injected faults: for the engine alone, which a seed tells what goes wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.foundationdb_engine import Database, Engine, Faults, FDBError, predicates
from tests.foundationdb_engine.faults import Fate

from holdfast.testing import ManualClock


def engine_with(faults: Faults) -> Engine:
    return Engine(ManualClock(), faults=faults)


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


async def answer(future: Any) -> Any:
    """What an asyncio bridge does: wait for the callback, then ask for the answer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    future.on_ready(lambda _: loop.call_soon_threadsafe(done.set_result, None))
    await asyncio.wait_for(done, 10)
    return future.wait()


def stored(db: Database, key: bytes) -> Any:
    tr = db.create_transaction()
    return tr.get(key).value


def commit(db: Database, key: bytes = b"k") -> int:
    """Writes the key; gives the code of the commit, 0 for success."""
    tr = db.create_transaction()
    tr[key] = b"v"
    try:
        tr.commit().wait()
    except FDBError as error:
        return error.code
    return 0


@pytest.mark.parametrize(
    ("code", "fate", "there"),
    [
        (1020, "lost", False),
        (1021, "lost", False),
        (1021, "applied", True),
        (1031, "applied", True),
        (1007, "lost", False),
    ],
)
def test_a_commit_fails_as_planned(code: int, fate: Fate, there: bool) -> None:
    """The caller hears the code; the write is there or not, as the plan says."""
    engine = engine_with(Faults())
    db = engine.database()
    engine.faults.plan("commit", code, fate=fate)

    assert commit(db) == code
    assert engine.keys == there
    assert commit(db) == 0
    assert engine.faults.told == {code: 1}


def test_a_commit_that_timed_out_may_be_done_later() -> None:
    """1031 settles nothing: the write comes after the caller gave up."""
    engine = engine_with(Faults())
    engine.faults.plan("commit", 1031, fate="late")

    assert commit(engine.database()) == 1031
    assert engine.keys == 0
    engine.database().create_transaction().get_read_version()
    assert engine.keys == 1


def test_a_late_commit_is_checked_for_conflicts_like_any_other() -> None:
    """What it read was written since: nothing of it is done."""
    engine = engine_with(Faults())
    db = engine.database()
    engine.faults.plan("commit", 1031, fate="late")
    tr = db.create_transaction()
    tr[b"mine"] = b"1" if not tr[b"k"].present() else b"2"
    with pytest.raises(FDBError):
        tr.commit().wait()
    engine._late, late = [], engine._late
    commit(db)
    engine._late = late

    assert commit(db, b"other") == 0
    assert engine.keys == 2


@pytest.mark.parametrize(("place", "code"), [("read", 1007), ("read", 1009), ("version", 1031)])
def test_a_read_fails_as_planned(place: Any, code: int) -> None:
    """Once; the retry reads."""
    engine = engine_with(Faults())
    engine.faults.plan(place, code)
    tr = engine.database().create_transaction()

    with pytest.raises(FDBError) as told:
        tr.get(b"k").wait()
    assert told.value.code == code
    tr.reset()
    assert tr.get(b"k").value is None


def run(seed: int) -> tuple[list[int], Any, Any]:
    """A hundred counted writes under a storm: the codes, the counts, and the value at the end."""
    engine = engine_with(Faults.storm(seed))
    db = engine.database()
    codes = []
    for _ in range(100):
        tr = db.create_transaction()
        tr.add(b"n", number(1))
        try:
            tr.get(b"k").wait()
            tr.commit().wait()
        except FDBError as error:
            codes.append(error.code)
        else:
            codes.append(0)
    engine.faults.heal()
    value = stored(db, b"n")
    return codes, engine.counts, value


def test_a_seed_tells_the_same_story_each_time() -> None:
    """The same codes, counts and rows; other seeds tell other ones."""
    stories = [run(seed) for seed in range(30)]

    assert stories == [run(seed) for seed in range(30)]
    assert len({tuple(codes) for codes, _, _ in stories}) > 20
    assert {code for codes, _, _ in stories for code in codes} == {0, 1007, 1009, 1020, 1021, 1031}


@pytest.mark.parametrize("seed", range(30))
def test_what_was_acknowledged_is_there_and_what_was_refused_is_not(seed: int) -> None:
    """Only 1021, and 1031 of a commit, leave it open."""
    codes, counts, value = run(seed)
    done = int.from_bytes(value or b"", "little")

    assert codes.count(0) <= done <= codes.count(0) + codes.count(1021) + codes.count(1031)
    assert done == counts.commits


def test_counts_tell_attempts_commits_and_conflicts() -> None:
    """For figures of contention."""
    engine = engine_with(Faults())
    db = engine.database()
    one, two = db.create_transaction(), db.create_transaction()
    for tr in (one, two):
        tr[b"n"] = tr[b"n"].value or b"1"
    one.commit().wait()
    with pytest.raises(FDBError):
        two.commit().wait()
    db.create_transaction().commit()

    counts = engine.counts
    assert (counts.attempts, counts.commits, counts.conflicts, counts.read_only) == (2, 1, 1, 1)
    assert counts.wasted == 0.5


async def test_delayed_answers_let_others_run_in_between() -> None:
    """So that claimers in one event loop meet each other, and none is lost."""
    engine = engine_with(Faults(seed=3, delay=0.9))
    db = engine.database()

    async def count_up() -> None:
        tr = db.create_transaction()
        while True:
            try:
                found = await answer(tr.get(b"n"))
                tr[b"n"] = number(int.from_bytes(found.value or b"", "little") + 1)
                await answer(tr.commit())
            except FDBError as error:
                await answer(tr.on_error(error))
            else:
                return

    await asyncio.gather(*(count_up() for _ in range(32)))
    engine.faults.heal()

    assert stored(db, b"n") == number(32)
    assert engine.counts.conflicts > 10


async def test_a_delayed_run_in_one_loop_repeats_itself() -> None:
    """Turns of the loop are counted, not time."""

    async def story() -> list[int]:
        engine = engine_with(Faults(seed=5, delay=0.7, conflict=0.1))
        db = engine.database()
        finished: list[int] = []

        async def one(name: int) -> None:
            tr = db.create_transaction()
            tr[b"k"] = b"v"
            try:
                await answer(tr.commit())
            except FDBError as error:
                finished.append(error.code)
            finished.append(name)

        await asyncio.gather(*(one(name) for name in range(50)))
        return finished

    first = await story()
    assert first == await story()
    assert [name for name in first if name < 1_000] != list(range(50))


async def test_commits_on_their_way_together_share_versions() -> None:
    """Stamps stay distinct, by the order in the batch; a version that was heard of is closed."""
    engine = engine_with(Faults(seed=1, delay=1.0))
    db = engine.database()
    transactions = [db.create_transaction() for _ in range(300)]
    stamps = []
    for tr in transactions:
        tr.set_versionstamped_key(bytes(10) + bytes(4), b"v")
        stamps.append(tr.get_versionstamp())
    await asyncio.gather(*(answer(future) for future in [tr.commit() for tr in transactions]))

    found = [stamp.value for stamp in stamps]
    versions = {stamp[:8] for stamp in found}
    assert len(set(found)) == 300
    assert len(versions) < 200
    assert len({tr.get_committed_version() for tr in transactions}) == len(versions)


async def test_a_recovery_loses_the_commits_that_are_on_their_way() -> None:
    """1021 for those that were not done yet; the others are there."""
    engine = engine_with(Faults(seed=1, delay=1.0))
    db = engine.database()
    transactions = [db.create_transaction() for _ in range(50)]
    for place, tr in enumerate(transactions):
        tr[b"%d" % place] = b"v"
    futures = [tr.commit() for tr in transactions]
    engine.recover()
    told = await asyncio.gather(*map(answer, futures), return_exceptions=True)
    codes = [error.code for error in told if isinstance(error, FDBError)]

    assert set(codes) == {1021}
    assert 0 < engine.keys == 50 - len(codes) < 50


async def test_a_callback_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the other callbacks are called."""
    db = engine_with(Faults(delay=1.0)).database()
    tr = db.create_transaction()
    future = tr.get_read_version()
    future.on_ready(lambda _: 1 / 0)

    assert await answer(future) > 0
    assert "a callback of a future failed" in caplog.text


def test_blocking_on_a_delayed_answer_has_it_at_once() -> None:
    """There is no thread to wait for; polling counts turns."""
    db = engine_with(Faults(seed=1, delay=1.0)).database()
    tr = db.create_transaction()
    polled = tr.get(b"k")

    assert tr.get_read_version().wait() > 0
    assert [polled.is_ready() for _ in range(5)][-1]


def test_several_threads_may_use_one_engine_with_loops_of_their_own() -> None:
    """Each with its event loop; all that was acknowledged is there."""
    engine = engine_with(Faults(seed=2, delay=0.5))
    db = engine.database()

    async def write(thread: int) -> None:
        for place in range(25):
            tr = db.create_transaction()
            tr[b"%d %d" % (thread, place)] = b"v"
            await answer(tr.commit())

    async def all_threads() -> None:
        work = (asyncio.to_thread(asyncio.run, write(thread)) for thread in range(4))
        await asyncio.gather(*work)

    asyncio.run(all_threads())

    assert engine.keys == 100


def test_predicates_tell_what_may_be_done_about_an_error() -> None:
    """Retried, as far as the code goes; and whether the commit may have been done."""
    retryable = {code for code in range(1_000, 2_300) if predicates.is_retryable(FDBError(code))}
    maybe = {code for code in retryable if predicates.is_maybe_committed(FDBError(code))}

    assert {1007, 1009, 1020, 1021} <= retryable
    assert not {1025, 1031, 1036, 2101} & retryable
    assert maybe == {1021, 1039}
    assert not predicates.is_retryable_not_committed(FDBError(1021))
    assert predicates.is_retryable_not_committed(FDBError(1020))


def test_reads_fail_by_transaction_and_not_by_call() -> None:
    """After a few good ones, and from then on; so a long transaction can succeed as well."""
    engine = engine_with(Faults(seed=1, too_old=0.5))
    db = engine.database()
    stories = []
    for _ in range(40):
        tr = db.create_transaction()
        stories.append([code_of(tr.get(b"k")) for _ in range(100)])

    assert all(story == sorted(story) for story in stories)
    assert all(story[-1] == story[8] for story in stories)
    assert 10 < sum(story[-1] == 1007 for story in stories) < 30


def code_of(future: Any) -> int:
    """The code that the future fails with; 0 if it does not."""
    try:
        future.wait()
    except FDBError as error:
        return error.code
    return 0
