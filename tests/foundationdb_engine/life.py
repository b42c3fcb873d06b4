"""What a transaction knows between two resets: its version, its writes, and what it has read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from tests.foundationdb_engine.conflicts import Commit
from tests.foundationdb_engine.engine import Engine, Walk
from tests.foundationdb_engine.errors import FDBError
from tests.foundationdb_engine.futures import Key
from tests.foundationdb_engine.keys import (
    END,
    KEY_MAX,
    KeySelector,
    KeyValue,
    Range,
    answer_bytes,
    check_legal,
)
from tests.foundationdb_engine.options import Passing
from tests.foundationdb_engine.own import Own, State
from tests.foundationdb_engine.reads import Span
from tests.foundationdb_engine.storage import Row
from tests.foundationdb_engine.versions import Committed
from tests.foundationdb_engine.watches import Watch

Answer = tuple[list[KeyValue], int, bool]
"""Rows, their number, and whether a limit cut them short."""


class Life:
    """One life of a transaction; `reset` and a retry begin the next."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.passing = Passing()
        self.own = Own()
        self.commit = Commit()
        """What it read and wrote, for the decision about conflicts."""
        self.size = 0
        self.watches: list[Watch] = []
        self.stamp: Key | None = None
        self.committing = False
        self.committed: Committed | None = None
        self.failure: FDBError | None = None
        """Why no further call succeeds."""
        self._reads = -1
        self._doom: tuple[int, int] | None = None
        """After how many reads which error comes, if one is injected."""

    @property
    def version(self) -> int | None:
        return self.commit.read_version

    def read_version(self) -> int:
        """The version that all reads are at, asked for once."""
        if self.commit.read_version is None:
            self.commit.read_version = self._engine.read_version()
        return self.commit.read_version

    def _count_read(self) -> None:
        if self._reads < 0:
            self._reads, self._doom = 0, self._engine.doom()
        if self._doom is not None and self._reads >= self._doom[0]:
            raise self._engine.doomed(self._doom[1])
        self._reads += 1

    def end(self, code: int) -> None:
        """Nothing more comes of it: frees its version, and cancels what waits for its commit."""
        if self.version is not None:
            self._engine.leave(self.version)
            self.commit.read_version = None
        watches, self.watches = self.watches, []
        for waiting in (*watches, *([self.stamp] if self.stamp is not None else ())):
            waiting.complete(error=FDBError(code))

    def is_used(self) -> bool:
        return bool(self.version is not None or self.own.mutations)

    # -- what it read ----------------------------------------------------------------------------

    def note_read_key(self, key: bytes) -> None:
        if key not in self.commit.read_keys:
            self.commit.read_keys.add(key)
            self.size += 2 * len(key) + 1

    def note_read_range(self, begin: bytes, end: bytes) -> None:
        if begin < end:
            self.commit.read_ranges.append((begin, end))
            self.size += len(begin) + len(end)

    def _note_walked(self, begin: bytes, end: bytes) -> None:
        """A range was read; what the own writes decide alone is in conflict with nobody."""
        if not self.own.mutations or not self.passing.own_reads:
            self.note_read_range(begin, end)
            return
        for part in self.own.unknown(begin, end):
            self.note_read_range(*part)

    def note_write_key(self, key: bytes, size: int) -> None:
        self.size += len(key) + size
        if self.passing.next_write_silent:
            self.passing.next_write_silent = False
            return
        self.commit.write_keys.add(key)
        self.size += 2 * len(key) + 1

    def note_write_range(self, begin: bytes, end: bytes) -> None:
        self.size += len(begin) + len(end)
        if self.passing.next_write_silent:
            self.passing.next_write_silent = False
            return
        self.commit.write_ranges.append((begin, end))
        self.size += len(begin) + len(end)

    # -- reads -----------------------------------------------------------------------------------

    def _seen(self, snapshot: bool) -> Own:
        """The own writes, as far as this read sees them."""
        sees = self.passing.own_reads and (self.passing.snapshot_own_reads or not snapshot)
        return self.own if sees else Own()

    def value(self, key: bytes, snapshot: bool) -> bytes | None:
        check_legal(key)
        if len(key) > KEY_MAX:
            return None
        own = self._seen(snapshot)
        entry = own.entry(key)
        if entry is not State.UNTOUCHED and not isinstance(entry, list):
            return own.resolve(entry, None)
        self._count_read()
        below = self._engine.get(key, self.read_version())
        if not snapshot:
            self.note_read_key(key)
        return own.resolve(entry, below)

    def key(self, selector: KeySelector, snapshot: bool) -> bytes:
        check_legal(selector.key, end=True)
        self._count_read()
        use = partial(self._find, selector, snapshot)
        return self._engine.read(self.read_version(), use)

    def rows(self, span: Span, snapshot: bool) -> Answer:
        check_legal(span.begin.key, end=True)
        check_legal(span.end.key, end=True)
        bytes_max = answer_bytes(*span.mode, span.limit)
        self._count_read()
        use = partial(self._rows, span, bytes_max, snapshot)
        return self._engine.read(self.read_version(), use)

    def _over(self, walk: Walk, span: Range, snapshot: bool, reverse: bool) -> Iterator[Row]:
        own = self._seen(snapshot)
        return own.over(walk(*span, self.read_version(), reverse), span, reverse)

    def _find(self, selector: KeySelector, snapshot: bool, walk: Walk) -> bytes:
        """The key that many places from the selector's, among those that are there."""
        start = selector.key + (b"\0" if selector.or_equal else b"")
        forward = selector.offset > 0
        steps = selector.offset - 1 if forward else -selector.offset
        span = (start, END) if forward else (b"", start)
        rows = self._over(walk, span, snapshot, not forward)
        row = next(islice(rows, steps, None), None)
        found = row[0] if row is not None else END if forward else b""
        if not snapshot and forward:
            self._note_walked(start, found + b"\0" if row is not None else END)
        elif not snapshot:
            self._note_walked(found, start)
        return found

    def _edge(self, selector: KeySelector, snapshot: bool, walk: Walk) -> bytes:
        """Where a range read begins or ends; the first key from one on needs no search."""
        if selector.offset == 1:
            return selector.key + b"\0" if selector.or_equal else selector.key
        return self._find(selector, snapshot, walk)

    def _rows(self, span: Span, bytes_max: int, snapshot: bool, walk: Walk) -> Answer:
        begin = self._edge(span.begin, snapshot, walk)
        end = min(self._edge(span.end, snapshot, walk), END)
        if begin >= end:
            return [], 0, False
        found: list[KeyValue] = []
        size, cut = 0, False
        for key, value in self._over(walk, (begin, end), snapshot, span.reverse):
            found.append(KeyValue(key, value))
            size += len(key) + len(value)
            if len(found) == span.limit or 0 < bytes_max <= size:
                cut = True
                break
        if not snapshot:
            last = found[-1].key if cut else b""
            if cut:
                begin, end = (last, end) if span.reverse else (begin, last + b"\0")
            self._note_walked(begin, end)
        return found, len(found), cut
