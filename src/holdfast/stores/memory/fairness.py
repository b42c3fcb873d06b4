"""The lines (tenant, queue) of ready jobs, and whose turn it is.

    turns     tenant -> number              tenants that can be claimed from, in the order of their
                                            turns; the number grows with each turn that ends
    open      tenant -> {queue: jobs}       their lines, the one served longest ago first
    rings     queue -> heap(number, tenant) the same lines by queue; a claim corrects a number that
                                            is not the tenant's any more when it meets it
    resting   line -> jobs                  lines whose tenant or queue is paused or at its limit
    credit    tenant -> jobs                what a tenant may still take before its turn is over
    kept      tenant -> number              the turns of tenants that only limits of the platform
                                            keep from being in `turns`

Weighted deficit round robin over tenants: in its turn a tenant takes as many jobs as its weight, or
a multiple of it (`scope.rounds`), from its lines in turn, and goes to the end. So many queues give
a tenant no more than one. A turn that a full claim cut short goes on with the next claim. Idle and
resting lines are in no index that claims read: they cost nothing.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from itertools import chain, islice

from holdfast.stores.notifier import Line

Entry = tuple[int, int, int]
Names = tuple[str, ...] | None


class Jobs:
    """The entries of a line, the smallest first. Nearly all come in order and are kept in a deque,
    which needs no sorting; the others in a heap beside it.
    """

    __slots__ = ("_heap", "_row", "turn")

    def __init__(self) -> None:
        self._row: deque[Entry] = deque()
        self._heap: list[Entry] = []
        self.turn = 0
        """Its rank among the lines of its tenant."""

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
        self.turns: OrderedDict[str, int] = OrderedDict()
        self.resting: dict[Line, Jobs] = {}
        self.woken: set[Line] = set()
        """Lines that got work since the store last woke sleepers."""
        self._open: dict[str, OrderedDict[str, Jobs]] = {}
        self._rings: dict[str, list[tuple[int, str]]] = {}
        self._ringing: dict[str, set[str]] = {}
        """The tenants that have an entry in each ring."""
        self._waiting: Counter[str] = Counter()
        self._resting_of: dict[str, set[str]] = {}
        self._credit: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._turn = 0

    def push(self, line: Line, entry: Entry) -> None:
        jobs = self.resting.get(line) if self.resting else None
        if jobs is None:
            jobs = self._open_jobs(line)
            if jobs is None:
                jobs = Jobs()
                self._join(line, jobs)
            self.woken.add(line)
        jobs.push(entry)

    def _join(self, line: Line, jobs: Jobs) -> None:
        """Adds a line to the turns, after the others of its tenant, and a new tenant at the end."""
        tenant, queue = line
        if tenant not in self.turns:
            self._join_turns(tenant)
            self._open[tenant] = OrderedDict()
        jobs.turn = self._tick()
        self._open[tenant][queue] = jobs
        self._waiting[queue] += 1
        ringing = self._ringing.setdefault(queue, set())
        if tenant not in ringing:
            ringing.add(tenant)
            heapq.heappush(self._rings.setdefault(queue, []), (self.turns[tenant], tenant))

    def _join_turns(self, tenant: str) -> None:
        """Adds a tenant at the end of the turns; at the front if it kept a turn before all others.

        Between others it would have to be searched for, so it goes to the end then.
        """
        kept = self._kept.pop(tenant, None)
        first = next(iter(self.turns.values()), None)
        if kept is None or (first is not None and first < kept):
            self.turns[tenant] = self._tick()
        else:
            self.turns[tenant] = kept
            self.turns.move_to_end(tenant, last=False)

    def turn_of(self, tenant: str) -> int:
        """The number of the tenant's turn; it only grows while the tenant has jobs."""
        return self.turns.get(tenant) or self._kept.get(tenant, 0)

    def _tick(self) -> int:
        self._turn += 1
        return self._turn

    def jobs(self, line: Line) -> Jobs:
        return self._open_jobs(line) or self.resting.get(line) or Jobs()

    def _open_jobs(self, line: Line) -> Jobs | None:
        queues = self._open.get(line[0])
        return None if queues is None else queues.get(line[1])

    def is_open(self, line: Line) -> bool:
        """Whether a line can be claimed from."""
        return self._open_jobs(line) is not None

    def any(self, tenants: Names, queues: Names) -> bool:
        """Whether one of these lines can be claimed from. Changes nothing."""
        if tenants is not None:
            return any(one in self.turns and self._has(one, queues) for one in tenants)
        return bool(self.turns) if queues is None else any(map(self.waiting, queues))

    # -- turns -----------------------------------------------------------------------------------

    def tenants(self, tenants: Names, queues: Names, most: int) -> list[str]:
        """The first of these tenants that can be claimed from, in the order of their turns."""
        if tenants is not None:
            asked = {one for one in tenants if one in self.turns and self._has(one, queues)}
            return heapq.nsmallest(most, asked, key=self.turns.__getitem__)
        if queues is None:
            return list(islice(self.turns, most))
        names = set(queues)
        found = {tenant for queue in names for tenant in self._first(queue, most)}
        return heapq.nsmallest(most, found, key=self.turns.__getitem__)

    def _has(self, tenant: str, queues: Names) -> bool:
        return queues is None or any(queue in self._open[tenant] for queue in queues)

    def _first(self, queue: str, most: int) -> list[str]:
        """The first tenants of a ring. Numbers only grow, so a correct one at the head is first."""
        ring, ringing = self._rings.get(queue, []), self._ringing.get(queue, set())
        found: list[tuple[int, str]] = []
        while ring and len(found) < most:
            number, tenant = ring[0]
            if queue not in self._open.get(tenant, ()):
                heapq.heappop(ring)
                ringing.discard(tenant)
            elif number != self.turns[tenant]:
                heapq.heapreplace(ring, (self.turns[tenant], tenant))
            else:
                found.append(heapq.heappop(ring))
        for entry in found:
            heapq.heappush(ring, entry)
        if not ring:
            self._rings.pop(queue, None)
            self._ringing.pop(queue, None)
        return [tenant for _, tenant in found]

    def of_turn(self, tenant: str, queues: Names, most: int) -> list[str]:
        """The first of the tenant's lines that can be claimed from, in the order of their turns."""
        lines = self._open.get(tenant)
        if lines is None:
            return []
        if queues is None:
            return list(islice(lines, most))
        asked = [queue for queue in set(queues) if queue in lines]
        return heapq.nsmallest(most, asked, key=lambda queue: lines[queue].turn)

    def allowance(self, tenant: str, quota: int) -> int:
        """How many jobs the tenant may take in this turn."""
        return self._credit.pop(tenant, quota)

    def visited(self, line: Line, *, keep: bool = False) -> None:
        """Ends the line's turn among those of its tenant. With `keep` the tenant keeps its own turn
        even if no line is left.
        """
        tenant, queue = line
        jobs = self._open_jobs(line)
        if jobs is None:
            return
        if not jobs:
            self._drop(line, keep=keep)
            return
        jobs.turn = self._tick()
        self._open[tenant].move_to_end(queue)

    def done(self, tenant: str, left: int) -> None:
        """Ends the tenant's turn, or keeps what is left of it for the next claim."""
        known = tenant in self.turns
        if not known and tenant not in self._kept:
            return
        if left > 0:
            self._credit[tenant] = left
        elif known:
            self.turns[tenant] = self._tick()
            self.turns.move_to_end(tenant)
        else:
            self._kept[tenant] = self._tick()

    def waiting(self, queue: str) -> int:
        """How many tenants take turns in a queue."""
        return self._waiting[queue]

    def _drop(self, line: Line, *, keep: bool = False) -> None:
        tenant, queue = line
        del self._open[tenant][queue]
        self._waiting[queue] -= 1
        if not self._waiting[queue]:
            del self._waiting[queue]
        if not self._open[tenant]:
            del self._open[tenant]
            turn = self.turns.pop(tenant)
            self._credit.pop(tenant, None)
            if keep:
                self._kept[tenant] = turn

    # -- limits ----------------------------------------------------------------------------------

    def rest(self, line: Line, *, keep: bool = False) -> None:
        """Takes a line out of the turns until `resume`. With `keep` its tenant keeps its turn."""
        tenant, queue = line
        jobs = self._open_jobs(line)
        if jobs is not None:
            self._drop(line, keep=keep)
            self.resting[line] = jobs
            self._resting_of.setdefault(tenant, set()).add(queue)

    def resume(self, line: Line) -> None:
        jobs = self.resting.pop(line, None)
        if jobs is not None:
            tenant, queue = line
            queues = self._resting_of[tenant]
            queues.discard(queue)
            if not queues:
                del self._resting_of[tenant]
            if jobs:
                self._join(line, jobs)
                self.woken.add(line)

    def resting_of(self, tenant: str) -> list[Line]:
        return [(tenant, queue) for queue in self._resting_of.get(tenant, ())]

    def of(self, tenant: str) -> list[Line]:
        """The tenant's lines that have jobs, open or resting."""
        return [(tenant, queue) for queue in self._open.get(tenant, ())] + self.resting_of(tenant)
