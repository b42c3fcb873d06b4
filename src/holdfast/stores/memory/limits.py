"""Limits, rates, pauses and slots: how many jobs of a scope may start now, and what a tenant may
have at most.

    settings  Scope -> ScopeSettings
    running   how many jobs of a scope are held, asked of `Tables`
    buckets   Scope -> Bucket             tokens left of a rate
    slots     Scope -> {id: until}        places that outsiders hold
    platform  Scope -> ScopeSettings      those of `settings` that are the platform's
    tiers     name -> Defaults            "": the platform's defaults
    counting  own settings, kind, tier -> ScopeSettings      what counts, as far as asked for

A room of UNLIMITED means that nothing limits the scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.core.clock import Micros
from holdfast.core.rate import Bucket, Rate
from holdfast.core.scope import (
    NO_SETTINGS,
    GroupSettings,
    Scope,
    ScopeKind,
    ScopeSettings,
    group_settings,
    platform_scopes,
)
from holdfast.core.scope import PLATFORM as WHOLE
from holdfast.core.tiers import Defaults, Layer, effective, layers_of
from holdfast.stores.notifier import Line

UNLIMITED = 1 << 60
FULL = Bucket()
_WHOLE = (WHOLE,)
_WHOLE_ONLY = frozenset({ScopeKind.PLATFORM})
COUNTING_MAX = 10_000
"""Different settings of which the values that count are kept."""


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
        self.platform: dict[Scope, ScopeSettings] = {}
        self.platform_kinds: frozenset[ScopeKind] = frozenset()
        """Of the scopes of `platform`."""
        self.tiers: dict[str, Defaults] = {}
        self.tier_users: Counter[str] = Counter()
        """How many tenants are in each tier."""
        self.tier_of: dict[str, str] = {}
        """Of the tenants that are in one."""
        self._counting: dict[tuple[ScopeSettings, ScopeKind, str | None], ScopeSettings] = {}
        self._tiers_changed: tuple[int, Micros] = (0, 0)
        """How often a tier has changed, and when it did last."""
        self._buckets: dict[Scope, tuple[Bucket, int]] = {}
        """With how often a tier had changed when the last token was taken."""

    def of(self, scope: Scope) -> ScopeSettings:
        """The settings that count for a scope: its own, and what its tenant's tier fills in."""
        own = self.settings.get(scope, NO_SETTINGS)
        if not self.tiers or scope.of_platform:
            return own
        tier = self.tier_of.get(scope.tenant)
        key = own, scope.kind, tier
        found = self._counting.get(key)
        if found is None:
            if len(self._counting) >= COUNTING_MAX:
                self._counting.clear()
            found = self._counting[key] = effective(own, scope.kind, self._layers(tier))
        return found

    def _layers(self, tier: str | None) -> list[Layer]:
        """A tier and the platform's defaults, as far as they exist."""
        return layers_of(tier, self.tiers)

    @property
    def any(self) -> bool:
        """Whether any tenant may have a limit."""
        return len(self.settings) > len(self.platform) or bool(self.tiers)

    def group(self, scope: Scope, queue: str) -> GroupSettings:
        """What holds for the jobs of a group that are in a queue."""
        return group_settings(self.of(scope), self.of(queue_scope(scope.tenant, queue)))

    def line_room(self, tenant: str, queue: str, now: Micros) -> int:
        """How many jobs of a line may start, as far as its tenant and its queue go."""
        if not self.any:
            return UNLIMITED
        return min(
            self._room(scope, self.of(scope), now)
            for scope in (Scope(tenant), queue_scope(tenant, queue))
        )

    def group_room(self, scope: Scope, queue: str, now: Micros) -> int:
        """How many jobs of a group may start, as far as the group goes."""
        if not self.any:
            return UNLIMITED
        return self._room(scope, self.group(scope, queue), now)

    def platform_room(self, scope: Scope, now: Micros) -> int:
        """How many jobs of a scope of the platform may start."""
        settings = self.platform.get(scope)
        return UNLIMITED if settings is None else self._room(scope, settings, now)

    def platform_scopes(self, queue: str, type: str) -> Sequence[Scope]:
        """The scopes of the platform that a job is in and that have settings."""
        if self.platform_kinds == _WHOLE_ONLY:
            return _WHOLE
        return [scope for scope in platform_scopes(queue, type) if scope in self.platform]

    def platform_is_full(self, now: Micros) -> bool:
        """Whether the store as a whole has no room, and time alone does not make any."""
        if self.platform_room(WHOLE, now) > 0:
            return False
        return self.next_token(WHOLE, self.of(WHOLE).rate, now) is None

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
            room = min(room, self._bucket(scope, settings.rate).tokens(settings.rate, now))
        return max(0, room)

    def live_slots(self, scope: Scope, now: Micros) -> dict[str, Micros]:
        """The places that outsiders hold now."""
        held = self.slots.get(scope, {})
        return {id: until for id, until in held.items() if until > now}

    # -- rates -----------------------------------------------------------------------------------

    def _bucket(self, scope: Scope, rate: Rate) -> Bucket:
        bucket, changes = self._buckets.get(scope, (FULL, 0))
        if changes < self._tiers_changed[0] and not scope.of_platform:
            return bucket.bounded(rate, self._tiers_changed[1])
        return bucket

    def set(self, scope: Scope, settings: ScopeSettings | None, now: Micros) -> None:
        """The settings of a scope from now on; None: it has none."""
        rate = self.of(scope).rate
        if rate is not None and scope in self._buckets:
            # What a change of a tier did to the bucket goes by the rate that it left.
            self._keep(scope, self._bucket(scope, rate))
        if scope.kind is ScopeKind.TENANT:
            self._put_into_tier(scope.tenant, None if settings is None else settings.tier, now)
        for stored in (self.settings, self.platform) if scope.of_platform else (self.settings,):
            if settings is None:
                stored.pop(scope, None)
            else:
                stored[scope] = settings
        self.platform_kinds = frozenset(each.kind for each in self.platform)

    def set_tier(self, tier: str, defaults: Defaults | None, now: Micros) -> None:
        """What a tier, or the platform for "", sets from now on; None: it is gone. Buckets are
        brought to a new rate when they are used.
        """
        self._counting.clear()
        self._change_rates(now)
        if defaults is None:
            self.tiers.pop(tier, None)
        else:
            self.tiers[tier] = defaults

    def _change_rates(self, now: Micros) -> None:
        """A tier, or the tier of a tenant, has changed: no bucket is emptier than empty now."""
        self._tiers_changed = self._tiers_changed[0] + 1, now

    def _put_into_tier(self, tenant: str, tier: str | None, now: Micros) -> None:
        before = self.tier_of.pop(tenant, None)
        if before != tier:
            self._change_rates(now)
        if before is not None:
            self.tier_users[before] -= 1
        if tier is not None:
            self.tier_of[tenant] = tier
            self.tier_users[tier] += 1

    def start(self, line: Line, group: Scope | None, now: Micros) -> None:
        """Takes the tokens of a job that starts, from its tenant, its queue and its group."""
        for scope in (Scope(line[0]), queue_scope(*line)):
            self._take_tokens(scope, self.of(scope).rate, 1, now)
        if group is not None:
            self._take_tokens(group, self.group(group, line[1]).rate, 1, now)

    def start_over_all(self, scope: Scope, number: int, now: Micros) -> None:
        """Takes the tokens of jobs that start, from a scope of the platform."""
        settings = self.platform.get(scope)
        if settings is not None:
            self._take_tokens(scope, settings.rate, number, now)

    def _take_tokens(self, scope: Scope, rate: Rate | None, number: int, now: Micros) -> None:
        if rate is not None:
            self._keep(scope, self._bucket(scope, rate).take(rate, number, now))

    def bound_bucket(self, scope: Scope, rate: Rate | None, now: Micros) -> None:
        """Applies a new rate from now on: a bucket is never emptier than empty."""
        if rate is not None and scope in self._buckets:
            self._keep(scope, self._bucket(scope, rate).bounded(rate, now))

    def _keep(self, scope: Scope, bucket: Bucket) -> None:
        self._buckets[scope] = bucket, self._tiers_changed[0]

    def next_token(self, scope: Scope, rate: Rate | None, now: Micros) -> Micros | None:
        """When an empty bucket has its next token; None when the bucket is not empty."""
        if rate is None or self._bucket(scope, rate).tokens(rate, now) > 0:
            return None
        return self._bucket(scope, rate).next_at(rate, now)
