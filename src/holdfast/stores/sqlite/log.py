"""The event log. A row holds a run: facts of one call that differ in nothing but their job.

A claim or an enqueue of a hundred jobs is one row, not a hundred with an index entry each; that is
a fifth of what a job cost the writer. The facts of a run have cursors one after the other, and the
row has that of the last.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.job import Event
from holdfast.store import EventPage
from holdfast.stores.sql_rows import KINDS
from holdfast.stores.sqlite import statements as sql

Head = tuple[Micros, str, str, str, str, int, int, Micros | None, str | None, str | None]
"""(at, kind, tenant, queue, type, attempt, fence, until, note, signed): what the facts of a run
share.
"""

Run = tuple[Head, list[str]]
"""A head, and the ids of its jobs."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode


def write(connection: sqlite3.Connection, runs: list[Run], cursor: int) -> int:
    """Appends the runs after a cursor; returns the last one's."""
    rows = []
    for head, ids in runs:
        cursor += len(ids)
        rows.append((cursor, len(ids), _encode(ids).decode(), *head))
    connection.executemany(sql.EVENT_INSERT, rows)
    return cursor


def read(
    connection: sqlite3.Connection, tenant: str | None, after: int, limit: int, job_id: str | None
) -> EventPage:
    head, floor = connection.execute(sql.EVENT_HEADS).fetchone()
    if after < 0:
        return EventPage([], head, False)
    page: list[Event] = []
    for event in _facts(connection, tenant, after, job_id):
        if len(page) == limit:
            return EventPage(page, page[-1].cursor if page else after, after < floor)
        page.append(event)
    return EventPage(page, head, after < floor)


def _facts(
    connection: sqlite3.Connection, tenant: str | None, after: int, job_id: str | None
) -> Iterator[Event]:
    conditions, values = ["cursor > ?"], list[Any]([after])
    if tenant is not None:
        conditions.append("tenant = ?")
        values.append(tenant)
    if job_id is not None:
        # Finds every run of the job, and hardly another. A million facts of a tenant take 60 ms in
        # runs of a hundred, 170 ms if each stands alone.
        conditions.append("instr(ids, ?)")
        values.append(_encode(job_id).decode())
    rows = connection.execute(
        f"SELECT {sql.RUN} FROM events WHERE {' AND '.join(conditions)} ORDER BY cursor", values
    )
    for last, number, ids, at, kind, *rest in rows:
        of, queue, type, *facts = rest
        for cursor, id in enumerate(_ids(ids, kind), last - number + 1):
            if cursor > after and (job_id is None or id == job_id):
                yield Event(cursor, at, KINDS[kind], of, id, queue, type, *facts)


def _ids(text: str, kind: str) -> list[str]:
    """The jobs of a run; none if it cannot be read, for the log goes on after it."""
    try:
        return _decode(text) if kind in KINDS else []
    except (TypeError, msgspec.MsgspecError):
        return []


def prune(connection: sqlite3.Connection, limit: int, horizon: Micros) -> int:
    """Cuts the log's oldest runs off, and remembers where it begins now.

    Returns how many facts they held: a few more than the limit if that fell into a run.
    """
    gone, floor = 0, None
    # The log is in order of time, so its head is its past; `at` needs no index.
    for cursor, number, at in connection.execute(sql.EVENTS_OLDEST):
        if at > horizon or gone >= limit:
            break
        gone, floor = gone + number, cursor
    if floor is not None:
        connection.execute(sql.PRUNE_EVENTS, (floor,))
        connection.execute(sql.FLOOR_SAVE, (floor,))
    return gone
