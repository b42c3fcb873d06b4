"""The journals of jobs: what each remembers. The row of a job tells whether it has one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.core.bounds import ERRORS_MAX, LOGS_MAX, STEPS_MAX
from holdfast.core.clock import Micros
from holdfast.core.job import Lease
from holdfast.core.journal import (
    Edge,
    Entry,
    EntryKind,
    Join,
    Journal,
    Key,
    OnFailure,
    Size,
    join_entry,
    written,
)
from holdfast.stores.sql_rows import Columns
from holdfast.stores.sqlite import journal_statements as sql
from holdfast.stores.sqlite.bulk import insert_rows, listed
from holdfast.stores.sqlite.rows import (
    CREATED_AT,
    JOURNAL,
    PARENTS,
    SEQ,
    Row,
    journal_of_parents,
    size_text,
)
from holdfast.stores.sqlite.transaction import Transaction

DROP_MAX = 20_000
"""About how many rows of deleted jobs one call deletes. `prune` deletes the rest."""
LEFTOVERS_MAX = 1000
"""Deleted jobs whose rows one `prune` looks up."""
ROW_BYTES = 1024
"""Bytes of values that take as long to delete as a row."""

Stored = list[tuple[Any, ...]]
"""The entries and joins of one job as they are stored: (kind, name, value or None, at, total, due,
failed).
"""
Remembered = Stored | tuple[Entry, ...] | int
"""What a lease brings back, as it is stored or as it is; or how many entries the lease leaves out.
"""

_ENTRY_TYPES = (str, bytes, int, int, int, int)
_JOIN_TYPES = (str, type(None), int, int, int, int)
_HOW = frozenset(how.value for how in OnFailure)

EdgeRow = tuple[str, str, str]
"""The target of an edge, its join, and what a failure does to the target."""

_encode = msgspec.json.Encoder().encode
_decode_parents = msgspec.json.Decoder(tuple[int, int, int]).decode
_decode_edges = msgspec.json.Decoder(list[EdgeRow]).decode
_decode_size = msgspec.json.Decoder(tuple[int, int, int, int]).decode


# -- writing ---------------------------------------------------------------------------------------


def _read_size(text: Any) -> Size | None:
    try:
        return Size(*_decode_size(text))
    except (TypeError, msgspec.MsgspecError):
        return None


def _size_of(connection: sqlite3.Connection, row: Row) -> Size:
    if row.journal is None:
        return Size()
    return _read_size(row.journal) or _counted(connection, row.seq)


def _counted(connection: sqlite3.Connection, seq: int) -> Size:
    """The size of a journal whose own record of it cannot be read."""
    return Size(*connection.execute(sql.SIZE, (seq,)).fetchone())


def write(transaction: Transaction, row: Row, entries: Sequence[Entry]) -> str | None:
    """Stores what counts of the entries, or none of them and says what would be too much."""
    connection = transaction.connection
    known = {} if row.journal is None else _known(connection, row.seq, entries)
    before = _size_of(connection, row)
    fresh, size = written(before, known, entries)
    if size.overflow is not None:
        return size.overflow
    grown = size.bytes - before.bytes
    row.journal = size_text(size)
    row.size += grown
    connection.execute(sql.JOURNAL_SAVE, (row.journal, row.size, row.seq))
    put(connection, row.seq, [(entry, transaction.now) for entry in fresh])
    transaction.count_move((row.tenant, row.queue, row.group), None, None, 0, grown)
    return None


def _known(connection: sqlite3.Connection, seq: int, entries: Sequence[Entry]) -> dict[Key, int]:
    """The bytes of those of the entries that are stored."""
    keys = _encode([(entry.kind, entry.name) for entry in entries]).decode()
    found = connection.execute(sql.KNOWN, (keys, seq)).fetchall()
    joins = [entry.name for entry in entries if entry.kind is EntryKind.JOIN]
    if joins:
        found += connection.execute(sql.KNOWN_JOINS, (seq, _encode(joins).decode())).fetchall()
    return {(EntryKind(kind), name): length for kind, name, length in found}


def put(connection: sqlite3.Connection, seq: int, entries: Iterable[tuple[Entry, Micros]]) -> None:
    """Stores entries of a job with their instants."""
    rows, joins = [], []
    for entry, at in entries:
        if entry.kind is EntryKind.JOIN:
            number = int(entry.value)
            joins.append((seq, entry.name, number, number, at))
        else:
            rows.append((seq, entry.kind._value_, entry.name, entry.value, at))
    insert_rows(connection, sql.ENTRY_PUT, rows)
    insert_rows(connection, sql.JOIN_INSERT, joins)


def has(connection: sqlite3.Connection, row: Row, awaits: str) -> bool:
    """Whether the signal has come, or the join is complete."""
    if row.journal is None:
        return False
    kind, _, name = awaits.partition(":")
    query = sql.IS_COMPLETE if kind == EntryKind.JOIN else sql.HAS_SIGNAL
    return connection.execute(query, (row.seq, name)).fetchone() is not None


# -- reading ---------------------------------------------------------------------------------------


def remembered(connection: sqlite3.Connection, rows: Sequence[Columns]) -> dict[int, Remembered]:
    """What leases of the jobs of these rows of `statements.CLAIMED` bring back; `brought` reads it.
    Most jobs of flows remember only their parents, which their rows have.
    """
    found: dict[int, Remembered] = {}
    others: dict[int, Any] = {}
    for row in rows:
        entry = _of_parents(row[PARENTS], row[JOURNAL], row[CREATED_AT])
        if entry is None:
            others[row[SEQ]] = row[JOURNAL]
        else:
            found[row[SEQ]] = entry
    return found | _read_remembered(connection, others) if others else found


@lru_cache
def _of_parents(parents: Any, journal: Any, at: Any) -> tuple[Entry] | None:
    """The journal of a job that remembers only its parents; None for any other."""
    try:
        total, due, failed = _decode_parents(parents)
    except (TypeError, msgspec.MsgspecError):
        return None
    if journal != journal_of_parents(total) or type(at) is not int:
        return None
    return (join_entry("", Join(total, due, failed), at),)


def _read_remembered(
    connection: sqlite3.Connection, journals: Mapping[int, Any]
) -> dict[int, Remembered]:
    """What leases of these jobs bring back, or how many entries they leave out.
    The jobs are given with the sizes that their rows have.
    """
    found: dict[int, Remembered] = {}
    for seq, text in journals.items():
        if left_out := (_read_size(text) or _counted(connection, seq)).left_out:
            found[seq] = left_out
    small = [seq for seq in journals if seq not in found]
    return {**found, **_read(connection, sql.REMEMBERED, small)}


def brought(stored: Remembered) -> tuple[tuple[Entry, ...], int]:
    """The entries that a lease brings, and how many it leaves out. Raises if one of them cannot be
    read: its step would be done again.
    """
    if isinstance(stored, int):
        return (), stored
    return (stored if isinstance(stored, tuple) else tuple(map(_entry, stored))), 0


def _read(connection: sqlite3.Connection, query: str, seqs: Sequence[int]) -> dict[int, Stored]:
    found: dict[int, Stored] = {}
    if seqs:
        of = (listed(seqs),)
        for seq, kind, name, value, at in connection.execute(query, of):
            found.setdefault(seq, []).append((kind, name, value, at, 0, 0, 0))
        for seq, name, total, due, failed, at in connection.execute(sql.JOINS, of):
            kind = EntryKind.JOIN._value_
            found.setdefault(seq, []).append((kind, name, None, at, total, due, failed))
    return found


def _entry(stored: tuple[Any, ...]) -> Entry:
    kind, name, value, at, total, due, failed = stored
    is_join = kind == EntryKind.JOIN
    types = (type(name), type(value), type(at), type(total), type(due), type(failed))
    if types != (_JOIN_TYPES if is_join else _ENTRY_TYPES):
        raise ValueError(f"its journal has a {kind!r} that is no entry")
    if is_join:
        return join_entry(name, Join(total, due, failed), at)
    return Entry(EntryKind(kind), name, value, at)


def with_journals(
    connection: sqlite3.Connection, leases: list[Lease], journals: Mapping[int, Any]
) -> list[Lease]:
    """The leases with their journals, without those whose journal cannot be read. `journals` has
    the sizes of those that have one.
    """
    stored = _read_remembered(connection, journals)
    found = []
    for lease in leases:
        try:
            journal, left_out = brought(stored.get(lease.job.seq, []))
        except ValueError:
            continue
        found.append(msgspec.structs.replace(lease, journal=journal, left_out=left_out))
    return found


def _readable(stored: Stored) -> tuple[Entry, ...]:
    """The entries that can be read."""
    entries = []
    for each in stored:
        try:
            entries.append(_entry(each))
        except ValueError:
            continue
    return tuple(entries)


def read_entries(connection: sqlite3.Connection, seq: int) -> tuple[Entry, ...]:
    """All entries of a job that can be read."""
    return _readable(_read(connection, sql.ENTRIES, [seq]).get(seq, []))


def read_bytes(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, int]:
    """The bytes that the journals and edges of jobs add to a page."""
    return dict(connection.execute(sql.BYTES, (listed(seqs),)).fetchall())


def read_journals(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, Journal]:
    """The journals of those of the jobs that have one."""
    entries = _read(connection, sql.ENTRIES, seqs)
    edges: dict[int, list[Edge]] = {}
    for seq, text in connection.execute(sql.EDGES, (listed(seqs),)):
        found = [
            Edge(id, join, OnFailure(how)) for id, join, how in read_edges(text) if how in _HOW
        ]
        edges.setdefault(seq, []).extend(found)
    return {
        seq: Journal(_readable(entries.get(seq, [])), tuple(edges.get(seq, ())))
        for seq in entries.keys() | edges.keys()
    }


def edges_text(edges: Sequence[Edge]) -> str:
    """Some edges of a job as one row has them."""
    return _encode([(edge.target, edge.join, edge.on_failure) for edge in edges]).decode()


def read_edges(text: Any) -> list[EdgeRow]:
    """The edges of a row; none if it cannot be read."""
    try:
        return _decode_edges(text)
    except (TypeError, msgspec.MsgspecError):
        return []


# -- deleting --------------------------------------------------------------------------------------


def weight(journal: Any, edges: int | None) -> int:
    """About how many rows belong to a job beside its own; 0 for a usual job."""
    rows = edges or 0
    if journal is not None:
        size = _read_size(journal) or Size(STEPS_MAX)
        rows += size.steps + size.signals + size.bytes // ROW_BYTES
        rows += ERRORS_MAX + min(size.logs, LOGS_MAX)
    return rows


def drop(transaction: Transaction, jobs: Sequence[tuple[int, int]], most: int = DROP_MAX) -> int:
    """Deletes what belongs to deleted jobs, given with their weights: at least that of the first,
    and about `most` rows. The rest is left for `prune`. Returns how many rows that left.
    """
    now, later = list[int](), list[tuple[int, int]]()
    for seq, rows in jobs:
        if now and rows > most:
            later.append((seq, rows))
        else:
            now.append(seq)
            most -= rows
    for statement in sql.DROP if now else ():
        transaction.execute(statement, (listed(now),))
    insert_rows(transaction.connection, sql.LEFTOVER_PUT, later)
    return max(0, most)


def drop_leftovers(transaction: Transaction, most: int) -> bool:
    """Deletes about so many rows that earlier calls have left; True if there are more."""
    if most == 0:
        return True
    found = transaction.execute(sql.LEFTOVERS, (LEFTOVERS_MAX,)).fetchall()
    if not found:
        return False
    transaction.execute(sql.LEFTOVERS_DROP, (listed([seq for seq, _ in found]),))
    drop(transaction, found, most)
    return transaction.execute(sql.LEFTOVERS, (1,)).fetchone() is not None
