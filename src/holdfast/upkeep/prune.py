"""Duty: what was kept long enough.

Finished jobs, timed keys and old events go, in bounded steps.
"""

from __future__ import annotations

from holdfast.clock import micros
from holdfast.limits import PRUNE_MAX
from holdfast.store import Store


class Prune:
    """Deletes one step a turn; a full step asks for the next at once."""

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
