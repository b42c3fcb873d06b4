"""Read-your-writes: what a transaction wrote and has not committed, laid over what it reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum

from tests.foundationdb_engine.errors import UNREADABLE, FDBError
from tests.foundationdb_engine.keys import STAMP_BYTES, Range
from tests.foundationdb_engine.mutations import Mutation, Operation, atomic, stamp, stamp_place
from tests.foundationdb_engine.spans import Spans
from tests.foundationdb_engine.storage import Row


class State(Enum):
    """What is known of a key beside its value."""

    UNTOUCHED = 0
    PENDING = 1
    """It waits for a versionstamp: nobody can read it before the commit."""


Entry = bytes | list[Operation] | State | None
"""The value (None: cleared), or the operations over the value that is there, or a state."""


def stamp_range(template: bytes, version: int) -> Range:
    """Where a versionstamped key may come to stand, for one who reads at the version."""
    place = stamp_place(template)
    before, after = template[:place], template[place + STAMP_BYTES : -4]
    return before + stamp(version, 0) + after, before + b"\xff" * STAMP_BYTES + after + b"\0"


class Own:
    """The writes of one transaction, in their order and by key."""

    def __init__(self) -> None:
        self.mutations: list[Mutation] = []
        self._entries: dict[bytes, Entry] = {}
        self._ordered: list[bytes] | None = None
        self._cleared = Spans()
        self._pending = Spans()
        """Where keys may come to stand that wait for their stamps."""

    def set(self, key: bytes, value: bytes) -> None:
        self.mutations.append(("set", key, value))
        if self.entry(key) is not State.PENDING:
            self._note(key, value)

    def clear(self, key: bytes) -> None:
        self.mutations.append(("clear", key, b""))
        self._note(key, None)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        self.mutations.append(("clear_range", begin, end))
        for key in self._within(begin, end):
            del self._entries[key]
        self._ordered = None
        self._cleared.add(begin, end)
        self._pending.remove(begin, end)

    def operate(self, name: str, key: bytes, param: bytes) -> None:
        """An atomic operation."""
        self.mutations.append((name, key, param))
        entry = self.entry(key)
        if entry is State.UNTOUCHED:
            self._note(key, [(name, param)])
        elif isinstance(entry, list):
            entry.append((name, param))
        elif not isinstance(entry, State):
            self._note(key, atomic(name, entry, param))

    def stamp_key(self, template: bytes, value: bytes, version: int) -> None:
        """A key that the commit names. What may be its place cannot be read until then."""
        self._pending.add(*stamp_range(template, version))
        self.mutations.append(("set_versionstamped_key", template, value))

    def stamp_value(self, key: bytes, template: bytes) -> None:
        stamp_place(template)
        self.mutations.append(("set_versionstamped_value", key, template))
        self._note(key, State.PENDING)

    def _note(self, key: bytes, entry: Entry) -> None:
        if key not in self._entries:
            self._ordered = None
        self._entries[key] = entry

    # -- what is known ---------------------------------------------------------------------------

    def entry(self, key: bytes) -> Entry:
        """What the transaction knows of a key by its own writes."""
        if not self.mutations:
            return State.UNTOUCHED
        entry = self._entries.get(key, State.UNTOUCHED)
        if entry is not State.UNTOUCHED:
            return entry
        if self._pending and key in self._pending:
            return State.PENDING
        return None if self._cleared and key in self._cleared else State.UNTOUCHED

    def _within(self, begin: bytes, end: bytes) -> list[bytes]:
        if self._ordered is None:
            self._ordered = sorted(self._entries)
        return self._ordered[bisect_left(self._ordered, begin) : bisect_left(self._ordered, end)]

    def unknown(self, begin: bytes, end: bytes) -> list[Range]:
        """The parts of a range whose content is not decided by the own writes alone."""
        left = Spans([(begin, end)])
        for hole in self._cleared.within(begin, end):
            left.remove(*hole)
        for key in self._within(begin, end):
            if not isinstance(self._entries[key], list):
                left.remove(key, key + b"\0")
        return left.ranges()

    # -- rows ------------------------------------------------------------------------------------

    def over(self, rows: Iterator[Row], span: Range, reverse: bool) -> Iterator[Row]:
        """The rows of the database with the own writes over them."""
        if not self.mutations:
            return rows
        return self._guarded(self._merged(rows, span, reverse), span, reverse)

    def _merged(self, rows: Iterator[Row], span: Range, reverse: bool) -> Iterator[Row]:
        mine = self._within(*span)
        if reverse:
            mine.reverse()
        place = 0
        for key, value in rows:
            while place < len(mine) and mine[place] != key and (mine[place] < key) != reverse:
                yield from self._row(mine[place], None)
                place += 1
            if place < len(mine) and mine[place] == key:
                yield from self._row(key, value)
                place += 1
            elif key not in self._cleared:
                yield key, value
        for key in mine[place:]:
            yield from self._row(key, None)

    def _row(self, key: bytes, below: bytes | None) -> Iterator[Row]:
        entry = self._entries[key]
        value = self.resolve(entry, None if key in self._cleared else below)
        if value is not None:
            yield key, value

    def resolve(self, entry: Entry, below: bytes | None) -> bytes | None:
        """The value of a key, from its entry and the value in the database."""
        if entry is State.UNTOUCHED:
            return below
        if isinstance(entry, State):
            raise FDBError(UNREADABLE)
        if isinstance(entry, list):
            for name, param in entry:
                below = atomic(name, below, param)
            return below
        return entry

    def _guarded(self, rows: Iterator[Row], span: Range, reverse: bool) -> Iterator[Row]:
        """The rows as far as they can be read: up to the first place that waits for a stamp."""
        hidden = self._pending.within(*span)
        if not hidden:
            yield from rows
            return
        first, last = hidden[0][0], hidden[-1][1]
        for key, value in rows:
            if key < last if reverse else key >= first:
                break
            yield key, value
        raise FDBError(UNREADABLE)
