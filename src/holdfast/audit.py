"""Were the promises kept? Reads the event log and tells every breach, in tests and in production.

One pass, in stored order, with a small state per job. It knows nothing of how a store works: what
it checks is what the events claim happened. Events do not name the group of a job: limits of groups
are checked where the caller can tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from holdfast.clock import Micros
from holdfast.job import Event, EventKind
from holdfast.scope import Scope, ScopeKind, decode, scope_of

ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED})
GIVES_UP = frozenset({EventKind.RETRYING, EventKind.RELEASED})


class _Seen:
    """What the log has said of one job so far."""

    __slots__ = ("ended", "fence", "until")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.ended: EventKind | None = None
        self.fence = 0
        self.until: Micros | None = None
        """The end of the lease that is open, if one is."""


GroupOf = Callable[[str, str], str | None]
"""The group of a job, from its tenant and id."""


class Breach(msgspec.Struct, frozen=True):
    """A promise that an event breaks."""

    promise: str
    tenant: str
    job_id: str
    cursor: int
    words: str


class _Limits:
    """The running limits in force, and who holds a lease under them."""

    def __init__(self, group_of: GroupOf) -> None:
        self._group_of = group_of
        self._most: dict[Scope, int] = {}
        self._held: dict[Scope, dict[str, Micros]] = {}

    def configured(self, event: Event) -> None:
        """What was set counts from here on."""
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
        """A lease was taken or renewed."""
        for scope in self._scopes(event):
            self._held.setdefault(scope, {})[event.job_id] = event.until or event.at

    def free(self, event: Event) -> None:
        """A lease has ended."""
        for scope in self._scopes(event):
            self._held.get(scope, {}).pop(event.job_id, None)

    def _scopes(self, event: Event) -> list[Scope]:
        scopes = [Scope(event.tenant), Scope(event.tenant, ScopeKind.QUEUE, event.queue)]
        group = self._group_of(event.tenant, event.job_id)
        if group is not None:
            scopes.append(Scope(event.tenant, ScopeKind.GROUP, group))
        return scopes

    def exceeded(self, event: Event) -> str | None:
        """What a lease that was just taken exceeds, in words."""
        for scope in self._scopes(event):
            most = self._most.get(scope)
            if most is None or len(self._held[scope]) <= most:
                continue
            live = sum(until > event.at for until in self._held[scope].values())
            if live > most:
                name = f"{scope.kind.value} {scope.part or scope.tenant}"
                return f"{name} has {live} valid leases, its limit is {most}"
        return None


class Audit:
    """Feed it pages of events, oldest first; ask it what it found at any time."""

    def __init__(self, group_of: GroupOf = lambda tenant, job_id: None) -> None:
        self.breaches: list[Breach] = []
        self.counts: dict[EventKind, int] = {}
        self.latest_rescue_us: Micros = 0
        """The longest a lapsed lease waited past its deadline before its job was free again."""
        self._jobs: dict[tuple[str, str], _Seen] = {}
        self._limits = _Limits(group_of)

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            self.counts[event.kind] = self.counts.get(event.kind, 0) + 1
            if event.kind is EventKind.CONFIGURED:
                self._limits.configured(event)
                continue  # It is no job's.
            seen = self._jobs.setdefault((event.tenant, event.job_id), _Seen())
            self._read(event, seen)

    def ended(self, kind: EventKind) -> set[tuple[str, str]]:
        """The (tenant, id) of the jobs that ended so."""
        return {name for name, seen in self._jobs.items() if seen.ended is kind}

    @property
    def unended(self) -> set[tuple[str, str]]:
        """The jobs the log has not seen end."""
        return {name for name, seen in self._jobs.items() if seen.ended is None}

    def _read(self, event: Event, seen: _Seen) -> None:
        kind = event.kind
        if kind is EventKind.ENQUEUED:
            seen.begin()  # The id may have been another job's, whose record is long gone.
        if seen.ended is not None and kind in ENDS | GIVES_UP | {EventKind.LEASED}:
            self._breach("P6", event, f"{kind.value} after it was {seen.ended.value}")
        if kind is EventKind.LEASED:
            self._leased(event, seen)
        elif kind is EventKind.EXTENDED:
            if seen.until is None or event.fence != seen.fence:
                self._breach("P3", event, "a lease was extended that nobody held")
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
        """Only who holds a valid lease may say these; failing and canceling have other ways too."""
        if event.kind is not EventKind.COMPLETED and event.kind not in GIVES_UP:
            return
        if seen.until is None or event.fence != seen.fence:
            self._breach("P3", event, f"{event.kind.value} by nobody who held it")
        elif event.at >= seen.until:
            self._breach("P3", event, f"{event.kind.value} after its lease had expired")

    def _rescued(self, event: Event, seen: _Seen) -> None:
        if seen.until is None or event.at < seen.until:
            self._breach("P2", event, "rescued from a lease that was valid")
        else:
            self.latest_rescue_us = max(self.latest_rescue_us, event.at - seen.until)
        self._limits.free(event)
        seen.until = None

    def _breach(self, promise: str, event: Event, words: str) -> None:
        self.breaches.append(Breach(promise, event.tenant, event.job_id, event.cursor, words))
