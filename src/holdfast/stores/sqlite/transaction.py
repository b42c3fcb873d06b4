"""What the calls of one transaction share: the instant, the counters, the facts to record."""

from __future__ import annotations

import sqlite3

from holdfast.clock import Micros
from holdfast.job import EventKind
from holdfast.store import Ref
from holdfast.stores.bell import Line
from holdfast.stores.sqlite import statements as sql

Name = tuple[str, str, str, str]
"""(tenant, id, queue, type)"""

EventRow = tuple[int, Micros, str, str, str, str, str, int, int, Micros | None, str | None]


class Transaction:
    """One write transaction. `now` is read once for each call in it."""

    __slots__ = ("_on", "connection", "cursor", "ended", "events", "execute", "lines", "now", "seq")

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

    def mark(self) -> tuple[int, int, int]:
        """What `forget` needs to undo a call that failed. Hints of wake-ups may stay: they are
        only hints.
        """
        return self.seq, self.cursor, len(self.events)

    def forget(self, mark: tuple[int, int, int]) -> None:
        self.seq, self.cursor, length = mark
        del self.events[length:]

    def flush(self) -> None:
        """Writes what was gathered; the commit follows."""
        if self.events:
            self.connection.executemany(sql.EVENT_INSERT, self.events)
        self.execute(sql.HEADS_SAVE, (self.seq, self.cursor))
