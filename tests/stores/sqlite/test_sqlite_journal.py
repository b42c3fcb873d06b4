"""Journals: usual jobs do not pay for them, they go with their job, and a bad one fails alone."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.sqlite.cost import Cost
from tests.stores.sqlite.tables import rows

from holdfast.core.bounds import STEPS_MAX
from holdfast.core.errors import JournalFull
from holdfast.core.job import Abandoned, Completed, Lease, Reason, State
from holdfast.core.journal import Edge, Entry, EntryKind, OnFailure, new_join
from holdfast.core.lifecycle import decide
from holdfast.store import Act, Claim, Extended, Extension, Ref
from holdfast.stores.sqlite.ack import ack_jobs
from holdfast.stores.sqlite.extend import extend_leases
from holdfast.stores.sqlite.layout import EDGES_OF_ROW
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, LEASE, changing, finding, job, rules

BESIDE = ("entries", "joins", "edges", "releasing", "leftovers")
"""The tables of journals and joins."""


def claim(nonce: str = "n", limit: int = 100) -> Claim:
    return Claim(worker="w", nonce=nonce, limit=limit, lease_us=LEASE)


def extension(lease: Lease, *entries: Entry) -> Extension:
    return Extension(
        tenant=ACME, id=lease.job.id, token=lease.token, lease_us=LEASE, entries=entries
    )


async def write(store: SqliteStore, lease: Lease, *entries: Entry) -> Extended:
    [answer] = await store.extend([extension(lease, *entries)])
    return answer


def step(name: str, value: bytes = b"1") -> Entry:
    return Entry(EntryKind.STEP, name, value)


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount == 1


def test_usual_jobs_touch_no_table_of_journals(cost: Callable[[], Cost]) -> None:
    """P16: neither their enqueue, claim, heartbeat nor ack; only whether edges are left is asked,
    in a query that each claim makes anyway.
    """
    each = cost()
    asked: list[str] = []
    each.connection.set_trace_callback(asked.append)

    each.enqueue([job(f"j{number}") for number in range(10)])
    with each.transaction() as transaction:
        leases = each.claim(transaction)
    with each.transaction() as transaction:
        extend_leases(transaction, [extension(lease) for lease in leases])
    with each.transaction() as transaction:
        ack_jobs(transaction, [decide(Completed(), x.job, x.token, 0.0) for x in leases])

    each.connection.set_trace_callback(None)
    named = re.compile(rf"(?:FROM|INTO|UPDATE|JOIN) ({'|'.join(BESIDE)})\b")
    touching = [(named.findall(one), "FROM reopen" in one) for one in asked if named.search(one)]
    assert len(asked) > 10
    assert touching == [(["releasing"], True)] * len(touching)


async def test_nothing_of_a_journal_outlives_its_job(store: SqliteStore, path: Path) -> None:
    """P16: whether an ack, an operator or upkeep deletes the job."""
    short = rules(keep_us=0)
    edges = (Edge("nobody"),)
    await store.enqueue([job("ack", rules=short), job("prune", rules=short, edges=edges)])
    await store.enqueue([job("delete", edges=edges), job("waits", parents=1, edges=edges)])
    leases = await store.claim(claim())
    assert len(leases) == 3
    for lease in leases:
        await write(store, lease, step("s"), new_join("j", 3), Entry(EntryKind.LOG, "", b"line"))
    await store.ack([decide(Completed(), x.job, x.token, 0.0) for x in leases])
    assert rows(path, "entries") == 4

    await store.change(changing(Act.DELETE, ids=("delete", "waits")))
    await store.prune(100, LEASE)

    assert [rows(path, table) for table in (*BESIDE, "jobs")] == [0] * 6


async def test_a_call_deletes_so_many_rows_and_prune_the_rest(
    store: SqliteStore, path: Path
) -> None:
    """P15: whoever deletes jobs with many edges does not stop the writers for long."""
    edges = tuple(Edge(f"nobody{number}") for number in range(10_000))
    ids = ("a", "b", "c")
    for id in ids:
        await store.enqueue([job(id, edges=edges)])
        await store.cancel([Ref(ACME, id)])
    for number in range(30):
        await store.claim(claim(f"n{number}"))
    assert rows(path, "releasing") == 0

    await store.change(changing(Act.DELETE, ids=ids))

    left = 10_000 // EDGES_OF_ROW
    assert (rows(path, "jobs"), rows(path, "edges"), rows(path, "leftovers")) == (0, left, 1)
    await store.prune(100, LEASE)
    assert (rows(path, "edges"), rows(path, "leftovers")) == (0, 0)


@pytest.mark.parametrize(("column", "value"), [("value", "text"), ("name", b"s"), ("at", "soon")])
async def test_an_entry_that_cannot_be_read_fails_its_job_alone(
    store: SqliteStore, path: Path, column: str, value: object
) -> None:
    """P16, P19: its step might have been done, so the job does not run; its child is told."""
    edge = Edge("child", on_failure=OnFailure.RUN)
    await store.enqueue([job("bad", edges=(edge,)), job("good"), job("child", parents=1)])
    leases = await store.claim(claim())
    for lease in leases:
        await write(store, lease, step("s"), Entry(EntryKind.POSITION, "p", b"0"))
        await store.ack([decide(Abandoned(), lease.job, lease.token, 0.0)])
    of_bad = "kind = 'step' AND seq = (SELECT seq FROM jobs WHERE id = 'bad')"
    damage(path, f"UPDATE entries SET {column} = ? WHERE {of_bad}", value)

    found = await store.claim(claim("again"))
    child = await store.claim(claim("child"))
    page = await store.find(finding(ids=("bad",)))

    assert [lease.job.id for lease in found] == ["good"]
    assert [len(lease.journal) for lease in found] == [2]
    assert [lease.job.id for lease in child] == ["child"]
    assert (page.jobs[0].state, page.jobs[0].reason) == (State.FAILED, Reason.DECODE)


@pytest.mark.parametrize("size", ["{", "[1]", b"\xff", "[1,2,3,4,5]"])
async def test_a_size_that_cannot_be_read_is_counted_again(
    store: SqliteStore, path: Path, size: object
) -> None:
    """P16, P19: the share of the job stays what it is, and the batch goes on."""
    await store.enqueue([job("bad"), job("good")])
    bad, good = await store.claim(claim())
    for start in range(0, STEPS_MAX, 100):
        entries = [step(f"s{number}") for number in range(start, start + 100)]
        assert (await write(store, bad, *entries)).error is None
    damage(path, "UPDATE jobs SET journal = ? WHERE id = 'bad'", size)

    answers = await store.extend(
        [extension(bad, step("more")), extension(bad, step("s1", b"2")), extension(good, step("s"))]
    )

    assert [type(answer.error) for answer in answers] == [JournalFull, type(None), type(None)]
    assert rows(path, "entries") == STEPS_MAX + 1
