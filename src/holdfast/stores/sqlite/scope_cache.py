"""The settings of scopes, cached by the writer: read once, then only what was changed since.

Each change of a scope's settings increments `counters.scopes` and stores the new value beside the
setting. A transaction that finds a higher value than the last one reads the settings changed since.
"""

from __future__ import annotations

import sqlite3

from holdfast.core.errors import InvalidInput
from holdfast.core.scope import (
    NO_SETTINGS,
    GroupSettings,
    Pause,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    group_settings,
    scope_of,
)
from holdfast.stores.sqlite import scope_statements as scope_sql

UNREADABLE = ScopeSettings(paused=Pause("its settings cannot be read: put them again", "holdfast"))
"""A scope with unreadable settings is paused, and no other is."""


def decode_settings(name: str, value: bytes) -> ScopeSettings:
    """The stored settings; those of a paused scope if they cannot be read."""
    try:
        return decode(name, value)
    except (InvalidInput, TypeError, ValueError):
        return UNREADABLE


def read_settings(connection: sqlite3.Connection, scope: Scope) -> ScopeSettings:
    """The settings of a scope as they are stored now."""
    found = connection.execute(scope_sql.SETTING, (scope.name,)).fetchone()
    if found is None or found[1] is None:
        return NO_SETTINGS
    return decode_settings(scope.name, found[1])


class ScopeCache:
    """The settings by scope."""

    def __init__(self) -> None:
        self.version = 0
        self.tenants: set[str] = set()
        """Tenants with settings. For all others no limit needs to be checked."""
        self.grouping: set[str] = set()
        """Tenants with settings for groups."""
        self.platform: dict[Scope, ScopeSettings] = {}
        """The settings of the platform's scopes."""
        self.over_all = False
        """Whether the platform has settings, or had: then jobs may still be aside."""
        self._settings: dict[Scope, ScopeSettings] = {}

    def sync(self, connection: sqlite3.Connection, version: int) -> None:
        """Reads the settings that were changed up to this version."""
        if version == self.version:
            return
        if version < self.version:
            self.clear()
        for name, value in connection.execute(scope_sql.SETTINGS_SINCE, (self.version,)).fetchall():
            scope = scope_of(name)
            assert scope is not None, "only scopes' settings have a stamp"
            if scope.of_platform:
                self.over_all = True
                self.platform.pop(scope, None)
                if value is not None:
                    self.platform[scope] = decode_settings(name, value)
            elif value is None:
                self._settings.pop(scope, None)
            else:
                self._settings[scope] = decode_settings(name, value)
                self._note(scope)
        if not self._settings:
            self.tenants.clear()
            self.grouping.clear()
        self.version = version

    def _note(self, scope: Scope) -> None:
        # Kept when settings are deleted: the tenant may have others.
        self.tenants.add(scope.tenant)
        if scope.kind is ScopeKind.GROUP or self._settings[scope].groups is not None:
            self.grouping.add(scope.tenant)

    @property
    def queues(self) -> set[tuple[str, str]]:
        """The lines with settings of their own."""
        return {
            (scope.tenant, scope.part) for scope in self._settings if scope.kind is ScopeKind.QUEUE
        }

    def clear(self) -> None:
        """Empties the cache: what it has may have been rolled back."""
        self.version = 0
        self.tenants.clear()
        self.grouping.clear()
        self.platform.clear()
        self.over_all = False
        self._settings.clear()

    def of(self, scope: Scope) -> ScopeSettings:
        settings = self.platform if scope.of_platform else self._settings
        return settings.get(scope, NO_SETTINGS)

    def tenant(self, tenant: str) -> ScopeSettings:
        return self._settings.get(Scope(tenant), NO_SETTINGS)

    def queue(self, tenant: str, queue: str) -> ScopeSettings:
        return self._settings.get(Scope(tenant, ScopeKind.QUEUE, queue), NO_SETTINGS)

    def group(self, tenant: str, group: str, queue: str) -> GroupSettings:
        """The settings for the jobs of a group in a queue."""
        own = self._settings.get(Scope(tenant, ScopeKind.GROUP, group), NO_SETTINGS)
        return group_settings(own, self.queue(tenant, queue))

    def gated(self, tenant: str, group: str | None, queue: str) -> bool:
        """Whether a job of this group waits for room of its group before it is ready."""
        if group is None or tenant not in self.grouping:
            return False
        return not self.group(tenant, group, queue).open

    def weight(self, tenant: str) -> int:
        return self.tenant(tenant).share if tenant in self.tenants else 1
