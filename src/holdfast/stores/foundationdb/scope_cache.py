"""The settings of scopes, cached per store: read again only when a tenant's have changed.

SCOPE_STAMPS of a tenant changes with every change of its scopes' settings. A step reads that key
with a conflict range, so that it never commits by outdated settings; the settings themselves are
read only when the stamp is not the cached one.

The platform is the tenant "" here. Its stamp is loaded with any other, so that each step that
starts or ends a job knows which scopes over all tenants count it. The values of tiers belong to the
platform, too (`scope_tiers.py`), and are filled in when a value is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core.scope import (
    NO_SETTINGS,
    PREFIX,
    TENANT_KINDS,
    GroupSettings,
    Scope,
    ScopeKind,
    ScopeSettings,
    group_settings,
    platform_scopes,
    scope_of,
)
from holdfast.stores.foundationdb.layout import PLATFORM_KINDS, Keys, Space, text
from holdfast.stores.foundationdb.overlay import Overlay
from holdfast.stores.foundationdb.rows import setting_of
from holdfast.stores.foundationdb.scope_tiers import (
    NEVER,
    NO_TIERS,
    RatesChange,
    Tiers,
    read_moved,
    read_tiers,
)
from holdfast.stores.readable import decode_settings

TENANTS_MAX = 10_000
"""Tenants whose settings are cached."""
PLATFORM = ""
"""The tenant of the platform's scopes."""
COUNTED, UNCOUNTED = b"", b"u"
"""The values in PLATFORM: whether the jobs that run in the scope are counted already."""


class Settings(NamedTuple):
    """What a tenant has set, or the platform."""

    scopes: dict[Scope, ScopeSettings]
    marked: dict[Scope, bytes]
    """The scopes of the platform in PLATFORM."""
    tiers: Tiers = NO_TIERS
    """Of the platform."""
    moved: RatesChange = NEVER
    """When the tenant was put into its tier, as far as that may count."""


NOTHING = Settings({}, {})


class ScopeCache:
    """What a store remembers of its tenants' settings. Any thread may ask."""

    def __init__(self) -> None:
        self._tenants: dict[str, tuple[bytes, Settings]] = {}

    def get(self, tenant: str, stamp: bytes) -> Settings | None:
        found = self._tenants.get(tenant)
        return found[1] if found is not None and found[0] == stamp else None

    def put(self, tenant: str, stamp: bytes, settings: Settings) -> None:
        if len(self._tenants) >= TENANTS_MAX:
            self._tenants.clear()
        self._tenants[tenant] = stamp, settings


class StepSettings:
    """The settings that hold in one step. A tenant's are loaded before they are asked for."""

    def __init__(self, step: Overlay, keys: Keys, cache: ScopeCache) -> None:
        self._step = step
        self._keys = keys
        self._cache = cache
        self._tenants: dict[str, Settings] = {}

    # -- loading ---------------------------------------------------------------------------------

    def ask(self, tenants: Iterable[str] = ()) -> None:
        """Requests the stamps of these tenants and of the platform, for `load`."""
        self._step.ask(self._stamp_key(each) for each in dict.fromkeys((PLATFORM, *tenants)))

    async def load(self, tenants: Iterable[str] = ()) -> None:
        """Loads the settings of these tenants and of the platform."""
        named = dict.fromkeys((PLATFORM, *tenants))
        asked = [each for each in named if each not in self._tenants]
        stamps = await self._step.get_many([self._stamp_key(each) for each in asked])
        new: list[tuple[str, bytes]] = []
        for tenant, stamp in zip(asked, stamps, strict=True):
            settings = NOTHING if stamp is None else self._cache.get(tenant, stamp)
            if settings is not None:
                self._tenants[tenant] = settings
            elif stamp is not None:
                new.append((tenant, stamp))
        for tenant, _ in new:
            for kind in kinds_of(tenant):
                self._step.ask_under(settings_prefix(self._keys, tenant, kind), 0)
        for tenant, stamp in new:  # The platform comes first: what others need is known then.
            self._tenants[tenant] = settings = await self._read(tenant)
            self._cache.put(tenant, stamp, settings)

    async def change(self, tenant: str) -> None:
        """Reads the settings that this step has just written, and tells the other stores."""
        self._step.stamp(self._stamp_key(tenant))
        self._tenants[tenant] = await self._read(tenant)

    def _stamp_key(self, tenant: str) -> bytes:
        return self._keys.all(Space.SCOPE_STAMPS, text(tenant))

    async def _read(self, tenant: str) -> Settings:
        found = Settings({}, {})
        if tenant == PLATFORM:
            found = found._replace(tiers=await read_tiers(self._step, self._keys))
        elif self.tiers.values:
            found = found._replace(moved=await read_moved(self._step, self._keys, tenant))
        for kind in kinds_of(tenant):
            for key, value in await self._step.under(settings_prefix(self._keys, tenant, kind)):
                stored = setting_of(self._keys, key, value)
                scope = scope_of(stored.name) if stored.value is not None else None
                if scope is not None and stored.value is not None:
                    found.scopes[scope] = decode_settings(stored.name, stored.value)
        if tenant == PLATFORM:
            for key, value in await self._step.under(self._keys.all(Space.PLATFORM)):
                found.marked[self._keys.scope_of(Space.PLATFORM, key)[0]] = value
        return found

    # -- asking ----------------------------------------------------------------------------------

    def has_any(self, tenant: str) -> bool:
        """Whether anything is set for the tenant: otherwise no count needs to be read."""
        return bool(self._tenants.get(tenant, NOTHING).scopes) or self.tiers.limits_all

    def of(self, scope: Scope) -> ScopeSettings:
        """What counts for a scope: its own settings, and what the tenant's tier fills in."""
        own = self._tenants.get(scope.tenant, NOTHING).scopes.get(scope, NO_SETTINGS)
        tiers = self.tiers
        if not tiers.values or scope.of_platform:
            return own
        return tiers.fill_in(own, scope.kind, self.tier_of(scope.tenant))

    def tenant(self, tenant: str) -> ScopeSettings:
        return self.of(Scope(tenant))

    def group(self, tenant: str, group: str, queue: str) -> GroupSettings:
        """What holds for the jobs of a group that are in a queue."""
        own = self.of(Scope(tenant, ScopeKind.GROUP, group))
        return group_settings(own, self.of(Scope(tenant, ScopeKind.QUEUE, queue)))

    def limits_group(self, tenant: str, group: str | None, queue: str) -> bool:
        """Whether a job of this group waits for room in the group before it enters its line."""
        if group is None or not self.has_any(tenant):
            return False
        return not self.group(tenant, group, queue).open

    @property
    def tiers(self) -> Tiers:
        return self._tenants.get(PLATFORM, NOTHING).tiers

    def tier_named(self, tenant: str) -> str:
        """The tier that the settings of a tenant name; "" without one."""
        scopes = self._tenants.get(tenant, NOTHING).scopes
        return scopes.get(Scope(tenant), NO_SETTINGS).tier or ""

    def tier_of(self, tenant: str) -> str:
        """The tier whose values count for a tenant; "" for the platform's defaults alone."""
        tier = self.tier_named(tenant)
        return tier if tier in self.tiers.values else ""

    def group_values(self, tenant: str) -> list[object]:
        """What the groups of a tenant have from its tier."""
        return self.tiers.group_values(self.tier_of(tenant)) if self.tiers.values else []

    def moved(self, tenant: str) -> RatesChange:
        """When a tenant was put into its tier."""
        return self._tenants.get(tenant, NOTHING).moved

    def rates_change(self, tenant: str) -> RatesChange:
        """The last change of rates that the tenant and its queues and groups have from tiers."""
        if tenant == PLATFORM or not self.tiers.rates:
            return NEVER
        return max(self.tiers.change_for(self.tier_of(tenant)), self.moved(tenant))

    @property
    def platform(self) -> dict[Scope, ScopeSettings]:
        """The settings of the platform's scopes."""
        return self._tenants.get(PLATFORM, NOTHING).scopes

    @property
    def marked(self) -> dict[Scope, bytes]:
        """The scopes of the platform that have settings, or had some while jobs waited there."""
        return self._tenants.get(PLATFORM, NOTHING).marked

    def counting(self, queue: str, type: str) -> list[Scope]:
        """The scopes of the platform that count a running job of this queue and type."""
        if not self.platform:
            return []
        return [scope for scope in platform_scopes(queue, type) if scope in self.platform]


def kinds_of(tenant: str) -> tuple[ScopeKind, ...]:
    """The kinds of scopes that a tenant has, or the platform."""
    return tuple(PLATFORM_KINDS) if tenant == PLATFORM else TENANT_KINDS


def settings_prefix(keys: Keys, tenant: str, kind: ScopeKind) -> bytes:
    """What the keys of a tenant's settings of one kind begin with."""
    return keys.all(Space.SETTINGS, text(f"{PREFIX}{kind.value}/{len(tenant)}:{tenant}/")[:-1])
