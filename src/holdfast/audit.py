"""Checks the event log against the promises and reports every violation.

The audit reads the log once, in stored order, and keeps a small state per job. It knows nothing
about the store's internals: it checks only what the events say. Events do not name the group of a
job, so limits of groups are checked only if the caller provides the group.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.audit_limits import AuditedLimits, GroupOf
from holdfast.core.clock import Micros
from holdfast.core.job import Event, EventKind

ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED})
GIVES_UP = frozenset({EventKind.RETRYING, EventKind.RELEASED})


class _Seen:
    """What the log has recorded about one job so far."""

    __slots__ = ("ended", "fence", "until")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.ended: EventKind | None = None
        self.fence = 0
        self.until: Micros | None = None
        """The deadline of the current lease, if there is one."""


class Breach(msgspec.Struct, frozen=True):
    """A violation of a promise by an event."""

    promise: str
    tenant: str
    job_id: str
    cursor: int
    words: str


class Audit:
    """Takes pages of events, oldest first. Its findings can be read at any time."""

    def __init__(
        self,
        group_of: GroupOf = lambda tenant, job_id: None,
        *,
        slack_us: Micros = 0,
        copies_us: Micros = 0,
    ) -> None:
        """`slack_us`: how far apart the clocks of the store's servers may be, for rates.
        `copies_us`: for a store whose shards have copies of the tiers, how long after its event the
        change of a tier may take to return. Until it does, shards may use the values before.
        """
        self.breaches: list[Breach] = []
        self.counts: dict[EventKind, int] = {}
        self.latest_rescue_us: Micros = 0
        """The longest time between the deadline of an expired lease and the release of its job."""
        self._jobs: dict[tuple[str, str], _Seen] = {}
        self._limits = AuditedLimits(group_of, slack_us, copies_us)

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            self.counts[event.kind] = self.counts.get(event.kind, 0) + 1
            if event.kind is EventKind.CONFIGURED:
                self._limits.configured(event)
                continue  # The event belongs to no job.
            seen = self._jobs.setdefault((event.tenant, event.job_id), _Seen())
            self._read(event, seen)

    def ended(self, kind: EventKind) -> set[tuple[str, str]]:
        """The (tenant, id) of the jobs that ended in this state."""
        return {name for name, seen in self._jobs.items() if seen.ended is kind}

    @property
    def unended(self) -> set[tuple[str, str]]:
        """The jobs whose end is not in the log."""
        return {name for name, seen in self._jobs.items() if seen.ended is None}

    def _read(self, event: Event, seen: _Seen) -> None:
        kind = event.kind
        if kind is EventKind.ENQUEUED:
            seen.begin()  # The id may have belonged to an earlier job whose record is deleted.
        if seen.ended is not None and kind in ENDS | GIVES_UP | {EventKind.LEASED}:
            self._breach("P6", event, f"{kind.value} after it was {seen.ended.value}")
        if kind is EventKind.LEASED:
            self._leased(event, seen)
        elif kind is EventKind.EXTENDED:
            if seen.until is None or event.fence != seen.fence:
                self._breach("P3", event, "a lease was extended that no worker held")
            seen.until = event.until
            self._limits.held(event)
        elif kind is EventKind.RESCUED:
            self._rescued(event, seen)
        elif kind in GIVES_UP or kind in ENDS:
            self._settled(event, seen)
            self._limits.free(event)
            seen.until = None
            if kind in ENDS:
                seen.ended = kind

    def _leased(self, event: Event, seen: _Seen) -> None:
        if seen.until is not None and event.at < seen.until:
            self._breach("P2", event, "leased while another lease was valid")
        if event.fence <= seen.fence:
            self._breach("P3", event, f"the fence went from {seen.fence} to {event.fence}")
        seen.fence, seen.until = event.fence, event.until
        broken = self._limits.started(event)
        if broken is not None:
            self._breach("P13", event, broken)

    def _settled(self, event: Event, seen: _Seen) -> None:
        """Checks an event that only the holder of a valid lease may cause."""
        if event.kind is not EventKind.COMPLETED and event.kind not in GIVES_UP:
            return
        if event.kind is EventKind.COMPLETED and event.attempt == 0 and seen.fence == 0:
            return  # It ended with its parents, without a run.
        if seen.until is None or event.fence != seen.fence:
            self._breach("P3", event, f"{event.kind.value} by a worker without the lease")
        elif event.at >= seen.until:
            self._breach("P3", event, f"{event.kind.value} after its lease had expired")

    def _rescued(self, event: Event, seen: _Seen) -> None:
        if seen.until is None or event.at < seen.until:
            self._breach("P2", event, "rescued although its lease was still valid")
        else:
            self.latest_rescue_us = max(self.latest_rescue_us, event.at - seen.until)
        self._limits.free(event)
        seen.until = None

    def _breach(self, promise: str, event: Event, words: str) -> None:
        self.breaches.append(Breach(promise, event.tenant, event.job_id, event.cursor, words))
