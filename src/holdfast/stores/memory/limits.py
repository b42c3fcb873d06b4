"""Limits, rates, pauses and slots: how many jobs of a scope may start now, and what a tenant may
have at most.

    settings  Scope -> ScopeSettings
    running   how many jobs of a scope are held, asked of `Tables`
    buckets   Scope -> Bucket             tokens left of a rate
    slots     Scope -> {id: until}        places that outsiders hold

A room of UNLIMITED means that nothing limits the scope.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.clock import Micros
from holdfast.core.scope import (
    NO_SETTINGS,
    Bucket,
    GroupSettings,
    Rate,
    Scope,
    ScopeKind,
    ScopeSettings,
    group_settings,
)
from holdfast.stores.notifier import Line

UNLIMITED = 1 << 60
FULL = Bucket()


def queue_scope(tenant: str, queue: str) -> Scope:
    return Scope(tenant, ScopeKind.QUEUE, queue)


def group_scope(tenant: str, group: str) -> Scope:
    return Scope(tenant, ScopeKind.GROUP, group)


class Limits:
    """Says how much room scopes have; changes nothing but buckets and slots."""

    def __init__(self, running: Callable[[Scope], int]) -> None:
        self.running = running
        self.settings: dict[Scope, ScopeSettings] = {}
        self.slots: dict[Scope, dict[str, Micros]] = {}
        self._buckets: dict[Scope, Bucket] = {}

    def of(self, scope: Scope) -> ScopeSettings:
        return self.settings.get(scope, NO_SETTINGS)

    def group(self, scope: Scope, queue: str) -> GroupSettings:
        """What holds for the jobs of a group that are in a queue."""
        return group_settings(self.of(scope), self.of(queue_scope(scope.tenant, queue)))

    def line_room(self, tenant: str, queue: str, now: Micros) -> int:
        """How many jobs of a line may start, as far as its tenant and its queue go."""
        if not self.settings:
            return UNLIMITED
        return min(
            self._room(scope, self.of(scope), now)
            for scope in (Scope(tenant), queue_scope(tenant, queue))
        )

    def group_room(self, scope: Scope, queue: str, now: Micros) -> int:
        """How many jobs of a group may start, as far as the group goes."""
        if not self.settings:
            return UNLIMITED
        return self._room(scope, self.group(scope, queue), now)

    def _room(self, scope: Scope, settings: ScopeSettings | GroupSettings, now: Micros) -> int:
        if settings.paused is not None:
            return 0
        room = UNLIMITED
        if settings.max_running is not None:
            taken = self.running(scope)
            if settings.slots_count:
                taken += len(self.live_slots(scope, now))
            room = settings.max_running - taken
        if settings.rate is not None:
            room = min(room, self._bucket(scope).tokens(settings.rate, now))
        return max(0, room)

    def live_slots(self, scope: Scope, now: Micros) -> dict[str, Micros]:
        """The places that outsiders hold now."""
        held = self.slots.get(scope, {})
        return {id: until for id, until in held.items() if until > now}

    # -- rates -----------------------------------------------------------------------------------

    def _bucket(self, scope: Scope) -> Bucket:
        return self._buckets.get(scope, FULL)

    def start(self, line: Line, group: Scope | None, now: Micros) -> None:
        """Takes the tokens of a job that starts."""
        for scope in (Scope(line[0]), queue_scope(*line)):
            self._take_token(scope, self.of(scope).rate, now)
        if group is not None:
            self._take_token(group, self.group(group, line[1]).rate, now)

    def _take_token(self, scope: Scope, rate: Rate | None, now: Micros) -> None:
        if rate is not None:
            self._buckets[scope] = self._bucket(scope).take(rate, 1, now)

    def bound_bucket(self, scope: Scope, rate: Rate | None, now: Micros) -> None:
        """Applies a new rate from now on: a bucket is never emptier than empty."""
        if rate is not None and scope in self._buckets:
            self._buckets[scope] = self._buckets[scope].bounded(rate, now)

    def next_token(self, scope: Scope, rate: Rate | None, now: Micros) -> Micros | None:
        """When an empty bucket has its next token; None when the bucket is not empty."""
        if rate is None or self._bucket(scope).tokens(rate, now) > 0:
            return None
        return self._bucket(scope).next_at(rate, now)
