"""One job as the memory store keeps it."""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.clock import Micros
from holdfast.job import TERMINAL, JobRecord, NewJob, Reason, State
from holdfast.lifecycle import seen
from holdfast.redact import Redacted
from holdfast.scope import Scope, ScopeKind
from holdfast.stores.bell import Line
from holdfast.stores.memory.bodies import fixed, own, size_of
from holdfast.stores.memory.gates import group_scope
from holdfast.stores.memory.lines import Entry


class Row(Redacted, msgspec.Struct, gc=False):
    """One job, mutable, seen only under the store's lock. Satisfies `lifecycle.Held`.

    It is part of no cycle, so the collector need not look at it.
    """

    new: NewJob
    seq: int
    line: Line
    group: Scope | None
    size: int
    """Bytes of its payload."""
    shared: bool
    """Nobody can change its payload in place, so all runs may have the same."""
    priority: int
    created_at: Micros
    updated_at: Micros
    run_at: Micros
    state: State
    expires_at: Micros | None
    counters: tuple[Counter[State], ...] = ()
    """Of its queue, its tenant and its group."""
    attempt: int = 0
    fence: int = 0
    lapses: int = 0
    misses: int = 0
    stamp: int = 0
    counted: State | None = None
    """The state it is counted in; None while it is not."""
    token: str | None = None
    lease_until: Micros | None = None
    worker: str | None = None
    finished_at: Micros | None = None
    reason: Reason | None = None
    error: str | None = None
    result: object = None
    progress: str | None = None
    replayed_as: str | None = None

    @classmethod
    def of(cls, new: NewJob, seq: int, now: Micros) -> Row:
        """A new job, at its enqueue."""
        new = own(new)
        body = new.envelope.body
        run_at = new.run_at if new.run_at is not None else now + new.delay_us
        return cls(
            new,
            seq,
            (new.tenant, new.queue),
            None if new.group is None else group_scope(new.tenant, new.group),
            size_of(body),
            fixed(body),
            new.priority,
            now,
            now,
            run_at,
            State.SCHEDULED if run_at > now else State.ENQUEUED,
            None if new.ttl_us is None else now + new.ttl_us,
        )

    @property
    def rank(self) -> Entry:
        """Its place in its line."""
        return -self.priority, self.seq, self.stamp

    @property
    def max_attempts(self) -> int:
        return self.new.rules.max_attempts

    @property
    def keep_until(self) -> Micros:
        """When the record of an ended job may go."""
        rules = self.new.rules
        keep = rules.keep_failed_us if self.state is State.FAILED else rules.keep_us
        return (self.finished_at or 0) + keep

    def inside(self, scope: Scope) -> bool:
        """Whether it belongs to the scope."""
        tenant, queue = self.line
        if tenant != scope.tenant:
            return False
        names = {ScopeKind.QUEUE: queue, ScopeKind.GROUP: self.new.group}
        return scope.kind is ScopeKind.TENANT or names[scope.kind] == scope.part

    def record(self, now: Micros) -> JobRecord:
        new = self.new
        held = self.state is State.PROCESSING
        return JobRecord(
            new.tenant,
            new.id,
            new.queue,
            new.envelope if self.shared else own(new).envelope,
            new.rules,
            self.priority,
            new.key,
            new.group,
            new.tags,
            new.origin,
            self.seq,
            seen(self.state, self.run_at, now),
            self.attempt,
            self.fence,
            self.lapses,
            self.misses,
            self.created_at,
            self.updated_at,
            self.run_at,
            self.expires_at,
            self.lease_until if held else None,
            self.worker if held else None,
            self.finished_at,
            self.reason,
            self.error,
            self.result,
            self.progress,
            self.replayed_as,
        )


def alive(counts: Counter[State]) -> int:
    """How many of these jobs have not ended."""
    return sum(number for state, number in counts.items() if state not in TERMINAL)
