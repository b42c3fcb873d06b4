"""Tiers: the lines and groups that a change of one may open, for claims to check bit by bit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator

from holdfast.core.scope import Scope, ScopeKind
from holdfast.core.tiers import Defaults, concerned
from holdfast.stores.memory.limits import Limits
from holdfast.stores.notifier import Line

Key = tuple[str, ...]
"""What a change concerns; a later one of the same key replaces it."""


class Rechecks:
    """Lines and groups to check, those of the last change first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: OrderedDict[Key, Iterator[Line | Scope]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(
        self, tier: str, before: Defaults, resting: Collection[Line], groups: Collection[Scope]
    ) -> None:
        """Adds those whose limits may have changed with a tier. Which these are is looked up when
        claims check them, so that a change takes no time for each.
        """
        kinds = concerned(tier, before, self._limits.tiers)
        of_lines = [name for name in kinds if kinds[name] != [ScopeKind.GROUP]]
        of_groups = [name for name in kinds if ScopeKind.GROUP in kinds[name]]
        if of_lines:
            self._add(("lines", *of_lines), self._lines_in(set(of_lines), list(resting)))
        if of_groups:
            self._add(("groups", *of_groups), self._groups_in(set(of_groups), list(groups)))

    def add_groups_of(self, tenant: str, groups: Iterable[Scope]) -> None:
        """Adds the groups of a tenant whose tier may have changed."""
        found = [each for each in groups if each.tenant == tenant]
        if found:
            self._add(("tenant", tenant), iter(found))

    def next(self) -> Line | Scope | None:
        """Removes and returns the next one; None if there is no more."""
        while self._left:
            key, iterator = next(iter(self._left.items()))
            found = next(iterator, None)
            if found is not None:
                return found
            del self._left[key]
        return None

    def _add(self, key: Key, iterator: Iterator[Line | Scope]) -> None:
        self._left[key] = iterator
        self._left.move_to_end(key, last=False)

    def _lines_in(self, tiers: set[str], lines: list[Line]) -> Iterator[Line]:
        tier_of = self._limits.tier_of
        return (line for line in lines if tier_of.get(line[0], "") in tiers)

    def _groups_in(self, tiers: set[str], groups: list[Scope]) -> Iterator[Scope]:
        tier_of = self._limits.tier_of
        return (group for group in groups if tier_of.get(group.tenant, "") in tiers)
