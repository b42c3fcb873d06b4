"""Handles for tiers and for the platform's defaults, and the values that count for a scope.

`app.platform().defaults()` and `app.platform().tier("pro")` return one. A change is one write, and
counts for the next claim of every tenant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import msgspec

from holdfast.core.amend import DefaultLimits, amended_defaults
from holdfast.core.bounds import TIERS_MAX
from holdfast.core.errors import InvalidInput, StaleSetting
from holdfast.core.job import By
from holdfast.core.scope import NO_SETTINGS, Scope, ScopeKind, ScopeSettings, decode
from holdfast.core.tiers import (
    BUILT_IN,
    NO_DEFAULTS,
    OWN,
    PREFIX,
    Defaults,
    Effective,
    check_tier,
    chosen,
    encode,
    layers_of,
    name_of,
    tier_of,
    unknown_tier,
)
from holdfast.core.tiers import decode as decode_defaults
from holdfast.store import Put, Setting, Store

TRIES_MAX = 10
"""How often a change without `expect` is tried again after a concurrent change."""


class TierState(msgspec.Struct, frozen=True):
    """What a tier sets, and its version for `set(expect=...)`. Version 0: there is no such tier."""

    tier: str
    """Empty for the platform's defaults."""
    defaults: Defaults
    version: int


class TierHandle:
    """A handle for a tier, or for the platform's defaults."""

    def __init__(self, store: Store, tier: str) -> None:
        self.tier = check_tier(tier) if tier else tier
        self._store = store

    async def get(self) -> TierState:
        """What it sets, and its version."""
        name = name_of(self.tier)
        for setting in await self._store.settings(under=name, limit=1):
            if setting.name == name:
                return _state(setting)
        return TierState(self.tier, NO_DEFAULTS, 0)

    async def set(
        self, *, expect: int | None = None, by: By | None = None, **changes: Unpack[DefaultLimits]
    ) -> TierState:
        """Changes the named fields, or makes the tier. Raises StaleSetting if `expect` is not the
        current version.
        """
        if not changes:
            names = ", ".join(DefaultLimits.__annotations__)
            raise InvalidInput(field="set", why=f"name at least one of: {names}")
        return await self._change(
            expect, lambda before: encode(amended_defaults(before.defaults, dict(changes))), by
        )

    async def delete(self, *, expect: int | None = None, by: By | None = None) -> None:
        """Deletes the tier. Raises InvalidInput while tenants are in it."""
        if not (await self.get()).version:
            known = [state.tier for state in await tiers(self._store) if state.tier]
            raise unknown_tier(self.tier, known)
        await self._change(expect, lambda before: None, by)

    async def _change(
        self, expect: int | None, change: Callable[[TierState], bytes | None], by: By | None
    ) -> TierState:
        for left in range(TRIES_MAX - 1, -1, -1):
            found = await self.get()
            if expect is not None and expect != found.version:
                raise StaleSetting(
                    field="version",
                    name=name_of(self.tier),
                    version=found.version,
                    expected=expect,
                )
            put = Put(name_of(self.tier), change(found), found.version)
            try:
                done = await self._store.settings([put], by=by)
            except StaleSetting:
                if expect is not None or left == 0:
                    raise
                continue
            return _state(done[0]) if done else TierState(self.tier, NO_DEFAULTS, 0)
        raise AssertionError("the last try raises or returns")


async def tiers(store: Store) -> list[TierState]:
    """All tiers, by name; first the platform's defaults if they are set."""
    return [_state(each) for each in await store.settings(under=PREFIX, limit=TIERS_MAX)]


def _state(setting: Setting) -> TierState:
    tier = tier_of(setting.name)
    assert tier is not None
    return TierState(tier, decode_defaults(setting.name, setting.value), setting.version)


async def effective(store: Store, scope: Scope) -> dict[str, Effective]:
    """Each value that counts for a scope, and its layer: own, tier NAME, platform or built-in. Of a
    group only its own, since the others depend on the queue of the job.
    """
    own = await _settings(store, scope)
    if scope.kind not in (ScopeKind.TENANT, ScopeKind.QUEUE) or scope.of_platform:
        values = {field: getattr(own, field) for field in ("max_running", "rate")}
        return {
            field: Effective(value, BUILT_IN if value is None else OWN)
            for field, value in values.items()
        }
    whole = own if scope.kind is ScopeKind.TENANT else await _settings(store, Scope(scope.tenant))
    known = {each.tier: each.defaults for each in await tiers(store)}
    found = chosen(own, scope.kind, layers_of(whole.tier, known))
    if scope.kind is ScopeKind.TENANT and found["weight"].value is None:
        found["weight"] = Effective(NO_SETTINGS.share, BUILT_IN)
    return found


async def _settings(store: Store, scope: Scope) -> ScopeSettings:
    for setting in await store.settings(under=scope.name, limit=1):
        if setting.name == scope.name:
            return decode(scope.name, setting.value)
    return NO_SETTINGS
