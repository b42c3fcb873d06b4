"""The event log: the newest EVENTS_MAX facts, in order."""

from __future__ import annotations

from collections import deque

from holdfast.clock import Micros
from holdfast.job import TERMINAL, Event, EventKind
from holdfast.stores.memory.rows import Row, alive

EVENTS_MAX = 100_000
ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED, EventKind.DELETED})


class Log:
    """The part of the tables that records facts."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.events_floor = 0
        self.cursor = 0
        self.by: str | None = None
        """Who wanted the step that is under way."""

    def note(
        self,
        kind: EventKind,
        row: Row,
        now: Micros,
        until: Micros | None = None,
        note: str | None = None,
    ) -> None:
        new = row.new
        self.record(
            Event(
                self.cursor + 1,
                now,
                kind,
                new.tenant,
                new.id,
                new.queue,
                new.envelope.type,
                row.attempt,
                row.fence,
                until,
                note,
                self.by,
            )
        )
        ended = kind in ENDS and (kind is not EventKind.DELETED or row.state not in TERMINAL)
        if ended and row.group is not None and not alive(row.counters[-1]):
            self.note(EventKind.DRAINED, row, now, note=new.group)

    def record(self, event: Event) -> None:
        self.cursor = event.cursor
        self.events.append(event)
        if len(self.events) > EVENTS_MAX:
            self.events_floor = self.events.popleft().cursor
