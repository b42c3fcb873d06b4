"""The lines (tenant, queue) of ready jobs, and whose turn it is.

    turns     line -> number            lines that can be claimed from, whose turn is next first
    rings     queue -> {tenant: jobs}   the same lines by queue, in the same order
    resting   line -> jobs              lines whose tenant or queue is paused or at its limit
    credit    line -> jobs              what a line may still take before its turn is over

Weighted deficit round robin: in its turn a line takes as many jobs as its tenant's weight, or a
multiple of it (`scope.rounds`), and goes to the end. A turn that a full claim cut short
goes on with the next. Idle and resting lines are in no ring: they cost nothing.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain, islice

from holdfast.stores.bell import Line

Entry = tuple[int, int, int]


class Jobs:
    """The entries of a line, the smallest first. Nearly all come in order and stand in a row, which
    needs no sorting; the others in a heap beside it.
    """

    __slots__ = ("_heap", "_row")

    def __init__(self) -> None:
        self._row: deque[Entry] = deque()
        self._heap: list[Entry] = []

    def __bool__(self) -> bool:
        return bool(self._row or self._heap)

    def __iter__(self) -> Iterator[Entry]:
        return chain(self._row, self._heap)

    def push(self, entry: Entry) -> None:
        if not self._row or entry > self._row[-1]:
            self._row.append(entry)
        else:
            heapq.heappush(self._heap, entry)

    def pop(self) -> Entry:
        if self._heap and not (self._row and self._row[0] < self._heap[0]):
            return heapq.heappop(self._heap)
        return self._row.popleft()


class Lines:
    def __init__(self) -> None:
        self.turns: OrderedDict[Line, int] = OrderedDict()
        self.rings: dict[str, OrderedDict[str, Jobs]] = {}
        self.resting: dict[Line, Jobs] = {}
        self.woken: set[Line] = set()
        """Where work has come up since the store last rang its bell."""
        self._open_of: dict[str, set[str]] = {}
        self._resting_of: dict[str, set[str]] = {}
        self._credit: dict[Line, int] = {}
        self._turn = 0

    def push(self, line: Line, entry: Entry) -> None:
        jobs = self.resting.get(line) if self.resting else None
        if jobs is None:
            jobs = self._ring_jobs(line)
            self.woken.add(line)
        jobs.push(entry)

    def _ring_jobs(self, line: Line) -> Jobs:
        jobs = self._open_jobs(line)
        if jobs is None:
            jobs = Jobs()
            self._join(line, jobs)
        return jobs

    def _join(self, line: Line, jobs: Jobs) -> None:
        """Lets a line take turns, after all others."""
        tenant, queue = line
        ring = self.rings.get(queue)
        if ring is None:
            ring = self.rings[queue] = OrderedDict()
        ring[tenant] = jobs
        self._open_of.setdefault(tenant, set()).add(queue)
        self._turn += 1
        self.turns[line] = self._turn

    def jobs(self, line: Line) -> Jobs:
        return self._open_jobs(line) or self.resting.get(line) or Jobs()

    def _open_jobs(self, line: Line) -> Jobs | None:
        tenant, queue = line
        ring = self.rings.get(queue)
        return None if ring is None else ring.get(tenant)

    def any(self, tenants: tuple[str, ...] | None, queues: tuple[str, ...] | None) -> bool:
        """Whether one of these lines can be claimed from."""
        return bool(self.open(tenants, queues, 1))

    def open(
        self, tenants: tuple[str, ...] | None, queues: tuple[str, ...] | None, most: int
    ) -> list[Line]:
        """The first of these lines, in the order of their turns, whatever queue they are in."""
        if tenants is not None:
            asked = {
                (tenant, queue)
                for tenant in tenants
                for queue in self._open_of.get(tenant, ())
                if queues is None or queue in queues
            }
            return heapq.nsmallest(most, asked, key=self.turns.__getitem__)
        if queues is None:
            return list(islice(self.turns, most))
        rings = [self._in_turn(queue) for queue in set(queues)]
        return [line for _, line in islice(heapq.merge(*rings), most)]

    def _in_turn(self, queue: str) -> Iterator[tuple[int, Line]]:
        return (
            (self.turns[tenant, queue], (tenant, queue)) for tenant in self.rings.get(queue, ())
        )

    # -- turns -----------------------------------------------------------------------------------

    def allowance(self, line: Line, quota: int) -> int:
        """How many jobs the line may take in this turn."""
        return self._credit.pop(line, quota)

    def done(self, line: Line, left: int) -> None:
        """Ends the line's turn, or keeps what is left of it for the next claim."""
        tenant, queue = line
        ring = self.rings.get(queue)
        if ring is None or tenant not in ring:
            return
        if not ring[tenant]:
            self._drop(line)
        elif left > 0:
            self._credit[line] = left
        else:
            ring.move_to_end(tenant)
            self.turns.move_to_end(line)
            self._turn += 1
            self.turns[line] = self._turn

    def _drop(self, line: Line) -> None:
        tenant, queue = line
        ring = self.rings[queue]
        del ring[tenant]
        if not ring:
            del self.rings[queue]
        del self.turns[line]
        _discard(self._open_of, line)
        self._credit.pop(line, None)

    # -- gates -----------------------------------------------------------------------------------

    def rest(self, line: Line) -> None:
        """Takes a line out of its ring until `resume`."""
        tenant, queue = line
        jobs = self._open_jobs(line)
        if jobs is not None:
            self._drop(line)
            self.resting[line] = jobs
            self._resting_of.setdefault(tenant, set()).add(queue)

    def resume(self, line: Line) -> None:
        jobs = self.resting.pop(line, None)
        if jobs is not None:
            _discard(self._resting_of, line)
            if jobs:
                self._join(line, jobs)
                self.woken.add(line)

    def resting_of(self, tenant: str) -> list[Line]:
        return [(tenant, queue) for queue in self._resting_of.get(tenant, ())]

    def of(self, tenant: str) -> list[Line]:
        """The tenant's lines that have jobs, open or resting."""
        return [(tenant, queue) for queue in self._open_of.get(tenant, ())] + (
            self.resting_of(tenant)
        )


def _discard(queues_of: dict[str, set[str]], line: Line) -> None:
    tenant, queue = line
    queues = queues_of[tenant]
    queues.discard(queue)
    if not queues:
        del queues_of[tenant]
