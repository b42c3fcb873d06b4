"""Limits of the platform: what waits where the store, a queue or a type has no room left.

    running   Scope -> jobs                   of the platform's scopes that have settings
    lines     queue -> Waiting                lines that wait at the limit of their queue
    typed     (type, queue) -> Waiting        jobs that wait at the limit of their type

A claim that meets a line or a job whose queue or type has no room sets it aside here, so that
nothing behind it waits and no later claim meets it again. Claims let in as many lines and jobs as
there is room for, in the order of the turns of their tenants, and set aside again what they could
not take. So a claim costs the same however much waits.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from holdfast.core.scope import Scope, ScopeKind, rounds
from holdfast.stores.memory.fairness import Entry, Names
from holdfast.stores.memory.limits import UNLIMITED, Limits
from holdfast.stores.notifier import Line


class Waiting:
    """Tenants that wait in one queue, in the order of their turns, with the jobs set aside."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[Entry]] = {}
        """Tenant -> heap of its jobs. Empty where the whole line waits."""
        self._heap: list[tuple[int, str]] = []
        """A number is the tenant's turn or smaller, since turns only grow."""

    def add(self, tenant: str, turn: int, entry: Entry | None = None) -> None:
        jobs = self.jobs.get(tenant)
        if jobs is None:
            jobs = self.jobs[tenant] = []
            heapq.heappush(self._heap, (turn, tenant))
        if entry is not None:
            heapq.heappush(jobs, entry)

    def first(self, most: int, tenants: Names, turn_of: Callable[[str], int]) -> list[str]:
        """The first tenants, of these if any are named."""
        if tenants is not None:
            asked = {tenant for tenant in tenants if tenant in self.jobs}
            return heapq.nsmallest(most, asked, key=turn_of)
        found: list[str] = []
        while self._heap and len(found) < most:
            number, tenant = self._heap[0]
            if tenant not in self.jobs:
                heapq.heappop(self._heap)
            elif number != turn_of(tenant):
                heapq.heapreplace(self._heap, (turn_of(tenant), tenant))
            elif tenant in found:
                heapq.heappop(self._heap)  # It left and came back: one entry is enough.
            else:
                heapq.heappop(self._heap)
                found.append(tenant)
        for tenant in found:
            heapq.heappush(self._heap, (turn_of(tenant), tenant))
        return found

    def any(self, tenants: Names) -> bool:
        """Whether one of these tenants waits."""
        return bool(self.jobs) if tenants is None else any(one in self.jobs for one in tenants)


class PlatformLimits:
    """What waits at the limits of the platform, and how many jobs run under each."""

    def __init__(self, limits: Limits) -> None:
        self.running: Counter[Scope] = Counter()
        self._limits = limits
        self._lines: dict[str, Waiting] = {}
        self._typed: dict[tuple[str, str], Waiting] = {}
        self._types_in: dict[str, list[str]] = {}
        """Queue -> types of `typed`, so that other queues cost a visit to a line nothing."""

    def __bool__(self) -> bool:
        """Whether anything waits here."""
        return bool(self._lines or self._typed)

    def count(self, scopes: Iterable[Scope], number: int) -> bool:
        """Counts a job that starts or ends, in those of its scopes that have settings. True if it
        made room that others wait for.
        """
        freed = False
        for scope in scopes:
            running = self.running[scope]
            self.running[scope] = running + number
            if number < 0:
                most = self._limits.platform[scope].max_running
                freed = freed or running >= (most or UNLIMITED)
        return freed

    # -- set aside -------------------------------------------------------------------------------

    def holds(self, line: Line) -> bool:
        """Whether the whole line waits at its queue's limit."""
        waiting = self._lines.get(line[1])
        return waiting is not None and line[0] in waiting.jobs

    def set_line_aside(self, line: Line, turn: int) -> None:
        self._lines.setdefault(line[1], Waiting()).add(line[0], turn)

    def set_job_aside(self, type: str, line: Line, turn: int, entry: Entry) -> None:
        waiting = self._typed.get((type, line[1]))
        if waiting is None:
            waiting = self._typed[type, line[1]] = Waiting()
            self._types_in.setdefault(line[1], []).append(type)
        waiting.add(line[0], turn, entry)

    def _forget(self, type: str, queue: str) -> None:
        """Drops a place where nothing waits any more."""
        del self._typed[type, queue]
        self._types_in[queue].remove(type)
        if not self._types_in[queue]:
            del self._types_in[queue]

    def first_aside(self, type: str, line: Line) -> Entry | None:
        """The first job of a line that waits at the limit of this type."""
        waiting = self._typed.get((type, line[1]))
        jobs = None if waiting is None else waiting.jobs.get(line[0])
        return jobs[0] if jobs else None

    def types_at(self, line: Line) -> list[str]:
        """The types at whose limits jobs of the line wait."""
        tenant, queue = line
        types = self._types_in.get(queue, ())
        return [type for type in types if tenant in self._typed[type, queue].jobs]

    def waits(self, line: Line) -> bool:
        """Whether jobs of the line wait at the limits of their types."""
        return bool(self.types_at(line))

    def aside(self, line: Line) -> Iterator[Entry]:
        """The jobs of a line that wait at the limits of their types."""
        for type in self.types_at(line):
            yield from self._typed[type, line[1]].jobs[line[0]]

    # -- let in ----------------------------------------------------------------------------------

    def scopes(self, queues: Names) -> Iterator[Scope]:
        """The queues, of these if any are named, and the types at whose limits something waits."""
        for queue in self._lines:
            if queues is None or queue in queues:
                yield Scope("", ScopeKind.QUEUE, queue)
        for type in {type for type, queue in self._typed if queues is None or queue in queues}:
            yield Scope("", ScopeKind.TYPE, type)

    def any(self, scope: Scope, tenants: Names, queues: Names = None) -> bool:
        """Whether one of these tenants waits at the limit of the scope."""
        return any(waiting.any(tenants) for _, waiting in self._at(scope, queues))

    def take_lines(
        self, queue: str, most: int, tenants: Names, turn_of: Callable[[str], int]
    ) -> list[Line]:
        """Removes and returns the first lines that wait at the limit of a queue."""
        waiting = self._lines[queue]
        found = waiting.first(most, tenants, turn_of)
        for tenant in found:
            del waiting.jobs[tenant]
        if not waiting.jobs:
            del self._lines[queue]
        return [(tenant, queue) for tenant in found]

    def take_first(self, type: str, line: Line) -> Entry:
        """Removes and returns the first job of a line that waits at the limit of this type."""
        waiting = self._typed[type, line[1]]
        jobs = waiting.jobs[line[0]]
        entry = heapq.heappop(jobs)
        if not jobs:
            del waiting.jobs[line[0]]
        if not waiting.jobs:
            self._forget(type, line[1])
        return entry

    def take_jobs(
        self,
        scope: Scope,
        most: int,
        tenants: Names,
        queues: Names,
        turn_of: Callable[[str], int],
    ) -> list[tuple[Line, Entry]]:
        """Removes and returns the first jobs that wait at the limit of a type: of as many tenants
        as there is room for, an even share of the room each.
        """
        found: list[tuple[Line, Entry]] = []
        for queue, waiting in list(self._at(scope, queues)):
            names = waiting.first(most, tenants, turn_of)
            share = rounds(most, [1] * len(names)) if names else 0
            for tenant in names:
                jobs = waiting.jobs[tenant]
                taken = [heapq.heappop(jobs) for _ in range(min(share, len(jobs)))]
                found += [((tenant, queue), entry) for entry in taken]
                if not jobs:
                    del waiting.jobs[tenant]
            if not waiting.jobs:
                self._forget(scope.part, queue)
        return found

    def _at(self, scope: Scope, queues: Names) -> Iterator[tuple[str, Waiting]]:
        if scope.kind is ScopeKind.QUEUE:
            if scope.part in self._lines:
                yield scope.part, self._lines[scope.part]
            return
        for (type, queue), waiting in self._typed.items():
            if type == scope.part and (queues is None or queue in queues):
                yield queue, waiting
