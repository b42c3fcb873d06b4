"""The calls of a tenant about sources."""

from __future__ import annotations

from holdfast.core.edge_bounds import SHADOW_ROWS_MAX
from holdfast.core.shadow import ShadowRead
from holdfast.enqueue import Enqueuer
from holdfast.sources.handle import SourceHandle
from holdfast.sources.status import SourceStatus, status_of
from holdfast.store import Store


class SourceCalls:
    """Mixed into `holdfast.Tenant`."""

    name: str
    _store: Store
    _enqueuer: Enqueuer

    def source(self, name: str) -> SourceHandle:
        """A handle for one of its sources."""
        plan = self._enqueuer.source_plan(name)
        return SourceHandle(self._store, self.name, name, plan=plan)

    async def sources(self, *, after: str = "", limit: int = SHADOW_ROWS_MAX) -> list[SourceStatus]:
        """The sources, by name. `after` is the last name of the previous page."""
        return await sources_page(self._store, self.name, after=after, limit=limit)


async def sources_page(
    store: Store, tenant: str, *, after: str = "", limit: int = SHADOW_ROWS_MAX
) -> list[SourceStatus]:
    """The sources of a tenant, by name, starting after a name."""
    found = await store.shadow(ShadowRead(tenant=tenant, after=after, limit=limit))
    return [status_of(tenant, row) for row in found.sources]
