"""The content of the pages of queues as plain values: counts, pauses, limits with their layers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import operate
from holdfast.core.bounds import SCOPES_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.job import TERMINAL, State
from holdfast.core.scope import (
    NO_SETTINGS,
    Pause,
    Scope,
    ScopeKind,
    ScopeSettings,
    platform_scopes,
)
from holdfast.core.tiers import Defaults, layers_of
from holdfast.dashboard import words
from holdfast.dashboard.host import Viewer
from holdfast.dashboard.words import Limit
from holdfast.scopes import ScopeState
from holdfast.store import Store, Tally

QUEUES_MAX = 300
"""Maximum queues on one page, the most loaded first."""


class Owned(msgspec.Struct, frozen=True):
    """The limits of one of the scopes that a queue is in."""

    whose: str
    """Empty for the queue itself."""
    limits: Sequence[Limit]


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of a tenant."""

    tenant: str
    name: str
    tally: Tally
    tier: str | None
    """The tier of the tenant."""
    limits: Sequence[Owned]
    """Without those of scopes that limit nothing."""
    pause: Pause | None
    tenant_pause: Pause | None
    """Set if the whole tenant is paused."""
    platform_pause: Pause | None = None
    """Set if the queue of all tenants, or the whole store, is paused, and the viewer may know."""
    unread: bool = False
    """Whether settings of the queue, or of its tenant, may be among those that were not read."""

    @property
    def href(self) -> str:
        return words.link("queues", self.tenant, self.name)

    def count(self, *states: str) -> int:
        return sum(self.tally.counts.get(State(state), 0) for state in states)


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    rows: Sequence[QueueRow]
    total: int
    """How many queues there are; the rows are the most loaded of them."""
    unread: bool
    """Whether there are more scopes with settings than were read."""


class Known(msgspec.Struct, frozen=True):
    """What is set, read once for all rows of a page."""

    scopes: dict[Scope, ScopeState]
    tiers: dict[str, Defaults]
    cut: bool

    def own(self, scope: Scope) -> ScopeSettings:
        state = self.scopes.get(scope)
        return NO_SETTINGS if state is None else state.settings


async def known(store: Store, viewer: Viewer, tenant: str | None) -> Known:
    """The settings of every scope of a tenant or of all tenants, and the tiers, as far as the store
    supports them; settings of the platform only if the viewer acts for it.
    """
    if not store.capabilities.scopes:
        return Known({}, {}, cut=False)
    found = await operate.scopes(store, tenant)
    cut = tenant is None and len(found) >= SCOPES_MAX
    if viewer.platform and (tenant is not None or cut):
        found |= await operate.scopes(store, "")
    scopes = {
        scope: one
        for scope, one in found.items()
        if not scope.of_platform or viewer.may_over_all(scope)
    }
    tiers = await operate.platform(store).tiers() if store.capabilities.tiers else []
    return Known(scopes, {one.tier: one.defaults for one in tiers}, cut)


def queue_row(tally: Tally, known: Known) -> QueueRow:
    line, tenant = Scope(tally.tenant, ScopeKind.QUEUE, tally.queue), Scope(tally.tenant)
    own, whole = known.own(line), known.own(tenant)
    everything, everyone = (known.own(one) for one in platform_scopes(tally.queue, "")[:2])
    layers = layers_of(whole.tier, known.tiers)
    limits = [
        Owned("", words.limits(own, line.kind, layers)),
        Owned("tenant", words.limits(whole, tenant.kind, layers)),
        Owned("all tenants", words.limits(everyone)),
        Owned("whole store", words.limits(everything)),
    ]
    return QueueRow(
        tenant=tally.tenant,
        name=tally.queue,
        tally=tally,
        tier=whole.tier,
        limits=[one for one in limits if one.limits],
        pause=own.paused,
        tenant_pause=whole.paused,
        platform_pause=everything.paused or everyone.paused,
        unread=known.cut and not {line, tenant} <= known.scopes.keys(),
    )


async def queues(store: Store, viewer: Viewer, tenant: str = "") -> QueuePage:
    """The queues with jobs, slots or settings, the most loaded first."""
    whose = viewer.check_tenant(tenant) if tenant else viewer.tenant
    set_now = await known(store, viewer, whose)
    tallies = {(one.tenant, one.queue): one for one in await operate.queues(store, whose)}
    for scope in set_now.scopes:
        if scope.kind is ScopeKind.QUEUE and not scope.of_platform:
            empty = Tally(scope.tenant, scope.part, {})
            tallies.setdefault((scope.tenant, scope.part), empty)
    seen = [one for one in tallies.values() if viewer.may_queue(one.queue)]
    seen.sort(key=lambda one: (-_alive(one), one.tenant, one.queue))
    rows = [queue_row(one, set_now) for one in seen[:QUEUES_MAX]]
    return QueuePage(rows=rows, total=len(seen), unread=set_now.cut)


def _alive(tally: Tally) -> int:
    return sum(n for state, n in tally.counts.items() if state not in TERMINAL)


async def queue(store: Store, viewer: Viewer, tenant: str, name: str) -> QueueRow:
    """One queue. Raises InvalidInput if there is none with that name."""
    viewer.check_tenant(tenant)
    viewer.check_queue(name)
    handle = operate.scope(store, tenant, queue=name)
    tally = await handle.counts()
    set_now = await known(store, viewer, tenant)
    if not tally.counts and not tally.slots and handle.scope not in set_now.scopes:
        why = f"there is no queue {name!r} of tenant {tenant!r}: it has no jobs and no settings"
        raise InvalidInput(field="queue", why=why)
    return queue_row(tally, set_now)
