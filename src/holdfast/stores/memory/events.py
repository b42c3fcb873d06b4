"""Events: the newest EVENTS_MAX, in order."""

from __future__ import annotations

from collections import deque
from itertools import islice

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, Event, EventKind
from holdfast.store import EventPage
from holdfast.stores.memory.rows import Row, alive

EVENTS_MAX = 100_000
ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED, EventKind.DELETED})


class EventLog:
    """The events of the tables. Their cursors are 1, 2, 3 and so on."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.cursor = 0
        """That of the last event."""
        self.now: Micros = 0
        """The instant of the step that is under way."""
        self.by: str | None = None
        """Who wanted it."""

    def note(
        self, kind: EventKind, row: Row, until: Micros | None = None, note: str | None = None
    ) -> None:
        """Records an event of a job, and that its group has drained with it."""
        new = row.new
        self.cursor += 1
        self.events.append(
            Event(
                self.cursor,
                self.now,
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
        if row.group is not None and kind in ENDS:
            ended = kind is not EventKind.DELETED or row.state not in TERMINAL
            if ended and not alive(row.counters[-1]):
                self.note(EventKind.DRAINED, row, note=new.group)

    def note_setting(self, tenant: str, name: str, value: str) -> None:
        """Records that a setting of a tenant's scope has changed."""
        self.cursor += 1
        kind, nothing = EventKind.CONFIGURED, ("", "", 0, 0, None)
        self.events.append(
            Event(self.cursor, self.now, kind, tenant, name, *nothing, value, self.by)
        )

    def read_events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None
    ) -> EventPage:
        if after < 0:
            return EventPage([], self.cursor, False)
        lost = after < self.cursor - len(self.events)
        page: list[Event] = []
        # Cursors have no gaps, so those up to `after` are passed over without a look at each.
        for event in islice(self.events, max(0, after - self.cursor + len(self.events)), None):
            if tenant is not None and event.tenant != tenant:
                continue
            if job_id is not None and event.job_id != job_id:
                continue
            if len(page) == limit:
                return EventPage(page, page[-1].cursor if page else after, lost)
            page.append(event)
        return EventPage(page, self.cursor, lost)

    def drop_events(self, after: int) -> None:
        """Drops what this step has recorded after this cursor."""
        while self.events and self.events[-1].cursor > after:
            self.events.pop()
        self.cursor = after

    def prune_events(self, limit: int, horizon: Micros) -> int:
        """Drops events up to an instant; returns how many."""
        count = 0
        while self.events and self.events[0].at <= horizon and count < limit:
            self.events.popleft()
            count += 1
        return count
