"""The log keeps runs: many facts in one row. Readers must not notice."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.errors import IdConflict
from holdfast.core.job import Completed, EventKind
from holdfast.core.lifecycle import decide
from holdfast.store import Claim
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, LEASE, job, rules


async def _complete_all(store: SqliteStore, limit: int) -> None:
    claim = Claim(worker="w", nonce="nonce", limit=limit, lease_us=LEASE)
    leases = await store.claim(claim)
    await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])


async def test_the_facts_of_a_call_are_one_row(store: SqliteStore, path: Path) -> None:
    """A hundred jobs that come, run and end together cost three rows, not three hundred."""
    await store.enqueue([job(f"j{number}") for number in range(100)])
    await _complete_all(store, 100)

    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT kind, number, cursor FROM events ORDER BY cursor").fetchall()
    assert rows == [("enqueued", 100, 100), ("leased", 100, 200), ("completed", 100, 300)]


async def test_a_page_that_ends_inside_a_run_goes_on_there(store: SqliteStore) -> None:
    """P14: every fact is read once, in order, whatever the size of the pages."""
    await store.enqueue([job(f"j{number}") for number in range(10)])

    seen, after = [], 0
    for _ in range(4):
        page = await store.events(None, after, 3)
        seen += [(event.cursor, event.job_id) for event in page.events]
        after = page.cursor

    assert seen == [(number + 1, f"j{number}") for number in range(10)]


@pytest.mark.parametrize("id", ["plain", 'with "quotes"', "b\\ack", "ünï", "a"])
async def test_the_history_of_a_job_is_found_in_runs_of_many(store: SqliteStore, id: str) -> None:
    """P14: by its whole id, also where that reads otherwise as JSON or is part of another's."""
    await store.enqueue([job("first"), job(id), job(f'{id}"{id}'), job(f"{id}{id}")])
    await _complete_all(store, 4)

    page = await store.events(ACME, 0, 10, id)

    kinds = [EventKind.ENQUEUED, EventKind.LEASED, EventKind.COMPLETED]
    assert [(event.kind, event.job_id) for event in page.events] == [(k, id) for k in kinds]
    assert [event.cursor for event in page.events] == [2, 6, 10]


async def test_a_prune_takes_whole_runs(store: SqliteStore) -> None:
    """A limit that falls into a run takes all of it, and says that there may be more."""
    await store.enqueue([job("a"), job("b"), job("c")])
    await store.enqueue([job("d")])

    first = await store.prune(2, 0)
    second = await store.prune(2, 0)

    assert (first.events, first.more) == (3, True)
    assert (second.events, second.more) == (1, False)


async def test_known_ids_in_a_batch_are_told_apart(store: SqliteStore) -> None:
    """P12: plain jobs are written together; each still hears whether it is new."""
    await store.enqueue([job("known"), job("other", type="email")])
    batch = [job(f"j{number}", rules=rules(keep_us=0)) for number in range(40)]
    batch[5:5] = [job("known"), job("j3"), job("other", type="invoice")]

    answers = await store.enqueue(batch)

    assert [answer.id for answer in answers] == [one.id for one in batch]
    assert [number for number, one in enumerate(answers) if not one.created] == [5, 6, 7]
    assert isinstance(answers[7].error, IdConflict)
    facts = (await store.events(None, 2, 100)).events
    assert [event.job_id for event in facts] == [f"j{number}" for number in range(40)]
    assert (await store.count(None))[0].counts == {"enqueued": 42}
