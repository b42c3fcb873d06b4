"""What version 2 of the schema kept in packs, as rows. Each job by itself: one that cannot be kept
keeps no other from it.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

TABLES = ("posted", "packs", "contents", "pieces")

_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.json.Encoder().encode

Batch = tuple[str, list[str], list[int], list[bytes]]
"""(head, ids, ats, bodies): the head is what its jobs share, as JSON."""

_INSERT = (
    "INSERT INTO jobs (seq, id, payload, size, run_at, created_at, updated_at, token, tenant,"
    " queue, type, codec, version, state, priority, attempt, fence, max_attempts, lease_until,"
    " worker, keep_us, rules) VALUES (?1, ?2, ?3, length(?3), ?4, ?4, ?4, ?5 || ?1, ?6, ?7, ?8,"
    " ?9, ?10, ?11, ?12, ?13, ?13, ?14, ?15, ?16, ?17, ?18) ON CONFLICT DO NOTHING"
)
_EVENT = (
    "INSERT INTO events (cursor, number, at, kind, tenant, queue, type, attempt, fence, ids)"
    " VALUES (?, ?, ?, 'enqueued', ?, ?, ?, 0, 0, ?)"
)


def unpack(connection: sqlite3.Connection) -> None:
    """Makes rows of packs, of pieces and of what was posted; an id that is known is no new job.

    A batch that cannot be read stays where it is, for `holdfast doctor` to tell.
    """
    for seq, number, taken in connection.execute("SELECT seq, number, taken FROM packs").fetchall():
        if _unpack(connection, seq, number, taken):
            for table in ("packs", "contents", "pieces"):
                column = "pack" if table == "pieces" else "seq"
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (seq,))
    for (n,) in connection.execute("SELECT n FROM posted ORDER BY n").fetchall():
        if _file(connection, n):
            connection.execute("DELETE FROM posted WHERE n = ?", (n,))
    for table in TABLES:
        if not unread(connection, table):
            connection.execute(f"DROP TABLE {table}")


def unread(connection: sqlite3.Connection, table: str) -> int:
    """How many batches of a table could not be read; 0 when it is gone, as it should be."""
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if connection.execute(known, (table,)).fetchone() is None:
        return 0
    found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return found


def _unpack(connection: sqlite3.Connection, seq: int, number: int, taken: int) -> bool:
    query = "SELECT head, at, ids, ats, bodies FROM contents WHERE seq = ?"
    batch = _read(connection.execute(query, (seq,)).fetchone())
    if batch is None:
        return False
    held = connection.execute(
        "SELECT seq, number, token, until, worker, done FROM pieces WHERE pack = ?", (seq,)
    ).fetchall()
    for first, its_number, token, until, worker, done in held:
        ended = int.from_bytes(done, "little")
        for at in range(its_number):
            if not ended >> at & 1:
                _insert(connection, first + at, batch, first - seq + at, (token, until, worker))
    for index in range(taken, number):
        _insert(connection, seq + index, batch, index)
    return True


def _file(connection: sqlite3.Connection, n: int) -> bool:
    query = "SELECT head, at, ids, NULL, bodies FROM posted WHERE n = ?"
    batch = _read(connection.execute(query, (n,)).fetchone())
    if batch is None:
        return False
    (seq, cursor) = connection.execute("SELECT seq, cursor FROM heads").fetchone()
    new = [
        index
        for index in range(len(batch[1]))
        if _insert(connection, seq + 1 + index, batch, index)
    ]
    if new:
        tenant, queue, type, *_ = msgspec.json.decode(batch[0])
        ids = _encode([batch[1][index] for index in new]).decode()
        cursor += len(new)
        values = (cursor, len(new), batch[2][0], tenant, queue, type, ids)
        connection.execute(_EVENT, values)
    connection.execute("UPDATE heads SET seq = ?, cursor = ?", (seq + len(batch[1]), cursor))
    return True


def _read(row: Any) -> Batch | None:
    """The jobs of a batch; None if it cannot be read."""
    try:
        head, at, ids, ats, bodies = row
        names, payloads = _decode(ids), _decode(bodies)
        instants = [at] * len(names) if ats is None else _decode(ats)
        if len(msgspec.json.decode(head)) != 9 or not len(names) == len(payloads) == len(instants):
            return None
    except (TypeError, ValueError, msgspec.MsgspecError):
        return None
    return head, names, instants, payloads


def _insert(
    connection: sqlite3.Connection,
    seq: int,
    batch: Batch,
    index: int,
    held: tuple[str, int, str] | None = None,
) -> bool:
    """True when the job is a row now; False when its id is another's."""
    head, ids, ats, bodies = batch
    tenant, queue, type, codec, version, priority, most, keep_us, rules = msgspec.json.decode(head)
    token, until, worker = held or (None, None, None)
    state, attempt = ("enqueued", 0) if held is None else ("processing", 1)
    values = (
        *(seq, ids[index], bodies[index], ats[index], token, tenant, queue, type, codec, version),
        *(state, priority, attempt, most, until, worker, keep_us, rules),
    )
    return connection.execute(_INSERT, values).rowcount > 0


def batches_unread(connection: sqlite3.Connection) -> int:
    """How many batches wait to be read by somebody who can."""
    return sum(unread(connection, table) for table in ("posted", "packs"))
