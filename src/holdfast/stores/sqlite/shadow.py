"""Shadow: sources and the rows of their shadows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sized

from holdfast.core.clock import Micros
from holdfast.core.shadow import (
    Shadow,
    ShadowRead,
    ShadowRow,
    ShadowStep,
    SourceRow,
    is_repeat,
    totals,
)
from holdfast.stores.sqlite.bulk import insert_rows
from holdfast.stores.sqlite.enqueue import enqueue_jobs
from holdfast.stores.sqlite.transaction import Transaction

SOURCE = "SELECT source, stamp, state, rows, size FROM sources WHERE tenant = ? AND source = ?"
PAGE = """
    SELECT source, stamp, state, rows, size FROM sources
    WHERE tenant = ? AND source > ? ORDER BY source LIMIT ?
"""
NUMBER = "SELECT count(*) FROM sources WHERE tenant = ?"
PUT = """
    INSERT OR REPLACE INTO sources (tenant, source, stamp, state, rows, size)
    VALUES (?, ?, ?, ?, ?, ?)
"""
DELETE = "DELETE FROM sources WHERE tenant = ? AND source = ?"
ROW = "SELECT id, version, number, seen, gone, body, at FROM shadow WHERE tenant = ? AND source = ?"
SIZES = "SELECT id, size FROM shadow WHERE tenant = ? AND source = ? AND id IN ({})"
ROW_PUT = """
    INSERT OR REPLACE INTO shadow
        (tenant, source, id, version, number, seen, gone, at, size, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ROW_DROP = "DELETE FROM shadow WHERE tenant = ? AND source = ? AND id = ?"


def apply_step(transaction: Transaction, step: ShadowStep) -> Shadow:
    """Applies the step. What raises is rolled back by the writer."""
    connection, now = transaction.connection, transaction.now
    name = (step.tenant, step.source)
    found = connection.execute(SOURCE, name).fetchone()
    before = None if found is None else SourceRow(*found)
    if is_repeat(step, None if before is None else before.stamp):
        return Shadow(now)
    ids = [*(row.id for row in step.put), *step.drop]
    sizes = dict(connection.execute(SIZES.format(_marks(ids)), (*name, *ids)).fetchall())
    (number,) = connection.execute(NUMBER, (step.tenant,)).fetchone()
    rows, size = totals(step, before, sizes, number)
    for answer in enqueue_jobs(transaction, step.jobs):
        if answer.error is not None:
            raise answer.error
    if step.state is None:
        connection.execute(DELETE, name)
        return Shadow(now)
    connection.execute(PUT, (*name, step.stamp, step.state, rows, size))
    connection.executemany(ROW_DROP, [(*name, id) for id in step.drop])
    put = [
        (*name, row.id, row.version, row.number, row.seen, row.gone, now, row.size, row.body)
        for row in step.put
    ]
    insert_rows(connection, ROW_PUT, put)
    return Shadow(now)


def read_shadow(connection: sqlite3.Connection, read: ShadowRead, now: Micros) -> Shadow:
    """What is there in one snapshot."""
    if not read.source:
        values = (read.tenant, read.after or "", read.limit)
        return Shadow(now, [SourceRow(*one) for one in connection.execute(PAGE, values)])
    name = (read.tenant, read.source)
    found = connection.execute(SOURCE, name).fetchone()
    if found is None:
        return Shadow(now)
    rows: list[ShadowRow] = []
    if read.ids:
        query = f"{ROW} AND id IN ({_marks(read.ids)})"
        by_id = {one[0]: _row(one) for one in connection.execute(query, (*name, *read.ids))}
        rows += [by_id[id] for id in dict.fromkeys(read.ids) if id in by_id]
    if read.after is not None:
        page = connection.execute(
            f"{ROW} AND id > ? ORDER BY id LIMIT ?", (*name, read.after, read.limit)
        )
        rows += map(_row, page)
    return Shadow(now, [SourceRow(*found)], rows)


def _row(one: tuple[str, str, int, int, int, bytes, Micros]) -> ShadowRow:
    id, version, number, seen, gone, body, at = one
    return ShadowRow(id, version, number, seen, bool(gone), body, at)


def _marks(values: Sized) -> str:
    return ", ".join("?" * len(values))
