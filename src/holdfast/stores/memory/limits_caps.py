"""What a tenant may have at most: jobs and bytes by its settings, queues and groups by ours."""

from __future__ import annotations

from holdfast.core import bounds
from holdfast.core.errors import QUEUE_FULL_RETRY_S, HoldfastError, QueueFull, TenantFull
from holdfast.core.job import NewJob, edge_bytes
from holdfast.core.scope import Scope
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.limits import group_scope
from holdfast.stores.memory.payloads import size_of
from holdfast.stores.memory.rows import alive


def over(tables: Tables, job: NewJob) -> HoldfastError | None:
    """Why the tenant may not have this job waiting too; None when it may."""
    return _too_many_names(tables, job) or (_capped(tables, job) if tables.limits.any else None)


def _too_many_names(tables: Tables, job: NewJob) -> TenantFull | None:
    tenant = job.tenant
    new_queue = (tenant, job.queue) not in tables.counts
    if new_queue and tables.queues[tenant] >= bounds.QUEUES_MAX:
        tables.forget_empty()
        if tables.queues[tenant] >= bounds.QUEUES_MAX:
            return TenantFull(tenant=tenant, what="queues", max=bounds.QUEUES_MAX)
    new_group = job.group is not None and group_scope(tenant, job.group) not in tables.groups
    if new_group and tables.groups_of[tenant] >= bounds.GROUPS_MAX:
        tables.forget_empty()
        if tables.groups_of[tenant] >= bounds.GROUPS_MAX:
            return TenantFull(tenant=tenant, what="groups", max=bounds.GROUPS_MAX)
    return None


def _capped(tables: Tables, job: NewJob) -> QueueFull | None:
    tenant = job.tenant
    settings = tables.limits.of(Scope(tenant))
    size = size_of(job.envelope.body) + edge_bytes(job)
    for what, has, more, most in (
        ("jobs", alive(tables.counted(Scope(tenant))), 1, settings.max_queued),
        ("bytes", tables.bytes[tenant], size, settings.max_bytes),
    ):
        if most is not None and has + more > most:
            return QueueFull(
                tenant=tenant, what=what, queued=has, max=most, retry_after_s=QUEUE_FULL_RETRY_S
            )
    return None
