"""How long the oldest enqueued job of each line waits."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container

from holdfast.core.clock import Micros
from holdfast.stores.memory.fairness import Entry
from holdfast.stores.memory.rows import ordered
from holdfast.stores.notifier import Line

STALE_MAX = 1024
"""Entries of a line, beside four for each of its jobs, that may be stale."""


class Ages:
    """For each line a heap of the instants since when its jobs could run. `waits` says of an entry
    whether its job waits still.
    """

    def __init__(self, waits: Callable[[Entry], bool]) -> None:
        self._waits = waits
        self._ages: dict[Line, list[Entry]] = {}

    def add(self, line: Line, entry: Entry, enqueued: int) -> None:
        """Adds a job of a line that has so many enqueued ones."""
        ages = self._ages.setdefault(line, [])
        if len(ages) > STALE_MAX and len(ages) > 4 * enqueued:
            ages[:] = [each for each in ages if self._waits(each)]
            heapq.heapify(ages)
        heapq.heappush(ages, entry)

    def oldest(self, line: Line) -> Micros | None:
        """Since when the longest-waiting enqueued job of a line could have run."""
        ages = ordered(self._ages.get(line, []))
        return next((entry[0] for entry in ages if self._waits(entry)), None)

    def keep(self, lines: Container[Line]) -> None:
        """Forgets all other lines."""
        self._ages = {line: ages for line, ages in self._ages.items() if line in lines}
