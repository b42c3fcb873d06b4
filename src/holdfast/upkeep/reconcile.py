"""Duty: the counts behind limits.

They are kept in step with the jobs; a rare recount makes sure, and says if it had to mend any.
"""

from __future__ import annotations

import logging

from holdfast.scopes import recount
from holdfast.store import Store

logger = logging.getLogger("holdfast")


class Reconcile:
    """Counts the jobs themselves, once a turn. The first turn is one interval after the start."""

    name = "reconcile"

    def __init__(self, store: Store, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._begun = False
        self.corrected = 0
        """By how much counts were off, in all; 0 unless something was damaged."""

    async def turn(self) -> float:
        if self._begun and self._store.capabilities.scopes:
            correction = await recount(self._store)
            if correction:
                self.corrected += abs(correction)
                logger.warning("the counts of running jobs were off by %d: mended", correction)
        self._begun = True
        return self._every_s
