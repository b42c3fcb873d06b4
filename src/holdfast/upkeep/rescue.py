"""Duty: rescue jobs past their deadline.

Jobs with an expired lease become ready again or dead letters. Jobs past their time to live fail.
"""

from __future__ import annotations

from holdfast.core.bounds import EXPIRED_MAX
from holdfast.core.clock import seconds
from holdfast.core.lifecycle import lapse
from holdfast.store import Store


class Rescue:
    """Reads overdue jobs, decides by the rules of `lifecycle`, and acks the transitions."""

    name = "rescue"

    def __init__(self, store: Store, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self.lag_s = 0.0
        """How overdue the oldest job was at the last turn."""
        self.done = 0

    async def turn(self) -> float:
        overdue = await self._store.expired(EXPIRED_MAX)
        self.lag_s = seconds(max((one.overdue_us for one in overdue), default=0))
        if overdue:
            answers = await self._store.ack([lapse(one.job, one.token) for one in overdue])
            # A refusal is not an error: the holder acked or extended after the read.
            self.done += sum(answer.error is None for answer in answers)
        return 0.0 if len(overdue) == EXPIRED_MAX else self._every_s
