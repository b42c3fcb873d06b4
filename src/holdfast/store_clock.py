"""What time is it in the store? For people's words such as `15m` and `2 min ago` (P8).

A name held for a length ends at the store's now plus that length, so that every store can tell.
Nothing is decided by the answer: stores decide by their clock themselves.
"""

from __future__ import annotations

import time

from holdfast.clock import SECOND, Micros
from holdfast.errors import HoldfastError
from holdfast.roster import fresh_name
from holdfast.store import Store, Take

NAME = "clock/"
"""What the names of such holds start with."""
LOOK_S = 60.0
"""How long an answer is trusted: clocks drift by milliseconds in this time."""


class StoreClock:
    """The store's clock as it is seen from here: the host's, put right now and then."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name = fresh_name(NAME)
        self._ahead_us: Micros = 0
        self._looked_s: float | None = None

    def now(self) -> Micros:
        """By the last look; the host's clock before the first."""
        return time.time_ns() // 1000 + self._ahead_us

    async def look(self) -> Micros:
        """The same, after a look at the store if the last one was long ago.

        Who may not hold names goes by the host's clock.
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
