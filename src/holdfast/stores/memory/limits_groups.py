"""Groups: their jobs wait before their line until the group has room for them.

A job of a group is in `waiting` of its queue's part of the group. As many as the group has room for
are granted: they enter their line like any other job. The claim checks the room once more, so that
what is granted in two queues never exceeds a limit. A job that ends grants the next in the same
step (`Tables.grant`).
"""

from __future__ import annotations

import heapq
from collections import Counter

from holdfast.core.job import State
from holdfast.stores.memory.fairness import Entry


class Part:
    """The jobs of a group in one queue."""

    __slots__ = ("granted", "waiting", "worst")

    def __init__(self) -> None:
        self.waiting: list[Entry] = []
        self.granted: set[int] = set()
        """Sequences of the jobs that are in the line."""
        self.worst: Entry | None = None
        """The last rank that was granted: a job that ranks before it is granted beyond the room."""


class Group:
    __slots__ = ("counts", "order", "parts")

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.counts: Counter[State] = Counter()
        self.order: list[int] = []
        """A heap of the sequences of its jobs; those of ended ones are dropped at the head."""

    def part(self, queue: str) -> Part:
        part = self.parts.get(queue)
        if part is None:
            part = self.parts[queue] = Part()
        return part

    def join(self, seq: int) -> None:
        heapq.heappush(self.order, seq)
