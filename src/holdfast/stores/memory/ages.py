"""How long the ready jobs of each line have waited."""

from __future__ import annotations

import heapq

from holdfast.clock import Micros
from holdfast.job import State
from holdfast.stores.bell import Line
from holdfast.stores.memory.lines import Entry
from holdfast.stores.memory.rows import Row

SLACK = 1024
"""Stale entries of a line that are kept at least."""


class Ages:
    """The part of the tables that knows since when a job could run."""

    def __init__(self) -> None:
        self.by_seq: dict[int, Row] = {}
        self.ages: dict[Line, list[Entry]] = {}

    def age(self, row: Row, ready: int) -> None:
        """Remembers since when the row could run; `ready` jobs of its line are worth knowing."""
        ages = self.ages.get(row.line)
        if ages is None:
            ages = self.ages[row.line] = []
        elif len(ages) > SLACK and len(ages) > 4 * ready:
            ages[:] = [entry for entry in ages if self._aging(entry)]
            heapq.heapify(ages)
        heapq.heappush(ages, (row.run_at, row.seq, row.stamp))

    def _aging(self, entry: Entry) -> bool:
        row = self.by_seq.get(entry[1])
        return row is not None and row.state is State.ENQUEUED and row.run_at == entry[0]

    def oldest(self, line: Line) -> Micros | None:
        """Since when the longest-waiting ready job of a line could have run."""
        ages = self.ages.get(line, [])
        while ages:
            if self._aging(ages[0]):
                return ages[0][0]
            heapq.heappop(ages)
        self.ages.pop(line, None)
        return None
