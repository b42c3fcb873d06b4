"""Limits, pauses and order from the promises: who holds a place is counted job by job.

A lapsed lease with attempts left holds no place (P10: the next claim may give its job away); one
without holds its place until upkeep has ended it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.clock import Micros
from holdfast.job import State
from holdfast.scope import NO_SETTINGS, Scope, ScopeKind, ScopeSettings
from holdfast.testing.contract.model import Item


class Words:
    """What was last said of each scope."""

    def __init__(self) -> None:
        self.said: dict[Scope, ScopeSettings] = {}

    def set(self, scope: Scope, settings: ScopeSettings) -> None:
        self.said[scope] = settings

    def of(self, scope: Scope) -> ScopeSettings:
        return self.said.get(scope, NO_SETTINGS)

    def most(self, scope: Scope) -> int | None:
        """How many may run at a time; an ordered group runs one."""
        said = self.of(scope)
        return 1 if said.ordered else said.max_running


class Places:
    """Who holds which place at an instant, and who could have one."""

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
        """P13: of a job that was just leased: nothing it is in is paused or above its limit."""
        return all(self._within(scope) for scope in scopes_of(item)) and self._first(item)

    def _within(self, scope: Scope) -> bool:
        most = self._words.most(scope)
        paused = self._words.of(scope).paused is not None
        return not paused and (most is None or self._running[scope] <= most)

    def blocked(self, item: Item) -> bool:
        """Of a job that was not leased: it could not have been."""
        return any(self._full(scope) for scope in scopes_of(item)) or not self._first(item)

    def blocked_by_group(self, item: Item) -> bool:
        group = group_of(item)
        return group is not None and (self._full(group) or not self._first(item))

    def _full(self, scope: Scope) -> bool:
        most = self._words.most(scope)
        paused = self._words.of(scope).paused is not None
        return paused or (most is not None and self._running[scope] >= most)

    def ordered(self, item: Item) -> bool:
        group = group_of(item)
        return group is not None and bool(self._words.of(group).ordered)

    def _first(self, item: Item) -> bool:
        """Whether its group lets it go before the others that have not ended."""
        group = group_of(item)
        return group is None or not self.ordered(item) or self._heads[group] == item.seq


def group_of(item: Item) -> Scope | None:
    group = item.new.group
    return None if group is None else Scope(item.new.tenant, ScopeKind.GROUP, group)


def scopes_of(item: Item) -> list[Scope]:
    """All that it is inside of."""
    tenant, group = item.new.tenant, group_of(item)
    found = [Scope(tenant), Scope(tenant, ScopeKind.QUEUE, item.new.queue)]
    return found if group is None else [*found, group]
