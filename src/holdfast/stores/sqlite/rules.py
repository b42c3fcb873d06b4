"""The settings of scopes, as one writer knows them: read once, then only what others have changed.

Each put of a scope's settings gives the next value of `heads.scopes`, kept beside the setting. A
transaction that finds a higher value than the last reads the settings put since.
"""

from __future__ import annotations

import sqlite3

from holdfast.errors import InvalidInput
from holdfast.scope import (
    NO_SETTINGS,
    GroupGate,
    Pause,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    group_gate,
    scope_of,
)
from holdfast.stores.sqlite import statements as sql

UNREADABLE = ScopeSettings(paused=Pause("its settings cannot be read: put them again", "holdfast"))
"""A scope whose limits nobody knows stands still; no other does."""


def read(name: str, value: bytes) -> ScopeSettings:
    """Stored settings; those of a scope that stands still if they cannot be read."""
    try:
        return decode(name, value)
    except (InvalidInput, TypeError, ValueError):
        return UNREADABLE


class Rules:
    def __init__(self) -> None:
        self.version = 0
        self.tenants: set[str] = set()
        """Those for which anything is set. For all others nothing needs to be asked."""
        self.grouping: set[str] = set()
        """Those that have set something for groups."""
        self._settings: dict[Scope, ScopeSettings] = {}

    def sync(self, connection: sqlite3.Connection, version: int) -> None:
        """Brings in what was put up to this version."""
        if version == self.version:
            return
        if version < self.version:
            self.clear()
        for name, value in connection.execute(sql.SETTINGS_SINCE, (self.version,)).fetchall():
            scope = scope_of(name)
            assert scope is not None, "only scopes' settings have a stamp"
            if value is None:
                self._settings.pop(scope, None)
            else:
                self._settings[scope] = read(name, value)
                self._note(scope)
        if not self._settings:
            self.tenants.clear()
            self.grouping.clear()
        self.version = version

    def _note(self, scope: Scope) -> None:
        # Kept when settings go: a tenant that once had some may have more of them.
        self.tenants.add(scope.tenant)
        if scope.kind is ScopeKind.GROUP or self._settings[scope].groups is not None:
            self.grouping.add(scope.tenant)

    @property
    def queues(self) -> set[tuple[str, str]]:
        """(tenant, queue) of those for which anything is set."""
        return {
            (scope.tenant, scope.part) for scope in self._settings if scope.kind is ScopeKind.QUEUE
        }

    def clear(self) -> None:
        """Forgets all, for what was known may have been rolled back."""
        self.version = 0
        self.tenants.clear()
        self.grouping.clear()
        self._settings.clear()

    def of(self, scope: Scope) -> ScopeSettings:
        return self._settings.get(scope, NO_SETTINGS)

    def tenant(self, tenant: str) -> ScopeSettings:
        return self._settings.get(Scope(tenant), NO_SETTINGS)

    def queue(self, tenant: str, queue: str) -> ScopeSettings:
        return self._settings.get(Scope(tenant, ScopeKind.QUEUE, queue), NO_SETTINGS)

    def group(self, tenant: str, group: str, queue: str) -> GroupGate:
        """What holds for the jobs of a group that stand in a queue."""
        own = self._settings.get(Scope(tenant, ScopeKind.GROUP, group), NO_SETTINGS)
        return group_gate(own, self.queue(tenant, queue))

    def gated(self, tenant: str, group: str | None, queue: str) -> bool:
        """A job of this group has to wait for its place there before it stands in its line."""
        if group is None or tenant not in self.grouping:
            return False
        return not self.group(tenant, group, queue).open

    def weight(self, tenant: str) -> int:
        return self.tenant(tenant).weight if tenant in self.tenants else 1
