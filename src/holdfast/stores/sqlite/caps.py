"""What a tenant may have at most: jobs and bytes by its settings, queues and groups by ours.

Asked once per call, then counted along. A tenant that is far from having too many names costs one
look at its row.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import limits
from holdfast.errors import HoldfastError, QueueFull, TenantFull
from holdfast.job import NewJob
from holdfast.limits import PRUNE_MAX
from holdfast.scope import ScopeKind
from holdfast.stores.sql_rows import size_of
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.transaction import Transaction

RETRY_AFTER_S = 1.0
"""When a full tenant may try again."""


class Caps:
    """The tenants of one call that have a cap, or may be near the end of their names."""

    def __init__(self, transaction: Transaction, more: int) -> None:
        self._transaction = transaction
        self._rules = transaction.rules
        self._more = more
        """How many jobs the call may bring."""
        self._has: dict[str, tuple[int, int]] = {}
        self._near: dict[str, bool] = {}

    def concern(self, tenant: str) -> bool:
        """Whether a job of this tenant may have to be refused."""
        return self._near_end(tenant) or self.capped(tenant)

    def capped(self, tenant: str) -> bool:
        if tenant not in self._rules.tenants:
            return False
        rules = self._rules.tenant(tenant)
        return rules.max_queued is not None or rules.max_bytes is not None

    def refusal(self, job: NewJob) -> HoldfastError | None:
        """Why the tenant may not have this job too; None when it may."""
        if self._near_end(job.tenant):
            self._transaction.settle()
            full = self._no_name(job.tenant, ScopeKind.QUEUE, job.queue)
            if full is None and job.group is not None:
                full = self._no_name(job.tenant, ScopeKind.GROUP, job.group)
            if full is not None:
                return full
        if not self.capped(job.tenant):
            return None
        return self.no_room(job.tenant, size_of(job.envelope.body))

    def no_room(self, tenant: str, size: int) -> QueueFull | None:
        """Why the tenant may not have a job of this size waiting too; None when it may."""
        rules, (jobs, total) = self._rules.tenant(tenant), self._of(tenant)
        for what, has, more, most in (
            ("jobs", jobs, 1, rules.max_queued),
            ("bytes", total, size, rules.max_bytes),
        ):
            if most is not None and has + more > most:
                return QueueFull(
                    tenant=tenant, what=what, queued=has, max=most, retry_after_s=RETRY_AFTER_S
                )
        return None

    def add(self, tenant: str, size: int) -> None:
        if self.capped(tenant):
            jobs, total = self._of(tenant)
            self._has[tenant] = jobs + 1, total + size

    def _of(self, tenant: str) -> tuple[int, int]:
        if tenant not in self._has:
            self._transaction.settle()
            found = self._transaction.execute(sql.ALIVE, ("tenant", tenant, "")).fetchone()
            self._has[tenant] = found or (0, 0)
        return self._has[tenant]

    # -- names -----------------------------------------------------------------------------------

    def _near_end(self, tenant: str) -> bool:
        """True when this call could give the tenant one queue or group too many."""
        near = self._near.get(tenant)
        if near is None:
            queues, groups = self._names(tenant)
            more = self._more + self._transaction.pending
            near = queues + more > limits.QUEUES_MAX or groups + more > limits.GROUPS_MAX
            self._near[tenant] = near
        return near

    def _names(self, tenant: str) -> Sequence[int]:
        found: Sequence[int] | None
        found = self._transaction.execute(sql.NAME_COUNTS, (tenant,)).fetchone()
        return found or (0, 0)

    def _no_name(self, tenant: str, kind: ScopeKind, part: str) -> TenantFull | None:
        execute = self._transaction.execute
        if execute(sql.NAME_KNOWN, (kind.value, tenant, part)).fetchone() is not None:
            return None
        at, most, what = (
            (0, limits.QUEUES_MAX, "queues")
            if kind is ScopeKind.QUEUE
            else (1, limits.GROUPS_MAX, "groups")
        )
        if self._names(tenant)[at] >= most:
            # Those without jobs do not count.
            execute(sql.PRUNE_NAMES, (tenant, kind.value, PRUNE_MAX))
        if self._names(tenant)[at] < most:
            return None
        return TenantFull(tenant=tenant, what=what, max=most)
