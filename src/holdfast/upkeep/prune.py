"""Duty: delete what has passed its retention.

It deletes finished jobs, timed keys and old events in bounded steps.
"""

from __future__ import annotations

from holdfast.core.bounds import PRUNE_MAX
from holdfast.core.clock import micros
from holdfast.store import Store


class Prune:
    """Deletes one step per turn. After a full step the next turn follows at once."""

    name = "prune"

    def __init__(self, store: Store, every_s: float, events_keep_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._events_keep_us = micros(events_keep_s)
        self.done = 0

    async def turn(self) -> float:
        pruned = await self._store.prune(PRUNE_MAX, self._events_keep_us)
        self.done += pruned.jobs
        return 0.0 if pruned.more else self._every_s
