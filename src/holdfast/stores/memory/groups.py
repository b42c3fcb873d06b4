"""Groups: jobs wait here, before ready, until their group has a place for them.

A job of a group stands in `waiting` of its queue's part of the group. As many as the group has
room for are granted: they stand in their line like any other job. The claim checks once more, so
that what is granted in two queues never exceeds a limit. Finishing a job grants the next in the
same step.
"""

from __future__ import annotations

import heapq
from collections import Counter

from holdfast.job import State
from holdfast.stores.memory.lines import Entry


class Part:
    """The jobs of a group in one queue."""

    __slots__ = ("granted", "waiting", "worst")

    def __init__(self) -> None:
        self.waiting: list[Entry] = []
        self.granted: set[int] = set()
        """Sequences of the jobs that stand in the line."""
        self.worst: Entry | None = None
        """No granted job ranks behind it: one that ranks before it is granted beyond the room."""


class Group:
    __slots__ = ("counts", "order", "parts")

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.counts: Counter[State] = Counter()
        self.order: list[int] = []
        """Sequences of all its jobs, the first at the head; ended ones are dropped when met."""

    def part(self, queue: str) -> Part:
        part = self.parts.get(queue)
        if part is None:
            part = self.parts[queue] = Part()
        return part

    def joins(self, seq: int) -> None:
        heapq.heappush(self.order, seq)
