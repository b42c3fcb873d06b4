"""The writer: what shares a transaction, what fails alone, and what waits for whom."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.core.errors import InvalidInput, StaleSetting, StoreFull, StoreUnavailable
from holdfast.core.job import Failed, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import BlockerKind, Scope, ScopeSettings, encode
from holdfast.store import Claim, Put, Ref
from holdfast.stores.sqlite import writer
from holdfast.stores.sqlite.connection import open_writer
from holdfast.stores.sqlite.connection_thread import Call
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.transaction import COUNTERS_AHEAD, Transaction
from holdfast.stores.sqlite.writer import Writer
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, finding, job, rules

BOUND_S = 20.0


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection holds the write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def claim(limit: int = 1) -> Claim:
    return Claim(worker="w", nonce="nonce", limit=limit, lease_us=LEASE)


async def test_calls_that_come_together_share_one_commit(path: Path) -> None:
    """One fsync for all of them; the one that fails leaves nothing and spoils nothing."""
    commits: list[Transaction] = []
    options = Options(path=str(path))
    serving = Writer(options, ManualClock(), commits.append)
    insert = "INSERT INTO settings (name, value, version) VALUES (?, x'00', 1)"

    def fail(transaction: Transaction) -> None:
        transaction.execute(insert, ("half",))
        raise StaleSetting(field="version", name="half", version=1, expected=0)

    calls: list[Call[Transaction]] = [
        Call(lambda transaction: transaction.execute(insert, ("a",)).rowcount),
        Call(fail),
        Call(lambda transaction: transaction.execute(insert, ("b",)).rowcount),
    ]
    with closing(open_writer(options)) as connection:
        serving.serve(connection, calls)
        names = connection.execute("SELECT name FROM settings ORDER BY name").fetchall()

    assert len(commits) == 1
    assert [call.answer for call in calls] == [1, None, 1]
    assert isinstance(calls[1].error, StaleSetting)
    assert names == [("a",), ("b",)]


async def test_a_bad_call_fails_alone_among_its_neighbours(store: SqliteStore) -> None:
    """P15: what cannot be stored is refused; the calls in the same transaction are kept."""
    good = [store.enqueue([job(f"g{number}")]) for number in range(20)]
    bad = store.enqueue([job("b1"), job("b2", body={"not": "bytes"})])

    answers = await asyncio.gather(*good[:10], bad, *good[10:], return_exceptions=True)

    assert isinstance(answers.pop(10), InvalidInput)
    assert all(isinstance(answer, list) and answer[0].created for answer in answers)
    ids = {record.id for record in (await store.find(finding())).jobs}
    assert ids == {f"g{number}" for number in range(20)}
    page = await store.events(ACME, 0, 100)
    assert [event.cursor for event in page.events] == list(range(1, 21))


async def test_a_caller_that_gave_up_disturbs_nobody(store: SqliteStore) -> None:
    """A canceled task leaves its call behind; the answer is dropped, the others get theirs."""
    leaving = asyncio.create_task(store.enqueue([job("a")]))
    await asyncio.sleep(0)
    leaving.cancel()

    assert (await store.enqueue([job("b")]))[0].created
    assert leaving.cancelled() or leaving.cancelling()


async def test_loops_of_several_threads_use_one_store(store: SqliteStore) -> None:
    """Every verb may be called from any thread that runs an event loop."""
    made: list[bool] = []

    def other(name: str) -> None:
        async def add() -> None:
            answers = await asyncio.gather(
                *(store.enqueue([job(f"{name}{number}")]) for number in range(25))
            )
            made.extend(answer[0].created for answer in answers)

        asyncio.run(add())

    threads = [threading.Thread(target=other, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(asyncio.to_thread(thread.join, BOUND_S) for thread in threads))

    assert made == [True] * 75
    assert len((await store.find(finding())).jobs) == 75


async def test_an_empty_claim_does_not_ask_for_the_write_lock(
    store: SqliteStore, path: Path
) -> None:
    """Idle workers cost the writers nothing."""
    with locked(path):
        async with asyncio.timeout(BOUND_S):
            assert await store.claim(claim()) == []


async def test_reads_go_on_while_another_process_writes(store: SqliteStore, path: Path) -> None:
    """Readers see the last commit; they never wait for a writer."""
    await store.enqueue([job("a")])

    with locked(path):
        async with asyncio.timeout(BOUND_S):
            assert len((await store.find(finding())).jobs) == 1
            assert (await store.count(ACME))[0].counts == {State.ENQUEUED: 1}


async def test_explaining_an_overdue_job_writes_nothing(store: SqliteStore, path: Path) -> None:
    """Reads never write: what a claim would repair first is counted by time."""
    await store.enqueue([job("a", delay_us=1), job("b", delay_us=1)])

    with locked(path):
        async with asyncio.timeout(BOUND_S):
            explained = await store.explain(Ref(ACME, "b"))

    assert [gate.kind for gate in explained.gates] == [BlockerKind.TURN]
    assert (explained.ahead, explained.tenants) == (1, 1)


# -- in the caller's thread ------------------------------------------------------------------------


async def thread_of(store: SqliteStore, jobs: int = 1) -> int:
    """The thread in which a write of so many jobs runs."""
    assert store._writer is not None
    return await store._writer.write(lambda _: threading.get_ident(), jobs=jobs)


async def test_a_small_write_runs_in_the_callers_thread_while_commits_are_fast(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves two thread switches. Large writes, and all after a slow commit, go to the writer."""
    monkeypatch.setattr(writer, "INLINE_COMMIT_S_MAX", BOUND_S)
    own = threading.get_ident()
    first = [await thread_of(store) for _ in range(writer.FAST_COMMITS)]

    assert own not in first
    assert await thread_of(store) == own
    assert await thread_of(store, writer.INLINE_JOBS_MAX + 1) != own

    monkeypatch.setattr(writer, "INLINE_COMMIT_S_MAX", -1.0)
    assert await thread_of(store) == own
    assert await thread_of(store) != own


async def test_the_writers_thread_gets_its_turn_to_write_the_log_back(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: the log does not grow for ever while all writes run in callers' threads."""
    monkeypatch.setattr(writer, "INLINE_COMMIT_S_MAX", BOUND_S)
    number = writer.FAST_COMMITS + 2 * (writer.INLINE_RUN_MAX + 1)

    threads = [await thread_of(store) for _ in range(number)]

    assert sum(one != threading.get_ident() for one in threads) == writer.FAST_COMMITS + 2


async def test_a_lock_of_another_process_never_blocks_the_callers_loop(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: the writer's thread waits for the lock; the loop goes on meanwhile."""
    monkeypatch.setattr(writer, "INLINE_COMMIT_S_MAX", BOUND_S)
    for number in range(writer.FAST_COMMITS):
        await store.enqueue([job(f"j{number}")])

    with locked(path):
        waiting = asyncio.create_task(store.enqueue([job("a")]))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done

    assert (await waiting)[0].created


async def test_an_error_in_the_callers_thread_leaves_nothing_behind(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call fails, its transaction is rolled back, and the next one works."""
    monkeypatch.setattr(writer, "INLINE_COMMIT_S_MAX", BOUND_S)
    for number in range(writer.FAST_COMMITS):
        await store.enqueue([job(f"j{number}")])

    with pytest.raises(InvalidInput):
        await store.enqueue([job("good"), job("bad", priority=1 << 70)])

    assert (await store.enqueue([job("good")]))[0].created


async def test_a_lock_held_too_long_is_an_error_and_no_end(path: Path) -> None:
    """The wait for other processes is bounded; afterwards the store goes on."""
    store = SqliteStore.from_url(f"sqlite:///{path}?busy_s=0.05")
    await store.open()
    with locked(path), pytest.raises(StoreUnavailable, match="locked"):
        await store.enqueue([job("a")])

    assert (await store.enqueue([job("a")]))[0].created
    await store.close()


async def test_a_full_disk_fails_the_call_and_room_heals_it(store: SqliteStore) -> None:
    """StoreFull says so; what was kept stays, and the next call works once there is room."""
    await store.enqueue([job("kept")])
    await _pages_max(store, 60)

    with pytest.raises(StoreFull, match="full"):
        await store.enqueue([job(f"big{number}", body=bytes(200_000)) for number in range(10)])
    assert {record.id for record in (await store.find(finding())).jobs} == {"kept"}

    await _pages_max(store, 1_000_000)
    assert (await store.enqueue([job("big", body=bytes(200_000))]))[0].created
    assert [lease.job.id for lease in await store.claim(claim(2))] == ["kept", "big"]


async def test_neighbours_of_a_call_that_met_a_full_disk_are_kept(store: SqliteStore) -> None:
    """SQLite drops the whole transaction then: the others run again without the culprit."""
    await _pages_max(store, 60)
    big = [job(f"big{number}", body=bytes(200_000)) for number in range(10)]

    answers = await asyncio.gather(
        store.enqueue([job("a")]),
        store.enqueue(big),
        store.enqueue([job("b")]),
        return_exceptions=True,
    )

    assert isinstance(answers[1], StoreFull)
    assert {record.id for record in (await store.find(finding())).jobs} == {"a", "b"}


async def _pages_max(store: SqliteStore, pages: int) -> None:
    pragma = f"PRAGMA max_page_count = {pages}"
    await store._write(lambda transaction: transaction.execute(pragma).fetchall())


async def test_puts_of_one_call_are_all_kept_or_none(store: SqliteStore) -> None:
    """A stale put undoes the call it is in."""
    with pytest.raises(StaleSetting):
        await store.settings([Put("a", b"1", 0), Put("b", b"2", 7)])

    assert await store.settings(under="") == []


async def test_an_error_text_with_lone_surrogates_does_not_fail_the_ack(
    store: SqliteStore,
) -> None:
    """Handlers quote file names that are no valid text; the job must still be settled."""
    await store.enqueue([job("a", rules=rules(max_attempts=1))])
    (lease,) = await store.claim(claim())

    outcome = Failed(error="no such file: caf\udce9")
    (acked,) = await store.ack([decide(outcome, lease.job, lease.token, 0.0)])

    assert acked.state is State.FAILED
    (record,) = (await store.find(finding())).jobs
    assert record.error == "no such file: caf\\udce9"


async def test_the_nonce_of_another_claim_gives_none_of_its_jobs(store: SqliteStore) -> None:
    """P7: who repeats a claim is given what it asks for and no other tenant's leases."""
    await store.enqueue([job("a"), job("b", tenant=GLOBEX)])
    first = Claim(worker="w", nonce="n", limit=9, lease_us=LEASE)
    assert len(await store.claim(first)) == 2

    mine = await store.claim(msgspec.structs.replace(first, tenants=(GLOBEX,)))
    other = await store.claim(msgspec.structs.replace(first, queues=("other",)))

    assert [lease.job.id for lease in mine] == ["b"]
    assert other == []


async def test_stores_that_write_in_turn_see_each_others_counters(
    store: SqliteStore, path: Path
) -> None:
    """P1: what a writer knows from its last commit ends with the commit of another connection."""
    other = SqliteStore.from_url(f"sqlite:///{path}")
    await other.open()
    try:
        for number, one in enumerate([store, store, other, other, store, other]):
            await one.enqueue([job(f"j{number}")])
    finally:
        await other.close()
    await store.enqueue([job("last")])

    jobs = (await store.find(finding(limit=10))).jobs
    page = await store.events(None, 0, 10)
    seqs, cursors = sorted(one.seq for one in jobs), [event.cursor for event in page.events]
    assert [event.job_id for event in page.events] == [*(f"j{n}" for n in range(6)), "last"]
    assert len(set(seqs)) == len(set(cursors)) == 7
    assert cursors == sorted(cursors)
    assert seqs[-1] <= 7 + 4 * COUNTERS_AHEAD


async def test_counters_are_not_saved_by_each_transaction(store: SqliteStore, path: Path) -> None:
    """They are stored ahead; a store that is opened again starts after all that were used."""
    stored = []
    for number in range(10):
        await store.enqueue([job(f"j{number}")])
        with closing(sqlite3.connect(path)) as file:
            stored.append(file.execute("SELECT seq, cursor, turn FROM counters").fetchone())
    await store.close()
    await store.open()
    await store.enqueue([job("last")])

    assert len(set(stored)) == 1
    (first,) = (await store.find(finding(ids=("last",)))).jobs
    page = await store.events(None, stored[0][1], 10)
    assert first.seq > stored[0][0]
    assert [event.job_id for event in page.events] == ["last"]
    assert page.cursor == page.events[0].cursor


async def test_a_transaction_that_was_rolled_back_uses_no_sequence(store: SqliteStore) -> None:
    """Its numbers are read again: those that it had taken were never stored."""
    await store.enqueue([job("a")])
    with pytest.raises(InvalidInput):
        await store.enqueue([job("b"), job("bad", priority=1 << 70)])

    await store.enqueue([job("c")])

    jobs = (await store.find(finding())).jobs
    assert sorted(one.seq for one in jobs) == [1, 2]


async def test_a_call_that_fails_does_not_empty_the_cache_of_settings(store: SqliteStore) -> None:
    """P19: to read the settings of many tenants again takes long."""
    put = Put(Scope(ACME).name, encode(ScopeSettings(max_running=1)), 0)
    await store.settings([put])
    with pytest.raises(StaleSetting):
        await store.settings([put])

    assert store._writer is not None
    assert store._writer._scope_cache.tenants == {ACME}
