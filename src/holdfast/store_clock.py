"""Reads the store's clock, to interpret and print times such as `15m` and `2 min ago` (P8).

A hold ends at the store's current time plus its duration. So a short hold reveals the clock of
every store. No decision depends on the answer: stores decide by their own clock.
"""

from __future__ import annotations

import time

from holdfast.core.clock import SECOND, Micros
from holdfast.core.errors import HoldfastError
from holdfast.store import Store, Take
from holdfast.worker_registry import fresh_name

NAME = "clock/"
"""Prefix of the names of these holds."""
LOOK_S = 60.0
"""How long a reading is used. Clocks drift by milliseconds in this time."""


class StoreClock:
    """The store's clock, computed from the host's clock and a measured difference."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name = fresh_name(NAME)
        self._ahead_us: Micros = 0
        self._looked_s: float | None = None

    def now(self) -> Micros:
        """The time by the last measurement; before the first one, the host's clock."""
        return time.time_ns() // 1000 + self._ahead_us

    async def look(self) -> Micros:
        """The store's time. Measures the difference again if the last measurement is old.

        A caller that may not take holds gets the host's clock.
        """
        if self._looked_s is None or time.monotonic() - self._looked_s >= LOOK_S:
            before = time.time_ns() // 1000
            try:
                [held] = await self._store.hold([Take(self._name, self._name, SECOND)])
            except HoldfastError:
                pass
            else:
                if held.owner == self._name:
                    middle = (before + time.time_ns() // 1000) // 2
                    self._ahead_us = held.until - SECOND - middle
            self._looked_s = time.monotonic()
        return self.now()
