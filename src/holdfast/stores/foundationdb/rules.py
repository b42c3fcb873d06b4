"""The settings of scopes, as one store knows them: read once, then when a tenant's have changed.

`RULED` of a tenant changes with every change of its scopes' settings. A step reads it in earnest,
so that it never works by settings that are no longer so; the settings themselves are read only
when it is not the one known.
"""

from __future__ import annotations

from holdfast.scope import (
    NO_SETTINGS,
    GroupGate,
    Scope,
    ScopeKind,
    ScopeSettings,
    group_gate,
)

TENANTS_MAX = 10_000
"""Tenants with settings that are remembered."""


class Known:
    """What a store remembers of its tenants' settings. Any thread may ask."""

    def __init__(self) -> None:
        self._tenants: dict[str, tuple[bytes, dict[Scope, ScopeSettings]]] = {}

    def get(self, tenant: str, stamp: bytes) -> dict[Scope, ScopeSettings] | None:
        found = self._tenants.get(tenant)
        return found[1] if found is not None and found[0] == stamp else None

    def put(self, tenant: str, stamp: bytes, settings: dict[Scope, ScopeSettings]) -> None:
        if len(self._tenants) >= TENANTS_MAX:
            self._tenants.clear()
        self._tenants[tenant] = stamp, settings


class Rules:
    """The settings that hold in one step."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Scope, ScopeSettings]] = {}

    def knows(self, tenant: str) -> bool:
        return tenant in self._of

    def learn(self, tenant: str, settings: dict[Scope, ScopeSettings]) -> None:
        self._of[tenant] = settings

    def forget(self, tenant: str) -> None:
        self._of.pop(tenant, None)

    def ruled(self, tenant: str) -> bool:
        """Whether anything is set for the tenant: else nothing needs to be asked."""
        return bool(self._of.get(tenant))

    def of(self, scope: Scope) -> ScopeSettings:
        return self._of.get(scope.tenant, {}).get(scope, NO_SETTINGS)

    def tenant(self, tenant: str) -> ScopeSettings:
        return self.of(Scope(tenant))

    def queue(self, tenant: str, queue: str) -> ScopeSettings:
        return self.of(Scope(tenant, ScopeKind.QUEUE, queue))

    def group(self, tenant: str, group: str, queue: str) -> GroupGate:
        """What holds for the jobs of a group that stand in a queue."""
        own = self.of(Scope(tenant, ScopeKind.GROUP, group))
        return group_gate(own, self.queue(tenant, queue))

    def gated(self, tenant: str, group: str | None, queue: str) -> bool:
        """A job of this group has to wait for its place there before it stands in its line."""
        if group is None or not self.ruled(tenant):
            return False
        return not self.group(tenant, group, queue).open

    def weight(self, tenant: str) -> int:
        return self.tenant(tenant).weight
