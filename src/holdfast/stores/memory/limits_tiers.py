"""Tiers: the lines and groups that a change of one may open, for claims to check bit by bit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from holdfast.core.scope import Scope, ScopeKind
from holdfast.core.tiers import Defaults, concerned
from holdfast.stores.memory.limits import Limits
from holdfast.stores.notifier import Line


class Rechecks:
    """Lines and groups to check, those of the last change first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: OrderedDict[Line | Scope, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(
        self, tier: str, before: Defaults, resting: Iterable[Line], groups: Iterable[Scope]
    ) -> None:
        """Adds those whose limits may have changed with a tier."""
        kinds = concerned(tier, before, self._limits.tiers)
        of_lines = {name for name in kinds if kinds[name] != [ScopeKind.GROUP]}
        of_groups = {name for name in kinds if ScopeKind.GROUP in kinds[name]}
        tier_of = self._limits.tier_of
        lines = [line for line in resting if tier_of.get(line[0], "") in of_lines]
        scopes = [each for each in groups if tier_of.get(each.tenant, "") in of_groups]
        self._left = OrderedDict.fromkeys([*lines, *scopes, *self._left])

    def add_groups_of(self, tenant: str, groups: Iterable[Scope]) -> None:
        """Adds the groups of a tenant whose tier may have changed."""
        self._left.update(dict.fromkeys(each for each in groups if each.tenant == tenant))

    def pop(self) -> Line | Scope:
        return self._left.popitem(last=False)[0]
