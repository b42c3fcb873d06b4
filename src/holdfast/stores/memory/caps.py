"""What a tenant may have at most: jobs and bytes by its settings, queues and groups by ours."""

from __future__ import annotations

from holdfast import limits
from holdfast.errors import HoldfastError, QueueFull, TenantFull
from holdfast.job import NewJob
from holdfast.stores.memory.bodies import size_of
from holdfast.stores.memory.gates import group_scope, tenant_scope
from holdfast.stores.memory.layout import Tables

RETRY_AFTER_S = 1.0
"""When a full tenant may try again."""


def full(tables: Tables, job: NewJob) -> HoldfastError | None:
    """Why the tenant may not have this job waiting too; None when it may."""
    return _too_many_names(tables, job) or (_capped(tables, job) if tables.gates.settings else None)


def _too_many_names(tables: Tables, job: NewJob) -> TenantFull | None:
    tenant = job.tenant
    queues = (tenant, job.queue) not in tables.counts
    if queues and tables.queues[tenant] >= limits.QUEUES_MAX:
        tables.forget()  # Those without jobs do not count.
        if tables.queues[tenant] >= limits.QUEUES_MAX:
            return TenantFull(tenant=tenant, what="queues", max=limits.QUEUES_MAX)
    groups = job.group is not None and group_scope(tenant, job.group) not in tables.groups
    if groups and tables.named_groups[tenant] >= limits.GROUPS_MAX:
        tables.forget()
        if tables.named_groups[tenant] >= limits.GROUPS_MAX:
            return TenantFull(tenant=tenant, what="groups", max=limits.GROUPS_MAX)
    return None


def _capped(tables: Tables, job: NewJob) -> QueueFull | None:
    tenant = job.tenant
    rules = tables.gates.of(tenant_scope(tenant))
    if rules.max_queued is not None and (has := tables.alive(tenant)) >= rules.max_queued:
        return _queue_full(tenant, "jobs", has, rules.max_queued)
    if rules.max_bytes is not None:
        has = tables.bytes[tenant]
        if has + size_of(job.envelope.body) > rules.max_bytes:
            return _queue_full(tenant, "bytes", has, rules.max_bytes)
    return None


def _queue_full(tenant: str, what: str, has: int, most: int) -> QueueFull:
    return QueueFull(tenant=tenant, what=what, queued=has, max=most, retry_after_s=RETRY_AFTER_S)
