"""Wake-ups: how long a sleeper may sleep if nobody wakes it."""

from __future__ import annotations

from holdfast.core.bounds import WAIT_S_MAX
from holdfast.core.clock import SECOND, seconds
from holdfast.core.job import TERMINAL
from holdfast.core.scope import PLATFORM
from holdfast.store import Watch
from holdfast.stores.memory.claim_platform import has_room
from holdfast.stores.memory.layout import Tables


def soonest(tables: Tables, watch: Watch) -> float:
    """Seconds until something known will be worth a look; 0 when it already is."""
    if watch.news:
        return WAIT_S_MAX
    if watch.job is not None:
        row = tables.rows.get((watch.job.tenant, watch.job.id))
        return 0.0 if row is None or row.state in TERMINAL else WAIT_S_MAX
    where = watch.tenants, watch.queues
    if tables.rechecks or tables.releasing:
        return 0.0
    if tables.limits.platform_room(PLATFORM, tables.now) > 0 and (
        tables.lines.any(*where) or has_room(tables, *where)
    ):
        return 0.0
    heads = [heap[0][0] for heap in (tables.due, tables.leases, tables.reopen) if heap]
    return max(0.0, seconds(min(heads, default=tables.now + 3600 * SECOND) - tables.now))
