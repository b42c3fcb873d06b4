"""The journals of jobs: what each remembers, and how much of its share that uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.journal import (
    REMEMBERED,
    Entry,
    EntryKind,
    Join,
    Key,
    Size,
    join_entry,
    new_join,
    written,
)


class Journal(msgspec.Struct, gc=False):
    """What one job remembers."""

    entries: dict[Key, Entry] = {}
    joins: dict[str, Join] = {}
    size: Size = Size()

    @classmethod
    def of_parents(cls, parents: int, now: Micros) -> Journal:
        """The journal of a job that waits for its parents."""
        entry = new_join("", parents)
        size = Size(1, 0, len(entry.value), 0)
        entry = msgspec.structs.replace(entry, at=now)
        return cls({(entry.kind, ""): entry}, {"": Join(parents, parents)}, size)

    def write(self, entries: Sequence[Entry], now: Micros) -> str | None:
        """Stores what counts of the entries, or none of them and says what would be too much."""
        keys = ((each.kind, each.name) for each in entries)
        known = {key: len(self.entries[key].value) for key in keys if key in self.entries}
        fresh, size = written(self.size, known, entries)
        if size.overflow is not None:
            return size.overflow
        self.size = size
        for entry in fresh:
            if entry.kind is EntryKind.JOIN:
                self.joins[entry.name] = Join(int(entry.value), int(entry.value))
            self.entries[entry.kind, entry.name] = msgspec.structs.replace(entry, at=now)
        return None

    def has(self, awaits: str) -> bool:
        """Whether the signal has come, or the join is complete."""
        kind, _, name = awaits.partition(":")
        if kind == EntryKind.JOIN:
            join = self.joins.get(name)
            return join is not None and join.left == 0
        return (EntryKind.SIGNAL, name) in self.entries

    def remembered(self) -> tuple[Entry, ...]:
        """What a lease brings back."""
        return tuple(self._read(each for each in self.entries.values() if each.kind in REMEMBERED))

    def all(self) -> tuple[Entry, ...]:
        """Every entry."""
        return tuple(self._read(self.entries.values()))

    def _read(self, entries: Iterable[Entry]) -> Iterable[Entry]:
        for entry in entries:
            is_join = entry.kind is EntryKind.JOIN
            yield join_entry(entry.name, self.joins[entry.name], entry.at) if is_join else entry


class Keeper(Protocol):
    """A job, which keeps a journal once it has written an entry."""

    journal: Journal | None
    size: int
    line: tuple[str, str]


class Counting(Protocol):
    """Counts the bytes that the living jobs of each tenant hold."""

    bytes: Counter[str]


def remembered(row: Keeper) -> tuple[tuple[Entry, ...], int]:
    """What a lease of the job brings back, and how many entries it leaves out."""
    if row.journal is None:
        return (), 0
    left_out = row.journal.size.left_out
    return () if left_out else row.journal.remembered(), left_out


def write(tables: Counting, row: Keeper, entries: Sequence[Entry], at: Micros) -> str | None:
    """Writes to the journal of a living job; returns what would be too much, if so."""
    if row.journal is None:
        row.journal = Journal()
    before = row.journal.size.bytes
    full = row.journal.write(entries, at)
    grown = row.journal.size.bytes - before
    row.size += grown
    tables.bytes[row.line[0]] += grown
    return full
