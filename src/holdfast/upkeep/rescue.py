"""Duty: jobs past their deadline.

Lapsed leases go back or to the dead letters; so do expired jobs.
"""

from __future__ import annotations

from holdfast.clock import seconds
from holdfast.lifecycle import lapse
from holdfast.limits import EXPIRED_MAX
from holdfast.store import Store


class Rescue:
    """Reads what is overdue, asks the rules, and acks like everybody else."""

    name = "rescue"

    def __init__(self, store: Store, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self.lag_s = 0.0
        """How long overdue the oldest job was, at the last turn."""
        self.done = 0

    async def turn(self) -> float:
        overdue = await self._store.expired(EXPIRED_MAX)
        self.lag_s = seconds(max((one.overdue_us for one in overdue), default=0))
        if overdue:
            answers = await self._store.ack([lapse(one.job, one.token) for one in overdue])
            # A refusal is no fault: the holder acked or extended between the look and the act.
            self.done += sum(answer.error is None for answer in answers)
        return 0.0 if len(overdue) == EXPIRED_MAX else self._every_s
