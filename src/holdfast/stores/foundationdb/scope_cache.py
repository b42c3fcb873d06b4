"""The settings of scopes, cached per store: read again only when a tenant's have changed.

SCOPE_STAMPS of a tenant changes with every change of its scopes' settings. A step reads that key
with a conflict range, so that it never commits by outdated settings; the settings themselves are
read only when the stamp is not the cached one.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.scope import (
    NO_SETTINGS,
    PREFIX,
    GroupSettings,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    group_settings,
    scope_of,
)
from holdfast.stores.foundationdb.layout import Keys, Space, text
from holdfast.stores.foundationdb.overlay import Overlay
from holdfast.stores.foundationdb.rows import setting_of

TENANTS_MAX = 10_000
"""Tenants whose settings are cached."""

Settings = dict[Scope, ScopeSettings]


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

    def ask(self, tenants: Iterable[str]) -> None:
        """Requests the stamps of these tenants, for `load`."""
        self._step.ask(self._stamp_key(each) for each in dict.fromkeys(tenants))

    async def load(self, tenants: Iterable[str]) -> None:
        asked = [each for each in dict.fromkeys(tenants) if each not in self._tenants]
        stamps = await self._step.get_many([self._stamp_key(each) for each in asked])
        for tenant, stamp in zip(asked, stamps, strict=True):
            settings = {} if stamp is None else self._cache.get(tenant, stamp)
            if settings is None:
                assert stamp is not None
                settings = await self._read(tenant)
                self._cache.put(tenant, stamp, settings)
            self._tenants[tenant] = settings

    async def change(self, tenant: str) -> None:
        """Reads the settings that this step has just written, and tells the other stores."""
        self._step.stamp(self._stamp_key(tenant))
        self._tenants[tenant] = await self._read(tenant)

    def _stamp_key(self, tenant: str) -> bytes:
        return self._keys.all(Space.SCOPE_STAMPS, text(tenant))

    async def _read(self, tenant: str) -> Settings:
        found: Settings = {}
        for kind in ScopeKind:
            for key, value in await self._step.under(settings_prefix(self._keys, tenant, kind)):
                stored = setting_of(self._keys, key, value)
                scope = scope_of(stored.name) if stored.value is not None else None
                if scope is not None and stored.value is not None:
                    found[scope] = decode(stored.name, stored.value)
        return found

    # -- asking ----------------------------------------------------------------------------------

    def has_any(self, tenant: str) -> bool:
        """Whether anything is set for the tenant: otherwise no count needs to be read."""
        return bool(self._tenants.get(tenant))

    def of(self, scope: Scope) -> ScopeSettings:
        return self._tenants.get(scope.tenant, {}).get(scope, NO_SETTINGS)

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


def settings_prefix(keys: Keys, tenant: str, kind: ScopeKind) -> bytes:
    """What the keys of a tenant's settings of one kind begin with."""
    return keys.all(Space.SETTINGS, text(f"{PREFIX}{kind.value}/{len(tenant)}:{tenant}/")[:-1])
