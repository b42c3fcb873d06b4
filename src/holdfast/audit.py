"""Checks the event log against the promises and reports every violation.

The audit reads the log once, in stored order, and keeps a small state per job. It knows nothing
about the store's internals: it checks only what the events say. Events do not name the group of a
job, so limits of groups are checked only if the caller provides the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import Event, EventKind
from holdfast.core.scope import Scope, ScopeKind, decode, platform_scopes, scope_of

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


GroupOf = Callable[[str, str], str | None]
"""Returns the group of a job, given its tenant and id."""


class Breach(msgspec.Struct, frozen=True):
    """A violation of a promise by an event."""

    promise: str
    tenant: str
    job_id: str
    cursor: int
    words: str


class _Limits:
    """The running limits in force, and the leases that count against them."""

    def __init__(self, group_of: GroupOf) -> None:
        self._group_of = group_of
        self._most: dict[Scope, int] = {}
        self._held: dict[Scope, dict[tuple[str, str], Micros]] = {}

    def configured(self, event: Event) -> None:
        """Applies a changed setting from this event on."""
        scope = scope_of(event.job_id)
        if scope is None:
            return
        self._most.pop(scope, None)
        if event.note:
            settings = decode(event.job_id, event.note.encode())
            most = 1 if settings.ordered else settings.max_running
            if most is not None:
                self._most[scope] = most

    def held(self, event: Event) -> None:
        """Records that a lease was taken or renewed."""
        for scope in self._scopes(event):
            name = (event.tenant, event.job_id)
            self._held.setdefault(scope, {})[name] = event.until or event.at

    def free(self, event: Event) -> None:
        """Records that a lease has ended."""
        for scope in self._scopes(event):
            self._held.get(scope, {}).pop((event.tenant, event.job_id), None)

    def _scopes(self, event: Event) -> list[Scope]:
        scopes = [
            Scope(event.tenant),
            Scope(event.tenant, ScopeKind.QUEUE, event.queue),
            *platform_scopes(event.queue, event.type),
        ]
        group = self._group_of(event.tenant, event.job_id)
        if group is not None:
            scopes.append(Scope(event.tenant, ScopeKind.GROUP, group))
        return scopes

    def exceeded(self, event: Event) -> str | None:
        """The limits that a new lease exceeds, as messages."""
        for scope in self._scopes(event):
            most = self._most.get(scope)
            if most is None or len(self._held[scope]) <= most:
                continue
            live = sum(until > event.at for until in self._held[scope].values())
            if live > most:
                return f"{scope.words} has {live} valid leases, its limit is {most}"
        return None


class Audit:
    """Takes pages of events, oldest first. Its findings can be read at any time."""

    def __init__(self, group_of: GroupOf = lambda tenant, job_id: None) -> None:
        self.breaches: list[Breach] = []
        self.counts: dict[EventKind, int] = {}
        self.latest_rescue_us: Micros = 0
        """The longest time between the deadline of an expired lease and the release of its job."""
        self._jobs: dict[tuple[str, str], _Seen] = {}
        self._limits = _Limits(group_of)

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
        self._limits.held(event)
        exceeded = self._limits.exceeded(event)
        if exceeded is not None:
            self._breach("P13", event, exceeded)

    def _settled(self, event: Event, seen: _Seen) -> None:
        """Checks an event that only the holder of a valid lease may cause."""
        if event.kind is not EventKind.COMPLETED and event.kind not in GIVES_UP:
            return
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
