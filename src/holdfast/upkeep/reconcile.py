"""Duty: recount the numbers that limits use.

Stores update these counts with every change of a job. A rare recount verifies them and logs any
correction.
"""

from __future__ import annotations

import logging

from holdfast.scopes import recount
from holdfast.store import Store

logger = logging.getLogger("holdfast")


class Reconcile:
    """Recounts the jobs once per turn. The first turn is one interval after the start."""

    name = "reconcile"

    def __init__(self, store: Store, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._begun = False
        self.corrected = 0
        """By how much the counts were wrong, in total; 0 unless something was damaged."""

    async def turn(self) -> float:
        if self._begun and self._store.capabilities.scopes:
            correction = await recount(self._store)
            if correction:
                self.corrected += abs(correction)
                logger.warning(
                    "the counts of running jobs were wrong by %d and were corrected", correction
                )
        self._begun = True
        return self._every_s
