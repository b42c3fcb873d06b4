"""Packs in the database: how claims take from their front, and how they are opened.

    posted --file--> packs --take--> pieces         (a claim of many jobs that need not be kept)
                           --take--> held rows      (any other claim)
                           --open--> waiting rows   (whatever asks for one of its jobs by name)
                              pieces --open--> held rows

A job that is in a pack has no row in `jobs`. It has its sequence, it is counted, and its enqueue is
in the log. Whatever asks for it by more than its turn opens the pack first, and finds rows as of
any other job.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from holdfast.clock import Micros
from holdfast.store import Ref
from holdfast.stores.sqlite import pack_statements as sql
from holdfast.stores.sqlite import packing
from holdfast.stores.sqlite.chunks import CHUNK
from holdfast.stores.sqlite.packing import (
    Head,
    decode_ats,
    decode_bodies,
    decode_ids,
    encode,
    head_of,
    latest,
    undone,
)
from holdfast.stores.sqlite.transaction import Transaction

Job = tuple[int, str, bytes, Micros]
"""(seq, id, body, at)"""


class Held(NamedTuple):
    """The lease of jobs that a claim took together."""

    token: str
    """What the tokens of its jobs begin with."""
    until: Micros
    worker: str
    at: Micros


class Pack:
    """A pack with its contents, as `pack_statements.PACK` reads it."""

    __slots__ = (
        "_at", "_ats", "_bodies", "_ids", "head", "left", "number", "seq", "size", "taken",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.seq: int
        self.taken: int
        """So many of it are no longer in line."""
        self.left: int
        """So many of it are in line or in pieces."""
        self.size: int
        """Bytes of those that are in line."""
        (
            self.seq, self.number, self.taken, self.left, self.size, head, self._at, self._ats,
            self._ids, self._bodies,
        ) = row  # fmt: skip
        self.head = head_of(head)

    @property
    def place(self) -> tuple[int, int]:
        """(priority, sequence) of its first job in line."""
        return self.head.priority, self.seq + self.taken

    def jobs(self, start: int, end: int) -> list[Job]:
        some = slice(start, end)
        ids = decode_ids(self._ids)[some]
        ats = [self._at] * len(ids) if self._ats is None else decode_ats(self._ats)[some]
        seqs = range(self.seq + start, self.seq + start + len(ids))
        return list(zip(seqs, ids, decode_bodies(self._bodies)[some], ats, strict=True))


# -- taking ----------------------------------------------------------------------------------------


def first(transaction: Transaction, queue: str, tenant: str) -> Pack | None:
    """The pack that comes first in a line."""
    if not transaction.packed:
        return None
    found = transaction.execute(sql.FIRST, (queue, tenant)).fetchone()
    return None if found is None else Pack(found)


def lease(transaction: Transaction, pack: Pack, number: int, held: Held) -> list[Job]:
    """Takes jobs from the front of a pack and keeps them as held."""
    jobs = pack.jobs(pack.taken, pack.taken + number)
    pack.taken += len(jobs)
    pack.size -= sum(len(body) for _, _, body, _ in jobs)
    if pack.head.keep_us > packing.PIECE_KEEP_US_MAX or len(jobs) < packing.PACK_MIN:
        # They will be rows anyway; or so few that a piece would cost them more.
        pack.left -= len(jobs)
        write_rows(transaction, pack.head, jobs, held)
    else:
        sizes = encode([len(body) for _, _, body, _ in jobs])
        piece = (jobs[0][0], pack.seq, len(jobs), *held, sizes, b"")
        transaction.execute(sql.PIECE_INSERT, piece)
        transaction.pieces = True
    _save(transaction, pack)
    return jobs


def _save(transaction: Transaction, pack: Pack) -> None:
    if pack.left:
        values = (pack.taken, pack.left, pack.size, pack.seq)
        transaction.execute(sql.PACK_SAVE, values)
    else:
        drop(transaction, pack.seq)


def drop(transaction: Transaction, seq: int) -> None:
    transaction.execute(sql.PACK_DROP, (seq,))
    transaction.execute(sql.CONTENTS_DROP, (seq,))


# -- opening ---------------------------------------------------------------------------------------


class Found(NamedTuple):
    """Where a job is: which pack, and the piece of it, None while it stands in line."""

    pack: int
    piece: int | None


def find(connection: sqlite3.Connection, ref: Ref) -> Found | None:
    """The pack that a job is in, in line or in a piece; None if it is in none."""
    ways: list[tuple[str, tuple[Any, ...]]] = [(sql.NAMED_LOOSE, (ref.tenant, ref.id))]
    below = latest(ref.id)
    if below is not None:
        ways.append((sql.NAMED_CLOSE, (ref.tenant, ref.id, below)))
    for statement, values in ways:
        for seq, taken, ids in connection.execute(statement, values).fetchall():
            names = decode_ids(ids)
            if ref.id not in names:
                continue
            index = names.index(ref.id)
            piece = None if index >= taken else _piece_of(connection, seq + index)
            if index >= taken or piece is not None:
                return Found(seq, piece)
    return None


def _piece_of(connection: sqlite3.Connection, seq: int) -> int | None:
    """The piece that a job is in which has not ended; None if it is in none."""
    found = connection.execute(sql.PIECE_AT, (seq,)).fetchone()
    if found is None:
        return None
    first, number, done = found
    return int(first) if seq in undone(range(first, first + number), done) else None


def tenants(connection: sqlite3.Connection) -> list[str]:
    """Those that have packs."""
    return [tenant for (tenant,) in connection.execute(sql.TENANTS).fetchall()]


def held_ids(
    connection: sqlite3.Connection, tenant: str, queue: str | None, limit: int
) -> list[str]:
    """Jobs of a tenant, or of one of its queues, that are held in pieces; so many at most."""
    ids: list[str] = []
    for seq, pack, number, done, names in connection.execute(sql.HELD_BY, (tenant, queue)):
        start = seq - pack
        ids += undone(decode_ids(names)[start : start + number], done)
        if len(ids) >= limit:
            break
    return ids[:limit]


def open_named(transaction: Transaction, refs: Iterable[Ref]) -> bool:
    """Opens what these jobs are in, a pack in line or a piece; True if there was one."""
    if not transaction.packed:
        return False
    opened = False
    for ref in refs:
        found = find(transaction.connection, ref)
        if found is None:
            continue
        opened = True
        pack = _pack(transaction, found.pack)
        if found.piece is None:
            _open_line(transaction, pack)
        else:
            _open_piece(transaction, pack, found.piece)
        _save(transaction, pack)
    return opened


def open_front(transaction: Transaction, queue: str, tenant: str, jobs: int) -> None:
    """Opens the first packs of a line, so that its first so many jobs are rows."""
    if transaction.packed:
        found = transaction.execute(sql.FRONT, (queue, tenant))
        _open_all(transaction, _reaching(found, jobs))


def open_these(
    transaction: Transaction, condition: str, values: Sequence[Any], way: str, jobs: int
) -> None:
    """Opens the packs for which the condition holds, by sequence, up to so many jobs."""
    if transaction.packed:
        found = transaction.execute(sql.SEQS.format(condition=condition, way=way), values)
        _open_all(transaction, _reaching(found, jobs))


def any_of(connection: sqlite3.Connection, condition: str, values: Sequence[Any]) -> bool:
    """True when there is a pack for which the condition holds."""
    query = sql.SEQS.format(condition=condition, way="LIMIT 1")
    return connection.execute(query, values).fetchone() is not None


def _reaching(found: Iterable[tuple[int, int]], jobs: int) -> list[int]:
    seqs: list[int] = []
    for seq, number in found:
        if jobs <= 0:
            break
        seqs.append(seq)
        jobs -= number
    return seqs


def _open_all(transaction: Transaction, seqs: list[int]) -> None:
    for seq in seqs:
        open_pack(transaction, seq)


def open_pack(transaction: Transaction, seq: int) -> None:
    """Writes all jobs that are in a pack, and in pieces of it, as rows."""
    pack = _pack(transaction, seq)
    for (piece,) in transaction.execute(sql.PIECES_OF, (seq,)).fetchall():
        _open_piece(transaction, pack, piece)
    _open_line(transaction, pack)
    _save(transaction, pack)


def lapsed(connection: sqlite3.Connection, now: Micros) -> bool:
    """True when the leases of a piece have ended."""
    return connection.execute(sql.LAPSED, (now,)).fetchone() is not None


def open_lapsed(transaction: Transaction, limit: int) -> None:
    """Opens pieces whose leases have ended, up to so many jobs: then they are rescued as others
    are.
    """
    opened = 0
    while opened < limit and transaction.pieces:
        found = transaction.execute(sql.LAPSED, (transaction.now,)).fetchone()
        if found is None:
            return
        pack = _pack(transaction, found[0])
        opened += _open_piece(transaction, pack, found[1])
        _save(transaction, pack)


def _pack(transaction: Transaction, seq: int) -> Pack:
    return Pack(transaction.execute(sql.PACK, (seq,)).fetchone())


def _open_line(transaction: Transaction, pack: Pack) -> None:
    """Writes the jobs that stand in line as waiting rows."""
    jobs = pack.jobs(pack.taken, pack.number)
    write_rows(transaction, pack.head, jobs, None)
    pack.left -= len(jobs)
    pack.taken, pack.size = pack.number, 0


def _open_piece(transaction: Transaction, pack: Pack, piece: int) -> int:
    """Writes the jobs of a piece that are not done as held rows; returns how many they were."""
    row = transaction.execute(sql.PIECE, (piece,)).fetchone()
    seq, number, token, until, worker, at, done = row
    start = seq - pack.seq
    alive = undone(pack.jobs(start, start + number), done)
    write_rows(transaction, pack.head, alive, Held(token, until, worker, at))
    transaction.execute(sql.PIECE_DROP, (seq,))
    pack.left -= len(alive)
    return len(alive)


# -- rows ------------------------------------------------------------------------------------------


def write_rows(
    transaction: Transaction, head: Head, jobs: Sequence[Job], held: Held | None
) -> None:
    """Jobs that are alike as rows of `jobs`: held, or waiting in line."""
    token, until, worker, at = held or (None, None, None, None)
    shared = (
        token,
        head.tenant,
        head.queue,
        head.type,
        head.codec,
        head.version,
        "enqueued" if held is None else "processing",
        head.priority,
        0 if held is None else 1,
        head.max_attempts,
        until,
        worker,
        head.keep_us,
        head.rules,
        at,
    )
    # The driver looks for an adapter of bytes each time: 0.4 us a value.
    rows = [(seq, id, bytearray(body), len(body), at) for seq, id, body, at in jobs]
    for some in _chunks(rows):
        transaction.execute(_insert(len(some)), (*shared, *chain.from_iterable(some)))


def _chunks(rows: list[Any]) -> Iterator[list[Any]]:
    whole = len(rows) - len(rows) % CHUNK
    for start in range(0, whole, CHUNK):
        yield rows[start : start + CHUNK]
    for row in rows[whole:]:
        yield [row]


@cache
def _insert(count: int) -> str:
    return sql.ROWS_INSERT + sql.rows_values(count)
