"""Which claims were made lately: a repeated claim leases nothing more (P15)."""

from __future__ import annotations

from collections import deque

from holdfast.core.bounds import CLAIM_REPEAT_S
from holdfast.core.clock import Micros, micros
from holdfast.core.job import Lease

Name = tuple[str, str]
"""(tenant, id) of a job."""


class ClaimHistory:
    """The claims that gave leases, by nonce, for CLAIM_REPEAT_S."""

    def __init__(self) -> None:
        self._jobs: dict[str, list[Name]] = {}
        self._ends: deque[tuple[Micros, str]] = deque()

    def known(self, nonce: str, now: Micros) -> list[Name] | None:
        """The jobs that the claim of this nonce got; None when there was none lately."""
        while self._ends and self._ends[0][0] <= now:
            del self._jobs[self._ends.popleft()[1]]
        return self._jobs.get(nonce)

    def remember(self, nonce: str, leases: list[Lease], now: Micros) -> None:
        if leases:
            self._jobs[nonce] = [(lease.job.tenant, lease.job.id) for lease in leases]
            self._ends.append((now + micros(CLAIM_REPEAT_S), nonce))
