"""Jobs by their ids. A page may end before its limit, so one call is not always enough."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.job import JobRecord, State
from holdfast.store import Find, Selection, Store


async def find_jobs(
    store: Store,
    tenant: str,
    ids: Sequence[str],
    *,
    states: tuple[State, ...] = (),
    queues: tuple[str, ...] = (),
) -> list[JobRecord]:
    """Those of up to BATCH_MAX jobs of a tenant that are there; only in these states and queues, if
    any are given. Their order is not that of the ids.
    """
    if not ids:
        return []
    select = Selection(tenant=tenant, ids=tuple(ids), states=states, queues=queues)
    limit, after = min(len(ids), PAGE_MAX), None
    found: list[JobRecord] = []
    while True:
        page = await store.find(Find(select=select, after=after, limit=limit))
        found += page.jobs
        if (after := page.cursor) is None:
            return found
