"""Running limits, rates and pauses as the event log tells them, for `audit.py`. Pure.

A change of a scope or a tier is an event, and so is each start. So the log alone shows which limits
counted at a start, and whether it was within them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.core import tiers
from holdfast.core.clock import Micros
from holdfast.core.job import Event
from holdfast.core.rate import Bucket, Rate
from holdfast.core.scope import (
    NO_SETTINGS,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    group_settings,
    platform_scopes,
    scope_of,
)

GroupOf = Callable[[str, str], str | None]
"""Returns the group of a job, given its tenant and id."""


class _Counting(msgspec.Struct, frozen=True):
    """What counts for a scope."""

    max_running: int | None
    rate: Rate | None
    paused: bool


class AuditedLimits:
    """The limits in force, the leases that count against them, and the tokens of their rates."""

    def __init__(self, group_of: GroupOf, slack_us: Micros = 0, copies_us: Micros = 0) -> None:
        """See `Audit`."""
        self._group_of = group_of
        self._slack_us = slack_us
        self._copies_us = copies_us
        self._replaced: list[tuple[Micros, dict[str, tiers.Defaults]]] = []
        """The tiers before recent changes, each until the instant from which it cannot count."""
        self._settings: dict[Scope, ScopeSettings] = {}
        self._tiers: dict[str, tiers.Defaults] = {}
        self._counting: dict[tuple[Scope, str], _Counting] = {}
        """What counts in a scope, and for a group in a queue; filled in as it is asked for."""
        self._held: dict[Scope, dict[tuple[str, str], Micros]] = {}
        self._buckets: dict[Scope, tuple[Bucket, str]] = {}
        """With the queue of the job that took the last token."""

    # -- what counts -----------------------------------------------------------------------------

    def configured(self, event: Event) -> None:
        """Applies a changed setting from this event on."""
        self._counting.clear()
        text = (event.note or "").encode()
        scope, tier = scope_of(event.job_id), tiers.tier_of(event.job_id)
        if tier is not None and self._copies_us:
            self._replaced.append((event.at + self._copies_us, dict(self._tiers)))
        if scope is not None:
            self._settings[scope] = decode(event.job_id, text) if text else NO_SETTINGS
        elif tier is not None and text:
            self._tiers[tier] = tiers.decode(event.job_id, text)
        elif tier is not None:
            self._tiers.pop(tier, None)
        self._bound_buckets(None if scope is None else scope.tenant, event.at)

    def _bound_buckets(self, tenant: str | None, at: Micros) -> None:
        """Brings the buckets of a tenant, or of all, to the rates that count from now on."""
        for scope, (bucket, queue) in self._buckets.items():
            rate = self._of(scope, queue).rate
            if rate is not None and tenant in (None, scope.tenant):
                self._buckets[scope] = bucket.bounded(rate, at), queue

    def _of(self, scope: Scope, queue: str) -> _Counting:
        """What counts for the jobs of a scope that are in a queue."""
        found = self._counting.get((scope, queue))
        if found is None:
            found = self._counting[scope, queue] = self._looked_up(scope, queue)
        return found

    def _looked_up(self, scope: Scope, queue: str) -> _Counting:
        if scope.kind is ScopeKind.GROUP:
            line = self._effective(Scope(scope.tenant, ScopeKind.QUEUE, queue))
            group = group_settings(self._settings.get(scope, NO_SETTINGS), line)
            return _Counting(group.max_running, group.rate, group.paused is not None)
        settings = self._effective(scope)
        return _Counting(settings.max_running, settings.rate, settings.paused is not None)

    def _effective(self, scope: Scope) -> ScopeSettings:
        own = self._settings.get(scope, NO_SETTINGS)
        if scope.of_platform or not self._tiers:
            return own
        names = (self._settings.get(Scope(scope.tenant), NO_SETTINGS).tier, "")
        layers = [
            tiers.Layer(name or tiers.PLATFORM, self._tiers[name])
            for name in names
            if name is not None and name in self._tiers
        ]
        return tiers.effective(own, scope.kind, layers)

    def _scopes(self, event: Event) -> Iterator[Scope]:
        yield from platform_scopes(event.queue, event.type)
        yield Scope(event.tenant)
        yield Scope(event.tenant, ScopeKind.QUEUE, event.queue)
        group = self._group_of(event.tenant, event.job_id)
        if group is not None:
            yield Scope(event.tenant, ScopeKind.GROUP, group)

    # -- leases ----------------------------------------------------------------------------------

    def held(self, event: Event) -> None:
        """Records that a lease was taken or renewed."""
        name = (event.tenant, event.job_id)
        for scope in self._scopes(event):
            self._held.setdefault(scope, {})[name] = event.until or event.at

    def free(self, event: Event) -> None:
        """Records that a lease has ended."""
        for scope in self._scopes(event):
            self._held.get(scope, {}).pop((event.tenant, event.job_id), None)

    def started(self, event: Event) -> str | None:
        """Records a new lease. Returns which limit, rate or pause it breaks, in words."""
        self.held(event)
        broken = None
        for scope in self._scopes(event):
            counting = self._of(scope, event.queue)
            # Each rate loses its token, also where another limit is exceeded already.
            fast = counting.rate and self._too_fast(scope, counting.rate, event)
            paused = f"{scope.words} started a job while it was paused" if counting.paused else None
            most = self._too_many(scope, counting.max_running, event.at)
            if (most or fast) and self._fits_replaced(scope, event):
                most = fast = None
            broken = broken or most or fast or paused
        return broken

    def _fits_replaced(self, scope: Scope, event: Event) -> bool:
        """Whether the start is within the limits by the tiers before a change that not all shards
        of the store may have heard of. Rates are not judged meanwhile.
        """
        self._replaced = [each for each in self._replaced if each[0] > event.at]
        if scope.of_platform:
            return False
        now = self._tiers
        try:
            for _, before in self._replaced:
                self._tiers = before
                most = self._looked_up(scope, event.queue).max_running
                if self._too_many(scope, most, event.at) is None:
                    return True
        finally:
            self._tiers = now
        return False

    def _too_many(self, scope: Scope, most: int | None, at: Micros) -> str | None:
        if most is None or len(self._held[scope]) <= most:
            return None
        live = sum(until > at for until in self._held[scope].values())
        if live <= most:
            return None
        return f"{scope.words} has {live} valid leases, its limit is {most}"

    def _too_fast(self, scope: Scope, rate: Rate, event: Event) -> str | None:
        """Takes a token; says so if there was none."""
        bucket, _ = self._buckets.get(scope, (Bucket(), ""))
        has_token = bucket.tokens(rate, event.at + self._slack_us) > 0
        self._buckets[scope] = bucket.take(rate, 1, event.at), event.queue
        return None if has_token else f"{scope.words} started a job above its rate of {rate.words}"
