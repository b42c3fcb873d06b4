"""The content of the platform's page as plain values: limits over all tenants, and tiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from holdfast import operate
from holdfast.core.job import State
from holdfast.core.scope import (
    NO_SETTINGS,
    PLATFORM,
    PREFIX,
    Scope,
    ScopeKind,
    ScopeSettings,
)
from holdfast.dashboard import words
from holdfast.dashboard.host import Viewer
from holdfast.listings import each_configured
from holdfast.scopes import ScopeState
from holdfast.store import Store
from holdfast.tiers import TierState

KINDS = {
    ScopeKind.PLATFORM: "all jobs",
    ScopeKind.QUEUE: "queue",
    ScopeKind.TYPE: "type",
}
TENANTS_MAX = 5000
"""Maximum tenants with settings that are read to count those of each tier."""


class ScopeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A scope of the platform, what is set for it, and how many jobs run in it."""

    scope: Scope
    settings: ScopeSettings
    version: int
    running: int = 0

    @property
    def kind(self) -> str:
        return KINDS[self.scope.kind]

    @property
    def rate(self) -> str:
        """Without the burst, as a form takes it."""
        rate = self.settings.rate
        return "" if rate is None else rate.words.partition(" ")[0]

    @property
    def query(self) -> str:
        """The scope as the query of an address."""
        return urlencode({"kind": self.scope.kind.value, "name": self.scope.part})


class TierRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tier, or the defaults of all tenants."""

    name: str
    users: int
    """How many of the tenants that were read are in it."""
    tenants: Sequence[str]
    queues: Sequence[str]
    groups: Sequence[str]
    ceiling: Sequence[str]


class PlatformView(msgspec.Struct, frozen=True, kw_only=True):
    limited: bool
    """Whether the store keeps limits of the platform."""
    tiered: bool
    scopes: Sequence[ScopeRow]
    chosen: ScopeRow | None
    """The scope that the page offers to change."""
    tiers: Sequence[TierRow]
    more_users: bool
    """Whether there are tenants with settings that were not read."""


async def platform(store: Store, viewer: Viewer, chosen: Scope | None = None) -> PlatformView:
    """What the platform has set, and how many jobs run under it."""
    limited, tiered = store.capabilities.platform, store.capabilities.tiers
    scopes = await _scopes(store, viewer) if limited else []
    found: list[TierState] = await operate.platform(store).tiers() if tiered else []
    named = any(one.tier for one in found)
    users, more = await _users(store) if named else (Counter[str](), False)
    return PlatformView(
        limited=limited,
        tiered=tiered,
        scopes=scopes,
        chosen=_chosen(scopes, chosen) if limited else None,
        tiers=[_tier(one, users[one.tier]) for one in found],
        more_users=more,
    )


async def _scopes(store: Store, viewer: Viewer) -> list[ScopeRow]:
    """The scopes with settings that the viewer may see, the whole store first."""
    states: dict[Scope, ScopeState] = await operate.scopes(store, "")
    running: dict[Scope, int] = {}
    for kind in KINDS if states else ():
        for tally in await store.count("", by=kind):
            running[Scope("", kind, tally.queue)] = tally.counts.get(State.PROCESSING, 0)
    rows = [
        ScopeRow(
            scope=scope,
            settings=state.settings,
            version=state.version,
            running=running.get(scope, 0),
        )
        for scope, state in states.items()
        if viewer.may_over_all(scope)
    ]
    return sorted(rows, key=lambda row: (row.scope != PLATFORM, row.scope.kind, row.scope.part))


def _chosen(rows: Sequence[ScopeRow], scope: Scope | None) -> ScopeRow | None:
    if scope is None:
        return None
    empty = ScopeRow(scope=scope, settings=NO_SETTINGS, version=0)
    return next((row for row in rows if row.scope == scope), empty)


async def _users(store: Store) -> tuple[Counter[str], bool]:
    """How many tenants are in each tier, and whether some were not read."""
    users: Counter[str] = Counter()
    read = 0
    async for state in each_configured(store, None, f"{PREFIX}{ScopeKind.TENANT.value}/"):
        if state.scope.kind is not ScopeKind.TENANT:
            break
        if read == TENANTS_MAX:
            return users, True
        read += 1
        if state.settings.tier is not None:
            users[state.settings.tier] += 1
    return users, False


def _tier(state: TierState, users: int) -> TierRow:
    defaults = state.defaults
    return TierRow(
        name=state.tier,
        users=users,
        tenants=words.values(defaults),
        queues=words.values(defaults.queue),
        groups=words.values(defaults.group),
        ceiling=words.values(defaults.ceiling),
    )
