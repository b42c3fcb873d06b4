"""Tiers: the lines and groups that a change of one may open, for claims to check bit by bit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from holdfast.core.scope import Scope, ScopeKind
from holdfast.stores.notifier import Line


class Rechecks:
    """Lines and groups to check, those of the last change first."""

    def __init__(self, tier_of: Mapping[str, str]) -> None:
        self._tier_of = tier_of
        self._left: OrderedDict[Line | Scope, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(
        self,
        kinds: Mapping[str, list[ScopeKind]],
        resting: Iterable[Line],
        groups: Iterable[Scope],
    ) -> None:
        """Adds those whose limits have changed, given the kinds of scopes by tier."""
        of_lines = {name for name in kinds if kinds[name] != [ScopeKind.GROUP]}
        of_groups = {name for name in kinds if ScopeKind.GROUP in kinds[name]}
        tier_of = self._tier_of
        lines = [line for line in resting if tier_of.get(line[0], "") in of_lines]
        scopes = [each for each in groups if tier_of.get(each.tenant, "") in of_groups]
        self._left = OrderedDict.fromkeys([*lines, *scopes, *self._left])

    def add_groups_of(self, tenant: str, groups: Iterable[Scope]) -> None:
        """Adds the groups of a tenant whose tier may have changed."""
        self._left.update(dict.fromkeys(each for each in groups if each.tenant == tenant))

    def pop(self) -> Line | Scope:
        return self._left.popitem(last=False)[0]
