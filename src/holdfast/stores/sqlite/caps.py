"""How many jobs and bytes a tenant may have waiting: asked once per call, then counted along."""

from __future__ import annotations

from holdfast.errors import QueueFull
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.transaction import Transaction

RETRY_AFTER_S = 1.0
"""When a full tenant may try again."""


class Caps:
    """The tenants of one call that have a cap."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._rules = transaction.rules
        self._has: dict[str, tuple[int, int]] = {}

    def concern(self, tenant: str) -> bool:
        if tenant not in self._rules.tenants:
            return False
        rules = self._rules.tenant(tenant)
        return rules.max_queued is not None or rules.max_bytes is not None

    def refusal(self, tenant: str, size: int) -> QueueFull | None:
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
        jobs, total = self._of(tenant)
        self._has[tenant] = jobs + 1, total + size

    def _of(self, tenant: str) -> tuple[int, int]:
        if tenant not in self._has:
            self._transaction.settle()
            found = self._transaction.execute(sql.ALIVE, ("tenant", tenant, "")).fetchone()
            self._has[tenant] = found or (0, 0)
        return self._has[tenant]
