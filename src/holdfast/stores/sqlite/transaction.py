"""What the calls of one transaction share: the instant, the counters, the facts to record."""

from __future__ import annotations

import sqlite3
from collections import Counter

from holdfast.clock import Micros
from holdfast.job import EventKind
from holdfast.store import Ref
from holdfast.stores.bell import Line
from holdfast.stores.sqlite import statements as sql

Name = tuple[str, str, str, str]
"""(tenant, id, queue, type)"""

EventRow = tuple[int, Micros, str, str, str, str, str, int, int, Micros | None, str | None]

Mark = tuple[int, int, int, int]


class Transaction:
    """One write transaction. `now` is read once for each call in it."""

    __slots__ = (
        "_on",
        "connection",
        "cursor",
        "ended",
        "events",
        "execute",
        "finished",
        "lines",
        "now",
        "seq",
    )

    def __init__(self, connection: sqlite3.Connection, events_on: bool) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.now: Micros = 0
        self.seq: int
        self.cursor: int
        self.seq, self.cursor = self.execute(sql.HEADS).fetchone()
        self.events: list[EventRow] = []
        self.lines: set[Line] = set()
        """Where work may have come up."""
        self.ended: list[Ref] = []
        self.finished: list[tuple[str, str, str, int]] = []
        """(tenant, queue, state, +1 or -1) for each finished job that stays, or goes."""
        self._on = events_on

    def note(
        self,
        kind: EventKind,
        job: Name,
        attempt: int,
        fence: int,
        *,
        until: Micros | None = None,
        text: str | None = None,
    ) -> None:
        """Records a fact, in the order of the calls."""
        if self._on:
            self.cursor += 1
            self.events.append(
                (self.cursor, self.now, kind._value_, *job, attempt, fence, until, text)
            )

    def tally(self, tenant: str, queue: str, state: str, more: int) -> None:
        """Counts a finished job whose record stays (+1), or goes (-1)."""
        self.finished.append((tenant, queue, state, more))

    def mark(self) -> Mark:
        """What `forget` needs to undo a call that failed. Hints of wake-ups may stay: they are
        only hints.
        """
        return self.seq, self.cursor, len(self.events), len(self.finished)

    def forget(self, mark: Mark) -> None:
        self.seq, self.cursor, events, finished = mark
        del self.events[events:]
        del self.finished[finished:]

    def flush(self) -> None:
        """Writes what was gathered; the commit follows."""
        if self.events:
            self.connection.executemany(sql.EVENT_INSERT, self.events)
        if self.finished:
            sums: Counter[tuple[str, str, str]] = Counter()
            for tenant, queue, state, more in self.finished:
                sums[tenant, queue, state] += more
            rows = [(*place, more) for place, more in sums.items()]
            self.connection.executemany(sql.FINISHED_ADD, rows)
        self.execute(sql.HEADS_SAVE, (self.seq, self.cursor))
