"""What may start now: the limits, rates, pauses and slots of tenants, queues and groups.

    settings  Scope -> ScopeSettings
    running   how many jobs of a scope are held, asked of `Tables`
    buckets   Scope -> Bucket             tokens left of a rate
    slots     Scope -> {id: until}        places that outsiders hold

A room of UNLIMITED means that nothing gates the scope.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.clock import Micros
from holdfast.scope import (
    NO_SETTINGS,
    Bucket,
    GroupGate,
    Rate,
    Scope,
    ScopeKind,
    ScopeSettings,
    group_gate,
)
from holdfast.stores.bell import Line

UNLIMITED = 1 << 60
FULL = Bucket()


def tenant_scope(tenant: str) -> Scope:
    return Scope(tenant)


def queue_scope(tenant: str, queue: str) -> Scope:
    return Scope(tenant, ScopeKind.QUEUE, queue)


def group_scope(tenant: str, group: str) -> Scope:
    return Scope(tenant, ScopeKind.GROUP, group)


class Gates:
    """Says what there is room for; changes nothing but buckets and slots."""

    def __init__(self, running: Callable[[Scope], int]) -> None:
        self.running = running
        self.settings: dict[Scope, ScopeSettings] = {}
        self.slots: dict[Scope, dict[str, Micros]] = {}
        self._buckets: dict[Scope, Bucket] = {}

    def of(self, scope: Scope) -> ScopeSettings:
        return self.settings.get(scope, NO_SETTINGS)

    def group(self, scope: Scope, queue: str) -> GroupGate:
        """What holds for the jobs of a group that stand in a queue."""
        return group_gate(self.of(scope), self.of(queue_scope(scope.tenant, queue)))

    def line_room(self, tenant: str, queue: str, now: Micros) -> int:
        """How many jobs of a line may start, as far as its tenant and its queue go."""
        if not self.settings:
            return UNLIMITED
        return min(
            self._room(scope, self.of(scope), now)
            for scope in (tenant_scope(tenant), queue_scope(tenant, queue))
        )

    def group_room(self, scope: Scope, queue: str, now: Micros) -> int:
        """How many jobs of a group may start, as far as the group goes."""
        if not self.settings:
            return UNLIMITED
        return self._room(scope, self.group(scope, queue), now)

    def _room(self, scope: Scope, gate: ScopeSettings | GroupGate, now: Micros) -> int:
        if gate.paused is not None:
            return 0
        room = UNLIMITED
        if gate.max_running is not None:
            taken = self.running(scope)
            if gate.slots_count:
                taken += len(self.live_slots(scope, now))
            room = gate.max_running - taken
        if gate.rate is not None:
            room = min(room, self.bucket(scope).tokens(gate.rate, now))
        return max(0, room)

    def bucket(self, scope: Scope) -> Bucket:
        return self._buckets.get(scope, FULL)

    def spend(self, line: Line, number: int, now: Micros) -> None:
        """Takes the tokens of jobs that start in a line."""
        if self.settings:
            for scope in (tenant_scope(line[0]), queue_scope(*line)):
                self._spend(scope, self.of(scope).rate, number, now)

    def spend_group(self, scope: Scope, queue: str, now: Micros) -> None:
        if self.settings:
            self._spend(scope, self.group(scope, queue).rate, 1, now)

    def _spend(self, scope: Scope, rate: Rate | None, number: int, now: Micros) -> None:
        if rate is not None:
            self._buckets[scope] = self.bucket(scope).take(rate, number, now)

    def bound(self, scope: Scope, rate: Rate | None, now: Micros) -> None:
        """Lets a new rate count from now: a bucket is never emptier than empty."""
        if rate is not None and scope in self._buckets:
            self._buckets[scope] = self._buckets[scope].bounded(rate, now)

    def next_token(self, scope: Scope, rate: Rate | None, now: Micros) -> Micros | None:
        """When an empty bucket has its next token; None when it is not the bucket that is empty."""
        if rate is None or self.bucket(scope).tokens(rate, now) > 0:
            return None
        return self.bucket(scope).next_at(rate, now)

    def live_slots(self, scope: Scope, now: Micros) -> dict[str, Micros]:
        """The places that outsiders hold now; what has expired is forgotten."""
        held = self.slots.get(scope)
        if held is None:
            return {}
        for id in [id for id, until in held.items() if until <= now]:
            del held[id]
        return held
