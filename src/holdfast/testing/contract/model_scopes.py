"""The model of limits, pauses and order: the use of a limit is counted job by job.

An expired lease with attempts left does not count (P10: the next claim may take its job). One
without attempts left counts until the upkeep has failed the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.scope import (
    NO_SETTINGS,
    Scope,
    ScopeKind,
    ScopeSettings,
    group_settings,
    platform_scopes,
)
from holdfast.core.tiers import Defaults, Layer, effective
from holdfast.testing.contract.model_item import Item


class Words:
    """The latest settings of each scope and each tier."""

    def __init__(self) -> None:
        self.said: dict[Scope, ScopeSettings] = {}
        self.tiers: dict[str, Defaults] = {}

    def set(self, scope: Scope, settings: ScopeSettings) -> None:
        self.said[scope] = settings

    def of(self, scope: Scope) -> ScopeSettings:
        """Its own."""
        return self.said.get(scope, NO_SETTINGS)

    def most(self, scope: Scope, queue: str) -> int | None:
        """The running limit that counts for jobs of a queue; 1 for an ordered group."""
        if scope.kind is not ScopeKind.GROUP:
            return self._effective(scope).max_running
        line = self._effective(Scope(scope.tenant, ScopeKind.QUEUE, queue))
        return group_settings(self.of(scope), line).max_running

    def _effective(self, scope: Scope) -> ScopeSettings:
        if scope.of_platform:
            return self.of(scope)
        names = (self.of(Scope(scope.tenant)).tier, "")
        layers = [Layer(name, self.tiers[name]) for name in names if name in self.tiers]
        return effective(self.of(scope), scope.kind, layers)


class Usage:
    """The use of limits at an instant, and whether a job has room."""

    def __init__(self, words: Words, items: Iterable[Item], now: Micros) -> None:
        self._words = words
        self._running: Counter[Scope] = Counter()
        self._heads: dict[Scope, int] = {}
        for item in items:
            if item.state is State.PROCESSING and (item.until > now or item.spent):
                self._running.update(scopes_of(item))
            if not item.over and (group := group_of(item)) is not None:
                self._heads[group] = min(item.seq, self._heads.get(group, item.seq))

    def fits(self, item: Item) -> bool:
        """P13: no scope of a job that was just leased is paused or above its limit."""
        within = all(self._within(scope, item.new.queue) for scope in scopes_of(item))
        return within and self._first(item)

    def _within(self, scope: Scope, queue: str) -> bool:
        most = self._words.most(scope, queue)
        paused = self._words.of(scope).paused is not None
        return not paused and (most is None or self._running[scope] <= most)

    def blocked(self, item: Item) -> bool:
        """Asserts that a job that was not leased had no room."""
        full = any(self._full(scope, item.new.queue) for scope in scopes_of(item))
        return full or not self._first(item)

    def blocked_by_group(self, item: Item) -> bool:
        group = group_of(item)
        return group is not None and (self._full(group, item.new.queue) or not self._first(item))

    def blocked_by_type(self, item: Item) -> bool:
        return self._full(Scope("", ScopeKind.TYPE, item.new.envelope.type), item.new.queue)

    def _full(self, scope: Scope, queue: str) -> bool:
        most = self._words.most(scope, queue)
        paused = self._words.of(scope).paused is not None
        return paused or (most is not None and self._running[scope] >= most)

    def ordered(self, item: Item) -> bool:
        group = group_of(item)
        return group is not None and bool(self._words.of(group).ordered)

    def _first(self, item: Item) -> bool:
        """Whether its group allows it to run before the others that have not ended."""
        group = group_of(item)
        return group is None or not self.ordered(item) or self._heads[group] == item.seq


def group_of(item: Item) -> Scope | None:
    group = item.new.group
    return None if group is None else Scope(item.new.tenant, ScopeKind.GROUP, group)


def scopes_of(item: Item) -> list[Scope]:
    """All scopes of a job, those of the platform included."""
    tenant, group = item.new.tenant, group_of(item)
    over_all = platform_scopes(item.new.queue, item.new.envelope.type)
    found = [*over_all, Scope(tenant), Scope(tenant, ScopeKind.QUEUE, item.new.queue)]
    return found if group is None else [*found, group]
