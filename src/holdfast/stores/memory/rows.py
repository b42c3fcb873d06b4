"""One job as the memory store keeps it."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, JobRecord, NewJob, Reason, State, edge_bytes
from holdfast.core.journal import awaits_of
from holdfast.core.lifecycle import due_state, seen
from holdfast.core.redact import Redacted
from holdfast.core.scope import Scope, platform_scopes
from holdfast.stores.memory.fairness import Entry
from holdfast.stores.memory.journal import Journal
from holdfast.stores.memory.limits import group_scope, queue_scope
from holdfast.stores.memory.payloads import fixed, own, size_of
from holdfast.stores.notifier import Line

T = TypeVar("T", int, Entry)
AWAITING = (State.WAITING, State.SCHEDULED)
"""States in which a job may await something."""


class Row(Redacted, msgspec.Struct, gc=False):
    """One job, mutable, used only under the store's lock. Satisfies `lifecycle.Movable`.

    It is part of no reference cycle, so the garbage collector need not track it.
    """

    new: NewJob
    seq: int
    line: Line
    group: Scope | None
    size: int
    """Bytes of its payload, its edges and its journal."""
    shared: bool
    """Its payload cannot be changed in place, so all runs may have the same object."""
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
    """The state in which it is counted; None while it is not."""
    token: str | None = None
    lease_until: Micros | None = None
    worker: str | None = None
    finished_at: Micros | None = None
    reason: Reason | None = None
    error: str | None = None
    result: object = None
    progress: str | None = None
    replayed_as: str | None = None
    awaits: str | None = None
    journal: Journal | None = None
    followed: int = 0
    """How many of its edges were followed after its end."""

    @classmethod
    def of(cls, new: NewJob, seq: int, now: Micros) -> Row:
        """A new job, at its enqueue."""
        body = new.envelope.body
        shared = fixed(body)
        new = new if shared else own(new)
        run_at = new.run_at if new.run_at is not None else now + new.delay_us
        return cls(
            new,
            seq,
            (new.tenant, new.queue),
            None if new.group is None else group_scope(new.tenant, new.group),
            size_of(body) + edge_bytes(new),
            shared,
            new.priority,
            now,
            now,
            run_at,
            State.WAITING if new.parents else due_state(run_at, now),
            None if new.ttl_us is None else now + new.ttl_us,
            awaits=awaits_of(new.parents, new.ends_with_parents),
            journal=Journal.of_parents(new.parents, now) if new.parents else None,
        )

    @property
    def rank(self) -> Entry:
        """Its entry in its line."""
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

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Its tenant, its queue and its group."""
        tenant, queue = self.line
        own = (Scope(tenant), queue_scope(tenant, queue))
        return own if self.group is None else (*own, self.group)

    def inside(self, scope: Scope) -> bool:
        """Whether the job is in the scope, which may be one of the platform."""
        own = platform_scopes(self.line[1], self.new.envelope.type)
        return scope in (own if scope.of_platform else self.scopes)

    @property
    def may_retry(self) -> bool:
        """Whether it has attempts left."""
        return self.attempt < self.max_attempts

    def is_late(self, now: Micros) -> bool:
        """Whether it is past its time to live."""
        return self.expires_at is not None and self.expires_at <= now

    def record(self, now: Micros) -> JobRecord:
        new = self.new
        held = self.state is State.PROCESSING
        state = seen(self.state, self.run_at, now)
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
            state,
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
            self.awaits if state in AWAITING else None,
        )


def alive(counts: Counter[State]) -> int:
    """How many of these jobs have not ended."""
    return sum(number for state, number in counts.items() if state not in TERMINAL)


def ordered(heap: list[T]) -> Iterator[T]:
    """The entries of a heap, the smallest first, without changing it. The cost is that of the
    entries that are taken.
    """
    front = [(heap[0], 0)] if heap else []
    while front:
        entry, place = heapq.heappop(front)
        yield entry
        for child in (2 * place + 1, 2 * place + 2):
            if child < len(heap):
                heapq.heappush(front, (heap[child], child))
