"""Caps: how much a tenant may have. Jobs and bytes by its settings, queues and groups by ours.

A tenant without a cap that is far from having too many queues or groups costs nothing: each call
adds its jobs to what the tenant can have at most, and only a sum near the bound is read again.
"""

from __future__ import annotations

from holdfast.core import bounds
from holdfast.core.bounds import PRUNE_MAX
from holdfast.core.errors import QUEUE_FULL_RETRY_S, HoldfastError, QueueFull, TenantFull
from holdfast.core.job import NewJob, edge_bytes
from holdfast.core.journal import Signal, no_room
from holdfast.core.scope import ScopeKind, ScopeSettings
from holdfast.stores.sql_rows import size_of
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.transaction import Transaction

PART_COUNTS_MAX = 10_000
"""Tenants whose queues and groups the writer remembers."""


class Caps:
    """What one call has to know of the caps of its tenants, counted along as it adds jobs."""

    def __init__(self, transaction: Transaction, jobs_max: int) -> None:
        """`jobs_max` is how many jobs the call may add."""
        self._transaction = transaction
        self._scope_cache = transaction.scope_cache
        self._jobs_max = jobs_max
        self._has: dict[str, tuple[int, int]] = {}
        """Tenant -> (jobs, bytes) that have not ended."""
        self._near: dict[str, bool] = {}
        self._concern: dict[str, bool] = {}
        self._settings: dict[str, ScopeSettings] = {}
        self._new_parts: dict[tuple[str, ScopeKind], set[str]] = {}

    def concern(self, tenant: str) -> bool:
        """Whether a job of this tenant may have to be refused."""
        concern = self._concern.get(tenant)
        if concern is None:
            concern = self._near_the_bound(tenant) or self.capped(tenant)
            self._concern[tenant] = concern
        return concern

    def capped(self, tenant: str) -> bool:
        settings = self._settings_of(tenant)
        return settings.max_queued is not None or settings.max_bytes is not None

    def _settings_of(self, tenant: str) -> ScopeSettings:
        """The settings that count for a tenant, looked up once for all of its jobs."""
        settings = self._settings.get(tenant)
        if settings is None:
            settings = self._settings[tenant] = self._scope_cache.tenant(tenant)
        return settings

    def refusal(self, job: NewJob) -> HoldfastError | None:
        """Why the tenant may not have this job too; None when it may."""
        if self._near_the_bound(job.tenant):
            for kind, part in _parts(job):
                full = self._too_many(job.tenant, kind, part)
                if full is not None:
                    return full
        if not self.capped(job.tenant):
            return None
        return self.no_room(job.tenant, size_of(job.envelope.body) + edge_bytes(job))

    def no_room(self, tenant: str, size: int) -> QueueFull | None:
        """Why the tenant may not have a job of this size waiting too; None when it may."""
        settings, (jobs, total) = self._settings_of(tenant), self._of(tenant)
        for what, has, more, most in (
            ("jobs", jobs, 1, settings.max_queued),
            ("bytes", total, size, settings.max_bytes),
        ):
            if most is not None and has + more > most:
                return QueueFull(
                    tenant=tenant, what=what, queued=has, max=most, retry_after_s=QUEUE_FULL_RETRY_S
                )
        return None

    def no_room_for(self, signal: Signal) -> QueueFull | None:
        """Why the tenant may not have this signal; None when it may."""
        max_bytes = self._settings_of(signal.tenant).max_bytes
        if max_bytes is None:
            return None
        return no_room(signal.tenant, self._of(signal.tenant)[1], max_bytes, signal)

    def add(self, job: NewJob) -> None:
        """Counts a job that the call adds."""
        self.add_size(job.tenant, size_of(job.envelope.body) + edge_bytes(job))
        if self._near_the_bound(job.tenant):
            for kind, part in _parts(job):
                if not self._exists(job.tenant, kind, part):
                    self._new_parts.setdefault((job.tenant, kind), set()).add(part)

    def add_size(self, tenant: str, size: int, number: int = 1) -> None:
        if self.capped(tenant):
            jobs, total = self._of(tenant)
            self._has[tenant] = jobs + number, total + size

    def _of(self, tenant: str) -> tuple[int, int]:
        if tenant not in self._has:
            self._transaction.write_counts()
            found = self._transaction.execute(scope_sql.ALIVE, ("tenant", tenant, "")).fetchone()
            self._has[tenant] = found or (0, 0)
        return self._has[tenant]

    # -- queues and groups -----------------------------------------------------------------------

    def _near_the_bound(self, tenant: str) -> bool:
        """True when this call could give the tenant one queue or group too many."""
        near = self._near.get(tenant)
        if near is None:
            transaction, known = self._transaction, self._transaction.part_counts
            most = known.get(tenant)
            if most is None or self._too_close(most):
                queues, groups = self._numbers(tenant)
                most = queues + transaction.pending, groups + transaction.pending
            near = self._near[tenant] = self._too_close(most)
            if len(known) >= PART_COUNTS_MAX:
                known.clear()
            known[tenant] = most[0] + self._jobs_max, most[1] + self._jobs_max
            if near:
                transaction.write_counts()  # From here on the rows of counts are exact.
        return near

    def _too_close(self, has: tuple[int, int]) -> bool:
        queues, groups = has[0] + self._jobs_max, has[1] + self._jobs_max
        return queues > bounds.QUEUES_MAX or groups > bounds.GROUPS_MAX

    def _numbers(self, tenant: str) -> tuple[int, int]:
        """How many queues and groups the tenant has in the database."""
        found: tuple[int, int] | None
        found = self._transaction.execute(scope_sql.PART_COUNTS, (tenant,)).fetchone()
        return found or (0, 0)

    def _exists(self, tenant: str, kind: ScopeKind, part: str) -> bool:
        if part in self._new_parts.get((tenant, kind), ()):
            return True
        key = (kind.value, tenant, part)
        return self._transaction.execute(scope_sql.PART_EXISTS, key).fetchone() is not None

    def _too_many(self, tenant: str, kind: ScopeKind, part: str) -> TenantFull | None:
        """TenantFull if this queue or group would be one too many."""
        if self._exists(tenant, kind, part):
            return None
        what, at, most = (
            ("queues", 0, bounds.QUEUES_MAX)
            if kind is ScopeKind.QUEUE
            else ("groups", 1, bounds.GROUPS_MAX)
        )
        left = most - len(self._new_parts.get((tenant, kind), ()))
        if self._numbers(tenant)[at] >= left:
            # Queues and groups without jobs do not count.
            self._transaction.execute(sql.PRUNE_PARTS, (tenant, kind.value, PRUNE_MAX))
        if self._numbers(tenant)[at] < left:
            return None
        return TenantFull(tenant=tenant, what=what, max=most)


def _parts(job: NewJob) -> list[tuple[ScopeKind, str]]:
    """The queue of a job, and its group if it has one."""
    parts = [(ScopeKind.QUEUE, job.queue)]
    if job.group is not None:
        parts.append((ScopeKind.GROUP, job.group))
    return parts
