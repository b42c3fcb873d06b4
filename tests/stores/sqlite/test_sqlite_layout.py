"""The layout: no claim walks over what it cannot take, nothing is left behind."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.job import Completed, State
from holdfast.core.lifecycle import decide
from holdfast.store import Act, Change, Claim
from holdfast.stores.sqlite import find
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.connection import open_writer
from holdfast.stores.sqlite.layout import INLINE_MAX
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import LEASE, finding, job, rules, select


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(Options(path=str(path)))) as connection:
        yield connection


def claim(limit: int = 1, number: int = 0) -> Claim:
    return Claim(worker="w", nonce=f"nonce{number}", limit=limit, lease_us=LEASE)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("TAKE", "jobs_ready"),
        ("STARTABLE", "jobs_ready"),
        ("TENANTS", "tenants_turn"),
        ("OPEN_LINES", "lines_turn"),
        ("RING", "lines_ring"),
        ("RING_BACK", "lines_out"),
        ("CLAIMS_DROP", "claims_until"),
        ("PAST_SLOTS", "holds_tenant"),
        ("PRUNE_PARTS", "counts_idle"),
        ("GRANTABLE", "jobs_gated"),
        ("GRANTED", "jobs_gated"),
        ("GRANTED_LAST", "jobs_gated"),
        ("WAITING_QUEUE", "jobs_gated"),
        ("GRANTED_QUEUE", "jobs_gated"),
        ("HEAD", "jobs_order"),
        ("TYPE_ASIDE", "jobs_aside"),
        ("FIRST_ASIDE", "jobs_aside"),
        ("NEXT_ASIDE", "jobs_aside"),
        ("WAITING", "aside_turn"),
        ("ANY_WAITING", "aside_turn"),
        ("WAITING_LINES", "aside_line"),
        ("RESTING_IN", "counts_resting"),
        ("RESTING_OF", "counts_looked"),
        ("TIER_USERS", "settings_tier"),
        ("OLDEST", "jobs_ages"),
        ("PROMOTABLE", "jobs_due"),
        ("SLOTS_PAST", "holds_slots"),
        ("PRUNE_COUNTS", "counts_idle"),
        ("PRUNE_HOLDS", "holds_until"),
        *(("NEXT", index) for index in ("jobs_due", "jobs_held", "jobs_ttl", "reopen_at")),
        ("RESCUE", "jobs_held"),
        ("RETIRE", "jobs_ttl"),
        ("ROW_BY_ID", "jobs_name"),
        ("PRUNABLE", "jobs_done"),
        ("PAST_KEYS", "keys_until"),
    ],
)
def test_a_hot_statement_uses_its_index(
    connection: sqlite3.Connection, name: str, index: str
) -> None:
    """P9: a partial index is used only if its condition is met word for word; no plan may sort."""
    plan = _plan(connection, getattr(sql, name, None) or getattr(scope_sql, name))

    assert f"INDEX {index}" in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    ("narrow", "index"),
    [
        ({}, "jobs_tenant"),
        ({"ids": ("a", "b")}, "jobs_name"),
        ({"groups": ("g",)}, "jobs_group"),
        ({"key": "k"}, "jobs_key"),
        ({"states": (State.FAILED,)}, "jobs_dead"),
    ],
)
def test_a_page_of_a_tenant_reads_only_its_own_rows(
    connection: sqlite3.Connection, narrow: dict[str, Any], index: str
) -> None:
    """P7: how much other tenants have does not show in the time of an answer."""
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    find.find_jobs(connection, finding(**narrow), 0)
    connection.set_trace_callback(None)

    assert f"INDEX {index}" in _plan(connection, asked[0])


def _plan(connection: sqlite3.Connection, query: str) -> str:
    numbered = {int(number) for number in re.findall(r"\?(\d+)", query)}
    marks = max(numbered) if numbered else query.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {query}", (None,) * marks).fetchall()
    return "; ".join(row[3] for row in rows)


async def test_a_large_payload_comes_back_whole_and_goes_with_its_job(
    store: SqliteStore, path: Path
) -> None:
    """It is kept apart from the row; claim, find and replay bring it along."""
    body = bytes(range(256)) * 1000
    assert len(body) > INLINE_MAX
    await store.enqueue([job("a", body=body), job("b", body=b"", rules=rules(keep_us=0))])

    leases = await store.claim(claim(2))
    assert [lease.job.envelope.body for lease in leases] == [body, b""]
    await store.ack([decide(Completed(), x.job, x.token, 0.0) for x in leases])
    await store.change(Change(select=select(), act=Act.REPLAY))
    replay, origin = (await store.find(finding())).jobs
    assert replay.envelope.body == origin.envelope.body == body

    await store.change(Change(select=select(), act=Act.DELETE))
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM bodies").fetchone() == (0,)


async def test_a_sequence_number_never_returns(store: SqliteStore) -> None:
    """It is part of the tokens: with a number used again, an old token could fit a new job."""
    await store.enqueue([job("a"), job("b")])
    await store.change(Change(select=select(), act=Act.DELETE))
    await store.close()
    await store.open()
    await store.enqueue([job("c")])

    (record,) = (await store.find(finding())).jobs
    assert record.seq > 2


async def test_event_cursors_never_return_after_a_prune(store: SqliteStore) -> None:
    """P14: a reader that stopped at a cursor must not miss what comes after it."""
    await store.enqueue([job("a"), job("b")])
    pruned = await store.prune(10, 0)
    await store.enqueue([job("c")])

    page = await store.events(None, 2, 10)
    assert pruned.events == 2
    assert [event.cursor for event in page.events] == [3]
    assert (await store.events(None, 1, 10)).lost


async def test_jobs_that_outlived_their_time_leave_the_order(path: Path) -> None:
    """P9: a thousand expired heads do not hide, nor slow down, the job behind them."""
    clock = ManualClock()
    store = SqliteStore.from_url(f"sqlite:///{path}", clock)
    await store.open()
    await store.enqueue([job(f"old{number}", ttl_us=5_000_000) for number in range(1000)])
    clock.advance(5)
    await store.enqueue([job("new")])

    leases = await store.claim(claim(10))

    assert [lease.job.id for lease in leases] == ["new"]
    with closing(sqlite3.connect(path)) as file:
        ready = file.execute(f"SELECT count(*) FROM jobs WHERE {sql.READY}").fetchone()
    assert ready == (0,)
    assert len(await store.expired(1000)) == 1000
    assert (await store.count(None))[0].counts == {State.ENQUEUED: 1000, State.PROCESSING: 1}
    await store.close()


async def test_claims_over_many_lines_go_round(store: SqliteStore) -> None:
    """Each line is served before any is served twice, claim after claim."""
    tenants = [f"t{number}" for number in range(7)]
    for queue in ("mail", "audio"):
        for tenant in tenants:
            ids = [f"{queue}-{number}" for number in range(3)]
            await store.enqueue([job(id, tenant=tenant, queue=queue) for id in ids])

    served = []
    for number in range(7):
        leases = await store.claim(claim(2, number))
        served += [(lease.job.tenant, lease.job.queue) for lease in leases]

    assert len(served) == len(set(served)) == 14


def test_what_is_deleted_is_not_written_again(connection: sqlite3.Connection, path: Path) -> None:
    """A large value that goes leaves its pages free as they are: the log grows by a few pages, also
    where the library was built to write zeros over them.
    """
    connection.execute(sql.BODY_INSERT, (1, bytes(1_000_000)))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    connection.execute(sql.BODY_REMOVE, (listed([1]),))

    assert 0 < path.with_name("jobs.db-wal").stat().st_size < 100_000
