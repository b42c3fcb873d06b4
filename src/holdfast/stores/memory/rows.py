"""One job as the memory store keeps it."""

from __future__ import annotations

from collections import Counter

from holdfast.clock import Micros
from holdfast.job import TERMINAL, JobRecord, NewJob, Reason, State
from holdfast.lifecycle import seen
from holdfast.scope import Scope, ScopeKind
from holdfast.stores.bell import Line
from holdfast.stores.memory.gates import group_scope
from holdfast.stores.memory.lines import Entry


class Row:
    """One job, mutable, seen only under the store's lock. Satisfies `lifecycle.Held`."""

    __slots__ = (
        "attempt",
        "counted",
        "counters",
        "created_at",
        "error",
        "expires_at",
        "fence",
        "finished_at",
        "group",
        "lapses",
        "lease_until",
        "line",
        "misses",
        "new",
        "priority",
        "progress",
        "reason",
        "replayed_as",
        "result",
        "run_at",
        "seq",
        "size",
        "stamp",
        "state",
        "token",
        "updated_at",
        "worker",
    )

    def __init__(self, new: NewJob, seq: int, now: Micros) -> None:
        self.new = new
        self.seq = seq
        self.line: Line = (new.tenant, new.queue)
        self.group = None if new.group is None else group_scope(new.tenant, new.group)
        body = new.envelope.body
        self.size = len(body) if isinstance(body, bytes) else 0
        """Bytes of its payload; objects that are handed over have none."""
        self.counters: tuple[Counter[State], ...] = ()
        """Of its queue, its tenant and its group."""
        self.priority = new.priority
        self.created_at = self.updated_at = now
        self.run_at = new.run_at if new.run_at is not None else now + new.delay_us
        self.state = State.SCHEDULED if self.run_at > now else State.ENQUEUED
        self.expires_at = None if new.ttl_us is None else now + new.ttl_us
        self.attempt = self.fence = self.lapses = self.misses = self.stamp = 0
        self.counted: State | None = None
        """The state it is counted in; None while it is not."""
        self.token: str | None = None
        self.lease_until: Micros | None = None
        self.worker: str | None = None
        self.finished_at: Micros | None = None
        self.reason: Reason | None = None
        self.error: str | None = None
        self.result: object = None
        self.progress: str | None = None
        self.replayed_as: str | None = None

    @property
    def rank(self) -> Entry:
        """Its place in its line."""
        return -self.priority, self.seq, self.stamp

    @property
    def max_attempts(self) -> int:
        return self.new.rules.max_attempts

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
            new.envelope,
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
