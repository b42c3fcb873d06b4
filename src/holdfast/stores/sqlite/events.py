"""Events: the log. A row holds a run: events of one call that differ in nothing but their job.

A claim or an enqueue of a hundred jobs of a line is one row, not a hundred with an index entry
each, which was a fifth of the writer's time. The events of a run have consecutive cursors; the row
has the last one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import Event
from holdfast.store import EventPage
from holdfast.stores.sql_rows import KINDS
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import insert_rows

Head = tuple[Micros, str, str, str, str, int, int, Micros | None, str | None, str | None]
"""(at, kind, tenant, queue, type, attempt, fence, until, note, signed): what the events of a run
share.
"""

Run = tuple[Head, list[str]]
"""A head, and the ids of its jobs."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode


def write_events(connection: sqlite3.Connection, runs: list[Run], cursor: int) -> int:
    """Appends the runs after a cursor; returns the last one's."""
    rows = []
    for head, ids in runs:
        cursor += len(ids)
        rows.append((cursor, len(ids), _encode(ids).decode(), *head))
    insert_rows(connection, sql.EVENT_INSERT, rows)
    return cursor


def read_events(
    connection: sqlite3.Connection, tenant: str | None, after: int, limit: int, job_id: str | None
) -> EventPage:
    head, floor = connection.execute(sql.EVENT_BOUNDS).fetchone()
    if after < 0:
        return EventPage([], head, False)
    page: list[Event] = []
    for event in _events(connection, tenant, after, job_id):
        if len(page) == limit:
            return EventPage(page, page[-1].cursor if page else after, after < floor)
        page.append(event)
    return EventPage(page, head, after < floor)


def _events(
    connection: sqlite3.Connection, tenant: str | None, after: int, job_id: str | None
) -> Iterator[Event]:
    conditions, values = ["cursor > ?"], list[Any]([after])
    if tenant is not None:
        conditions.append("tenant = ?")
        values.append(tenant)
    if job_id is not None:
        # Finds every run of the job and hardly any other. A million events of a tenant take 60 ms
        # in runs of a hundred, 170 ms in runs of one.
        conditions.append("instr(ids, ?)")
        values.append(_encode(job_id).decode())
    rows = connection.execute(
        f"SELECT {sql.RUN} FROM events WHERE {' AND '.join(conditions)} ORDER BY cursor", values
    )
    for last, number, ids, at, kind, *rest in rows:
        of, queue, type, *more = rest
        for cursor, id in enumerate(_ids(ids, kind), last - number + 1):
            if cursor > after and (job_id is None or id == job_id):
                yield Event(cursor, at, KINDS[kind], of, id, queue, type, *more)


def _ids(text: str, kind: str) -> list[str]:
    """The jobs of a run; none if it cannot be read: the log continues after it."""
    try:
        return _decode(text) if kind in KINDS else []
    except (TypeError, msgspec.MsgspecError):
        return []


def prune_events(connection: sqlite3.Connection, limit: int, horizon: Micros) -> int:
    """Deletes the oldest runs of the log, and stores where it begins now.

    Returns how many events they held, which may be a few more than the limit: runs are not split.
    """
    gone, floor = 0, None
    # The log is in order of time, so `at` needs no index.
    for cursor, number, at in connection.execute(sql.EVENTS_OLDEST):
        if at > horizon or gone >= limit:
            break
        gone, floor = gone + number, cursor
    if floor is not None:
        connection.execute(sql.PRUNE_EVENTS, (floor,))
        connection.execute(sql.FLOOR_SAVE, (floor,))
    return gone
