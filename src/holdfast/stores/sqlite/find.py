"""Find: pages of jobs by selection. Only reads, on a connection that does not block the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.journal import Journal, fitting
from holdfast.store import Find, Page, Ref, Selection
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.journal import read_bytes, read_journals
from holdfast.stores.sqlite.rows import record


def find_jobs(connection: sqlite3.Connection, find: Find, now: Micros) -> Page:
    if find.limit == 0:
        return Page([], find.after)
    condition, values = where(find.select, now)
    way = "DESC" if find.newest_first else "ASC"
    # Ids are looked up one by one, then sorted: `+` keeps the planner from walking the tenant.
    order = "+seq" if find.select.ids else "seq"
    if find.after is not None:
        condition += f" AND seq {'<' if find.newest_first else '>'} ?"
        values.append(find.after)
    rows = connection.execute(
        f"SELECT {sql.RECORD} FROM jobs WHERE {condition} ORDER BY {order} {way} LIMIT ?",
        (*values, find.limit + 1),
    ).fetchall()
    jobs = [record(row, now) for row in rows[: find.limit]]
    journals: dict[int, Journal] = {}
    if find.journals:
        sizes = read_bytes(connection, [job.seq for job in jobs])
        jobs = jobs[: fitting(sizes.get(job.seq, 0) for job in jobs)]
        journals = read_journals(connection, [job.seq for job in jobs])
    cursor = jobs[-1].seq if len(rows) > len(jobs) else None
    named = {Ref(job.tenant, job.id): journals[job.seq] for job in jobs if job.seq in journals}
    return Page(jobs, cursor, named)


# -- selections ------------------------------------------------------------------------------------


def where(select: Selection, now: Micros) -> tuple[str, list[Any]]:
    """The selection as a condition and its values."""
    conditions: list[str] = []
    values: list[Any] = []

    def narrow(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if select.tenant is not None:
        narrow("tenant = ?", select.tenant)
    for column, names in (
        ("id", select.ids),
        ("queue", select.queues),
        ("type", select.types),
        ("group_name", select.groups),
        ("reason", [reason.value for reason in select.reasons]),
    ):
        if names:
            narrow(f"{column} IN ({_marks(names)})", *names)
    if select.key is not None:
        narrow("key = ?", select.key)
    if select.created_from is not None:
        narrow("created_at >= ?", select.created_from)
    if select.created_before is not None:
        narrow("created_at < ?", select.created_before)
    if select.failed_from is not None:
        narrow("state = 'failed' AND finished_at >= ?", select.failed_from)
    if select.failed_before is not None:
        narrow("state = 'failed' AND finished_at < ?", select.failed_before)
    for tag in select.tags:
        # Unreadable tags match nothing.
        one = "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)"
        narrow(f"CASE WHEN json_valid(tags) THEN {one} END", tag)
    if select.states:
        narrow(*_in_states(select.states, now))
    return " AND ".join(conditions) or "1", values


def _in_states(states: Sequence[State], now: Micros) -> tuple[Any, ...]:
    """`lifecycle.seen` as a condition: a due job is enqueued, whatever its row says."""
    ways: list[str] = []
    values: list[Micros] = []
    # Literals, not parameters: otherwise partial indexes over one state are not used.
    fixed = sorted({state.value for state in states} - {"scheduled", "retrying"})
    if len(fixed) == 1:
        ways.append(f"state = '{fixed[0]}'")
    elif fixed:
        ways.append(f"state IN ({', '.join(map(repr, fixed))})")
    for state in (State.SCHEDULED, State.RETRYING):
        if state in states:
            ways.append(f"(state = '{state.value}' AND run_at > ?)")
            values.append(now)
    if State.ENQUEUED in states:
        ways.append("(state IN ('scheduled', 'retrying') AND run_at <= ?)")
        values.append(now)
    condition = ways[0] if len(ways) == 1 else f"({' OR '.join(ways)})"
    return condition, *values


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
