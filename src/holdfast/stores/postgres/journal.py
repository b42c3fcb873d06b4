"""The journals of jobs: what each remembers. The row of a job tells whether it has one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.journal import (
    REMEMBERED,
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
from holdfast.stores.postgres import journal_statements as sql
from holdfast.stores.postgres.rows import Row
from holdfast.stores.postgres.step import Step, columns
from holdfast.stores.sql_rows import Columns

Stored = list[Columns]
"""The entries and joins of one job: (job, kind, name, value or None, at, total, due, failed)."""

_HOW = {how.value: how for how in OnFailure}
_KINDS = {kind.value: kind for kind in EntryKind}

_decode_size = msgspec.json.Decoder(tuple[int, int, int, int]).decode


def size_text(size: Size) -> str:
    """How much of its share a journal uses, as the row of its job has it."""
    return msgspec.json.encode((size.steps, size.signals, size.bytes, size.logs)).decode()


async def _size_of(step: Step, seq: int, text: str | None) -> Size:
    """The size of a journal, from the row of its job or counted if that cannot be read."""
    try:
        return Size(*_decode_size(text or ""))
    except msgspec.MsgspecError:
        found = await step.row(sql.SIZE, seq)
        assert found is not None, "sums have a row"
        return Size(*found)


# -- writing ---------------------------------------------------------------------------------------


class Journals:
    """What a call reads of the journals of jobs that it has locked, and writes to them. It reads
    once and writes once, whatever the number of jobs.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._known: dict[int, dict[Key, int]] = {}
        """Bytes of what is stored under the keys that the call names."""
        self._due: dict[tuple[int, str], int] = {}
        """How many ends each join awaits yet that the call names."""
        self._sizes: dict[int, Size] = {}
        self._entries: dict[tuple[int, Key], tuple[Entry, Micros]] = {}
        self._saved: dict[int, Row] = {}

    async def read(self, rows: Iterable[tuple[Row, Sequence[Entry], str | None]]) -> None:
        """Reads what counts for these entries, and for what the jobs are about to await."""
        asked = set[tuple[int, str, str]]()
        for row, entries, awaits in rows:
            if row.journal is None:
                continue
            kept = (each for each in entries if each.kind in REMEMBERED)
            asked.update((row.seq, each.kind.value, each.name) for each in kept)
            if awaits is not None:
                kind, _, name = awaits.partition(":")
                asked.add((row.seq, kind, name))
            if entries and row.seq not in self._sizes:
                self._sizes[row.seq] = await self._size_of(row)
        if asked:
            for seq, kind, name, length, due in await self._step.rows(
                sql.KNOWN, *columns([*asked])
            ):
                self._known.setdefault(seq, {})[EntryKind(kind), name] = length
                self._due[seq, name] = due

    async def _size_of(self, row: Row) -> Size:
        return await _size_of(self._step, row.seq, row.journal)

    def put(self, seq: int, entries: Iterable[Entry]) -> None:
        """Writes entries to the empty journal of a new job, with their own instants."""
        self._entries.update({(seq, (each.kind, each.name)): (each, each.at) for each in entries})

    def write(self, row: Row, entries: Sequence[Entry]) -> str | None:
        """Writes what counts of the entries, or none of them and says what would be too much."""
        known = self._known.setdefault(row.seq, {})
        before = self._sizes.get(row.seq, Size())
        fresh, size = written(before, known, entries)
        if size.overflow is not None:
            return size.overflow
        for entry in fresh:
            key = (entry.kind, entry.name)
            known[key] = len(entry.value)
            self._entries[row.seq, key] = (entry, self._step.now)
            if entry.kind is EntryKind.JOIN:
                self._due[row.seq, entry.name] = int(entry.value)
        self._sizes[row.seq] = size
        row.size += size.bytes - before.bytes
        self._step.grow(row, size.bytes - before.bytes)
        row.journal = size_text(size)
        self._saved[row.seq] = row
        return None

    def has(self, row: Row, awaits: str) -> bool:
        """Whether the signal has come, or the join is complete."""
        kind, _, name = awaits.partition(":")
        if (_KINDS[kind], name) not in self._known.get(row.seq, {}):
            return False
        return kind != EntryKind.JOIN or self._due[row.seq, name] == 0

    async def flush(self) -> None:
        """Stores what was written. Must come before the jobs are written that have ended."""
        joins, others = [], []
        for (seq, (kind, name)), (entry, at) in self._entries.items():
            if kind is EntryKind.JOIN:
                joins.append((seq, at, name, int(entry.value)))
            else:
                others.append((seq, at, kind.value, name, entry.value))
        for statement, values in ((sql.ENTRIES_PUT, others), (sql.JOINS_PUT, joins)):
            if values:
                await self._step.run(statement, *columns(values))
        if self._saved:
            sizes = [(row.seq, row.journal, row.size) for row in self._saved.values()]
            await self._step.run(sql.JOURNALS_SAVE, *columns(sizes))


# -- reading ---------------------------------------------------------------------------------------


async def read_remembered(step: Step, journals: Mapping[int, str]) -> dict[int, Stored | int]:
    """What leases of these jobs bring back, or how many entries they leave out; `brought` reads it.
    The jobs are given with the sizes that their rows have.
    """
    sizes = {seq: await _size_of(step, seq, text) for seq, text in journals.items()}
    found: dict[int, Stored | int] = {
        seq: size.left_out for seq, size in sizes.items() if size.left_out
    }
    small = [seq for seq in sizes if seq not in found]
    return {**found, **(await _read(step, sql.REMEMBERED, small) if small else {})}


async def _read(step: Step, statement: str, seqs: Sequence[int]) -> dict[int, Stored]:
    found: dict[int, Stored] = {}
    for row in await step.rows(statement, seqs):
        found.setdefault(row[0], []).append(row)
    return found


def brought(stored: Stored | int) -> tuple[tuple[Entry, ...], int]:
    """The entries that a lease brings, and how many it leaves out. Raises if one of them cannot be
    read: its step would be done again.
    """
    return ((), stored) if isinstance(stored, int) else (tuple(map(_entry, stored)), 0)


def _entry(row: Columns) -> Entry:
    _, kind, name, value, at, total, due, failed = row
    if kind == EntryKind.JOIN:
        return join_entry(name, Join(total, due, failed), at)
    return Entry(EntryKind(kind), name, value, at)


def _readable(stored: Stored) -> tuple[Entry, ...]:
    return tuple(_entry(row) for row in stored if row[1] in _KINDS)


async def read_entries(step: Step, seq: int) -> tuple[Entry, ...]:
    """All entries of a job that can be read."""
    return _readable((await _read(step, sql.ENTRIES, [seq])).get(seq, []))


async def read_bytes(step: Step, seqs: Sequence[int]) -> dict[int, int]:
    """The bytes that the journals and edges of jobs add to a page."""
    return {row[0]: row[1] for row in await step.rows(sql.BYTES, seqs)}


async def read_journals(step: Step, seqs: Sequence[int]) -> dict[int, Journal]:
    """The journals of those of the jobs that have one."""
    entries = await _read(step, sql.ENTRIES, seqs)
    edges: dict[int, list[Edge]] = {}
    for seq, target, name, how in await step.rows(sql.EDGES, seqs):
        edges.setdefault(seq, []).append(Edge(target, name, how_of(how)))
    return {
        seq: Journal(_readable(entries.get(seq, [])), tuple(edges.get(seq, ())))
        for seq in entries.keys() | edges.keys()
    }


def how_of(text: Any) -> OnFailure:
    """What a failure does; the default, if that cannot be read."""
    return _HOW.get(text, OnFailure.FAIL)
