"""Lists of scopes: their settings and their counts, read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.core.bounds import PAGE_MAX, SCOPES_MAX
from holdfast.core.scope import PREFIX, TENANT_KINDS, Scope, ScopeKind, decode, scope_of
from holdfast.scopes import ScopeState
from holdfast.store import Store, Tally

PLATFORM_KINDS = (ScopeKind.PLATFORM, ScopeKind.QUEUE, ScopeKind.TYPE)
"""The kinds of scopes that the platform has."""


async def configured(store: Store, tenant: str | None = None) -> dict[Scope, ScopeState]:
    """Every scope with settings: those of a tenant, those of the platform (an empty tenant), or the
    first SCOPES_MAX of both.
    """
    found: dict[Scope, ScopeState] = {}
    async for state in each_configured(store, tenant):
        found[state.scope] = state
        if len(found) >= SCOPES_MAX:
            break
    return found


async def each_configured(
    store: Store, tenant: str | None = None, after: str = "", page_max: int = PAGE_MAX
) -> AsyncIterator[ScopeState]:
    """The scopes with settings, in order of the setting names, from a given name; page by page. An
    empty tenant names the platform.
    """
    kinds = PLATFORM_KINDS if tenant == "" else TENANT_KINDS
    prefixes = (
        [PREFIX]
        if tenant is None
        else sorted(f"{PREFIX}{kind.value}/{len(tenant)}:{tenant}/" for kind in kinds)
    )
    for prefix in prefixes:
        start, more = after, True
        while more:
            page = await store.settings(under=prefix, after=start, limit=page_max)
            for setting in page:
                scope = scope_of(setting.name)
                if scope is not None:
                    settings = decode(setting.name, setting.value)
                    yield ScopeState(scope, settings, setting.version)
            more = len(page) == page_max
            start = page[-1].name if page else start


async def tallies(
    store: Store, tenant: str | None, by: ScopeKind = ScopeKind.QUEUE
) -> AsyncIterator[Tally]:
    """The counts of every scope of a kind, page by page."""
    page = await (store.count(tenant) if by is ScopeKind.QUEUE else store.count(tenant, by=by))
    while True:
        for tally in page:
            yield tally
        if len(page) < PAGE_MAX:
            return
        page = await store.count(tenant, by=by, after=(page[-1].tenant, page[-1].queue))
