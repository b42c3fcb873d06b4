"""The settings of scopes and tiers, cached by the writer: read once, then only what was changed.

Each change of the settings of a scope or a tier increments `counters.scopes` and stores the new
value beside the setting. A transaction that finds a higher value than the last one reads the
settings changed since.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from holdfast.core.clock import Micros
from holdfast.core.scope import (
    NO_SETTINGS,
    GroupSettings,
    Scope,
    ScopeKind,
    ScopeSettings,
    group_settings,
    scope_of,
)
from holdfast.core.tiers import (
    NO_DEFAULTS,
    PLATFORM,
    Defaults,
    Layer,
    effective,
    kinds_limited,
    name_of,
    tier_of,
)
from holdfast.stores.readable import decode_settings, decode_tier
from holdfast.stores.sqlite import scope_statements as scope_sql

KEPT_MAX = 10_000
"""Different settings that the cache keeps decoded, and with the values of tiers."""

RatesChange = tuple[int, Micros]
"""(value of counters.scopes, instant): when rates were changed by a tier, or with the tier."""
NEVER: RatesChange = (0, 0)


def read_settings(connection: sqlite3.Connection, scope: Scope) -> ScopeSettings:
    """The settings of a scope as they are stored now, without the values of tiers."""
    found = connection.execute(scope_sql.SETTING, (scope.name,)).fetchone()
    if found is None or found[1] is None:
        return NO_SETTINGS
    return decode_settings(scope.name, found[1])


def read_cache(connection: sqlite3.Connection, tenant: str, scopes: list[Scope]) -> ScopeCache:
    """A cache with the settings of some scopes of a tenant and of its tiers, as stored now."""
    cache = ScopeCache()
    cache.read(connection, Scope(tenant).name)
    for name in {name_of(""), name_of(cache.tier_named(tenant)), *(each.name for each in scopes)}:
        cache.read(connection, name)
    return cache


class ScopeCache:
    """The settings by scope, and the tiers by name."""

    def __init__(self) -> None:
        self.version = 0
        self.tenants: set[str] = set()
        """Tenants with settings of their own."""
        self.platform: dict[Scope, ScopeSettings] = {}
        """The settings of the platform's scopes."""
        self.over_all = False
        """Whether the platform has settings, or had: then jobs may still be aside."""
        self.tiers: dict[str, Defaults] = {}
        """"": the platform's defaults."""
        self.tiered = False
        """Whether there are tiers, or were: then scopes may still rest by their values."""
        self._settings: dict[Scope, ScopeSettings] = {}
        self._grouping: set[str] = set()
        """Tenants with settings of their own for groups."""
        self._grouping_tiers: set[str] = set()
        """Tiers with limits for groups."""
        self._limits_all = False
        """Whether the platform's defaults limit tenants without settings."""
        self._decoded: dict[tuple[ScopeKind, bytes], ScopeSettings] = {}
        self._counting: dict[tuple[ScopeSettings, ScopeKind, str], ScopeSettings] = {}
        self._changed: dict[str, int] = {}
        """Tier -> `counters.scopes` at its last change."""
        self._rates: dict[str, RatesChange] = {}
        self._moved: dict[str, RatesChange] = {}
        """Tenant -> when it was put into its tier."""

    def sync(self, connection: sqlite3.Connection, version: int) -> None:
        """Reads the settings that were changed up to this version."""
        if version == self.version:
            return
        if version < self.version:
            self.clear()
        for row in connection.execute(scope_sql.SETTINGS_SINCE, (self.version,)).fetchall():
            self._keep(*row)
        if not self._settings:
            self.tenants.clear()
            self._grouping.clear()
        self.version = version

    def read(self, connection: sqlite3.Connection, name: str) -> None:
        """Reads one setting of a scope or a tier."""
        found = connection.execute(scope_sql.STAMPED, (name,)).fetchone()
        if found is not None:
            self._keep(*found)

    def _keep(
        self, name: str, value: bytes | None, stamp: int, changed: int | None, at: Micros | None
    ) -> None:
        rates = None if changed is None or at is None else (changed, at)
        scope = scope_of(name)
        if scope is None:
            self._keep_tier(name, value, stamp, rates)
            return
        if rates is not None:
            self._moved[scope.tenant] = rates
        if scope.of_platform:
            self.over_all = True
            self.platform.pop(scope, None)
            if value is not None:
                self.platform[scope] = decode_settings(name, value)
        elif value is None:
            self._settings.pop(scope, None)
        else:
            self._settings[scope] = self._decode(scope.kind, name, value)
            self._note(scope)

    def _decode(self, kind: ScopeKind, name: str, value: bytes) -> ScopeSettings:
        """The settings of a scope of a tenant. Those of most tenants in a tier are the same."""
        found = self._decoded.get((kind, value))
        if found is None:
            if len(self._decoded) >= KEPT_MAX:
                self._decoded.clear()
            found = self._decoded[kind, value] = decode_settings(name, value)
        return found

    def _note(self, scope: Scope) -> None:
        # Kept when settings are deleted: the tenant may have others.
        self.tenants.add(scope.tenant)
        if scope.kind is ScopeKind.GROUP or self._settings[scope].groups is not None:
            self._grouping.add(scope.tenant)

    def _keep_tier(
        self, name: str, value: bytes | None, stamp: int, rates: RatesChange | None
    ) -> None:
        tier = tier_of(name)
        assert tier is not None, "only settings of scopes and tiers have a stamp"
        self.tiered = True
        self.tiers.pop(tier, None)
        if value is not None:
            self.tiers[tier] = decode_tier(name, value)
        self._changed[tier] = stamp
        if rates is not None:
            self._rates[tier] = rates
        limits = {each: kinds_limited(NO_DEFAULTS, of) for each, of in self.tiers.items()}
        self._limits_all = bool(limits.get(""))
        self._grouping_tiers = {each for each in limits if ScopeKind.GROUP in limits[each]}
        self._counting.clear()

    @property
    def queues(self) -> set[tuple[str, str]]:
        """The lines with settings of their own."""
        return {
            (scope.tenant, scope.part) for scope in self._settings if scope.kind is ScopeKind.QUEUE
        }

    def clear(self) -> None:
        """Empties the cache: what it has may have been rolled back."""
        vars(self).update(vars(ScopeCache()))

    # -- what counts -----------------------------------------------------------------------------

    def limited(self, tenant: str) -> bool:
        """Whether a limit of the tenant, or of its queues and groups, may have to be checked."""
        return self._limits_all or tenant in self.tenants

    def grouping(self, tenant: str) -> bool:
        """Whether a limit of the tenant's groups may have to be checked."""
        if tenant in self._grouping:
            return True
        tiers = self._grouping_tiers
        return bool(tiers) and ("" in tiers or self.tier_of(tenant) in tiers)

    def of(self, scope: Scope) -> ScopeSettings:
        """The settings that count for a scope: its own, and what the tenant's tier fills in."""
        if scope.of_platform:
            return self.platform.get(scope, NO_SETTINGS)
        own = self._settings.get(scope, NO_SETTINGS)
        if not self.tiers or scope.kind is ScopeKind.GROUP:
            return own
        tier = self.tier_of(scope.tenant)
        key = own, scope.kind, tier
        found = self._counting.get(key)
        if found is None:
            if len(self._counting) >= KEPT_MAX:
                self._counting.clear()
            found = self._counting[key] = effective(own, scope.kind, _layers(self.tiers, tier))
        return found

    def tenant(self, tenant: str) -> ScopeSettings:
        if tenant not in self.tenants and "" not in self.tiers:
            return NO_SETTINGS
        return self.of(Scope(tenant))

    def queue(self, tenant: str, queue: str) -> ScopeSettings:
        return self.of(Scope(tenant, ScopeKind.QUEUE, queue))

    def group(self, tenant: str, group: str, queue: str) -> GroupSettings:
        """The settings for the jobs of a group in a queue."""
        own = self._settings.get(Scope(tenant, ScopeKind.GROUP, group), NO_SETTINGS)
        return group_settings(own, self.queue(tenant, queue))

    def gated(self, tenant: str, group: str | None, queue: str) -> bool:
        """Whether a job of this group waits for room of its group before it is ready."""
        if group is None or not self.grouping(tenant):
            return False
        return not self.group(tenant, group, queue).open

    def weight(self, tenant: str) -> int:
        return self.tenant(tenant).share

    # -- tiers -----------------------------------------------------------------------------------

    def tier_named(self, tenant: str) -> str:
        """The tier that the settings of a tenant name; "" without one."""
        return self._settings.get(Scope(tenant), NO_SETTINGS).tier or ""

    def tier_of(self, tenant: str) -> str:
        """The tier of a tenant; "" without one."""
        if tenant not in self.tenants:
            return ""
        tier = self.tier_named(tenant)
        return tier if tier in self.tiers else ""

    def changed(self, tier: str) -> int:
        """The value of `counters.scopes` when the tier, or the platform's defaults, changed."""
        return max(self._changed.get(tier, 0), self._changed.get("", 0))

    def moved(self, tenant: str) -> int:
        """The value of `counters.scopes` when the tenant was put into its tier."""
        return self._moved.get(tenant, NEVER)[0]

    def rates_change(self, tenant: str) -> RatesChange:
        """The last change of rates that the tenant and its queues and groups have from tiers."""
        if not self.tiered or not tenant:
            return NEVER
        rates = self._rates
        tier = rates.get(self.tier_of(tenant), NEVER)
        return max(tier, rates.get("", NEVER), self._moved.get(tenant, NEVER))


def _layers(tiers: Mapping[str, Defaults], tier: str) -> list[Layer]:
    """The tier and the platform's defaults, as far as they exist."""
    names = {tier: tier, "": PLATFORM}
    return [Layer(name, tiers[each]) for each, name in names.items() if each in tiers]
