"""Settings: named values with compare-and-set. Those of scopes take effect at once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.core import bounds, tiers
from holdfast.core.errors import StaleSetting, TenantFull
from holdfast.core.scope import decode, scope_of
from holdfast.core.tiers import tier_of
from holdfast.store import Put, Setting
from holdfast.stores.memory.layout import Tables


class Settings:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._settings: dict[str, Setting] = {}
        self._versions: dict[str, int] = {}
        """Of every name that ever had a value, so that no version is used twice."""
        self._scopes: Counter[str] = Counter()
        """How many scopes of each tenant ever had settings."""

    def put(self, puts: Sequence[Put]) -> list[Setting]:
        """Applies all of them, or none."""
        limits = self._tables.limits
        new: Counter[str] = Counter()
        for put in puts:
            found = self._settings.get(put.name)
            version = found.version if found is not None else 0
            if version != put.version:
                raise StaleSetting(
                    field="version", name=put.name, version=version, expected=put.version
                )
            scope = scope_of(put.name)
            if scope is not None and put.name not in self._versions:
                new[scope.tenant] += 1
        names = [(put.name, put.value) for put in puts]
        tiers.check_puts(names, limits.tiers, limits.tier_users.__getitem__)
        for tenant, more in new.items():
            if self._scopes[tenant] + more > bounds.SETTINGS_MAX:
                raise TenantFull(tenant=tenant, what="scopes", max=bounds.SETTINGS_MAX)
        self._scopes += new
        for put in puts:
            self._put(put)
        return [self._settings[put.name] for put in puts if put.name in self._settings]

    def _put(self, put: Put) -> None:
        version = self._versions[put.name] = self._versions.get(put.name, 0) + 1
        if put.value is None:
            self._settings.pop(put.name, None)
        else:
            self._settings[put.name] = Setting(put.name, put.value, version)
        scope, tier = scope_of(put.name), tier_of(put.name)
        tables = self._tables
        if tier is not None:
            defaults = None if put.value is None else tiers.decode(put.name, put.value)
            before = tables.limits.tiers.get(tier, tiers.NO_DEFAULTS)
            tables.limits.set_tier(tier, defaults, tables.now)
            tables.tier_changed(tier, before)
            tables.note_setting("", put.name, (put.value or b"").decode())
        if scope is None:
            return
        settings = None if put.value is None else decode(put.name, put.value)
        tables.limits.set(scope, settings, tables.now)
        tables.settings_changed(scope)
        words = (put.value or b"").decode()
        tables.note_setting(scope.tenant, put.name, words)

    def page(self, under: str, after: str, limit: int) -> list[Setting]:
        return [self._settings[name] for name in page_of(self._settings, under, after, limit)]


def page_of(names: Iterable[str], under: str, after: str, limit: int) -> list[str]:
    """The first names under a prefix and after a name, in order."""
    return heapq.nsmallest(limit, (one for one in names if one.startswith(under) and one > after))
