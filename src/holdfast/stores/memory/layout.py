"""What the memory store keeps, and in which order it can be reached.

    rows    (tenant, id) -> Row                    every job
    order   [seq, ...]                             first-enqueue order, for pages
    lines   (tenant, queue) -> (-priority, seq)      ready jobs; see lines.py
    claims  nonce -> jobs                          claims of the last minute; see repeats.py
    groups  Scope -> Group                         jobs of groups wait there; see groups.py
    gates   limits, rates, pauses, slots           see gates.py
    reopen  heap(instant, Scope)                   when a rate or a slot lets a scope go on
    due     heap(run_at)                           scheduled and retrying jobs
    leases  heap(lease_until)                      held jobs
    spent   heap(lease_until)                      lapsed with no attempts left: upkeep's to fail
    ttl     heap(expires_at)                       jobs with a time to live
    finished heap(keep_until)                      terminal jobs until pruned
    keys    (tenant, queue, type, key) -> KeyHold  idempotency
    events  deque(Event)                           newest EVENTS_MAX facts

A heap entry is (instant, seq, stamp). It is stale, and dropped when met, unless the row's stamp is
the same: every change of a row's place gives it a new stamp, so nothing is ever searched for.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from holdfast.clock import Micros
from holdfast.job import TERMINAL, NewJob, State
from holdfast.scope import Rate, Scope, ScopeKind
from holdfast.stores.bell import Line
from holdfast.stores.memory.ages import Ages
from holdfast.stores.memory.gates import Gates, queue_scope, tenant_scope
from holdfast.stores.memory.groups import Group
from holdfast.stores.memory.keys import Keys
from holdfast.stores.memory.lines import Entry, Lines
from holdfast.stores.memory.log import Log
from holdfast.stores.memory.repeats import Claims
from holdfast.stores.memory.rows import Row, alive

NONE: Counter[State] = Counter()


class Tables(Ages, Keys, Log):
    """The rows and their indexes, kept in step."""

    def __init__(self) -> None:
        Ages.__init__(self)
        Keys.__init__(self)
        Log.__init__(self)
        self.now: Micros = 0
        """The instant of the step that is under way."""
        self.order: list[int] = []
        self.lines = Lines()
        self.claims = Claims()
        self.groups: dict[Scope, Group] = {}
        self.gates = Gates(self.running)
        self.counts: dict[Line, Counter[State]] = {}
        self.tenants: dict[str, Counter[State]] = {}
        self.queues: Counter[str] = Counter()
        self.named_groups: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.reopen: list[tuple[Micros, Scope]] = []
        self._reopening: dict[Scope, Micros] = {}
        self.due: list[Entry] = []
        self.leases: list[Entry] = []
        self.spent: list[Entry] = []
        self.ttl: list[Entry] = []
        self.finished: list[Entry] = []
        self._ended: dict[Line, tuple[int, int]] = {}  # Jobs and bytes not yet in the counts.
        self._seq = 0

    # -- rows ------------------------------------------------------------------------------------

    def insert(self, new: NewJob, now: Micros) -> Row:
        self._seq += 1
        row = Row.of(new, self._seq, now)
        self.rows[new.tenant, new.id] = row
        self.by_seq[row.seq] = row
        self.order.append(row.seq)
        if row.expires_at is not None:
            heapq.heappush(self.ttl, (row.expires_at, row.seq, 0))
        row.counters = self._counters(row)
        if row.group is not None:
            self.groups[row.group].joins(row.seq)
        self.place(row)
        return row

    def remove(self, row: Row, now: Micros) -> None:
        del self.rows[row.new.tenant, row.new.id]
        del self.by_seq[row.seq]
        row.stamp += 1
        self._ungrant(row)
        self._recount(row, None)
        self.release_key(row, now)
        self._tidy()

    def place(self, row: Row) -> None:
        """Puts the row where its state belongs; what pointed to it before is stale from now on."""
        row.stamp += 1
        state = row.state
        if row.group is not None:
            self._ungrant(row)
        if state is State.ENQUEUED:
            self.age(row, self.counts[row.line][State.ENQUEUED])
            if row.new.group is None:
                self.lines.push(row.line, row.rank)
            else:
                self._wait(row)
        elif state is State.PROCESSING:
            assert row.lease_until is not None
            heapq.heappush(self.leases, (row.lease_until, row.seq, row.stamp))
        elif state in TERMINAL:
            assert row.finished_at is not None
            heapq.heappush(self.finished, (row.keep_until, row.seq, row.stamp))
        else:
            heapq.heappush(self.due, (row.run_at, row.seq, row.stamp))
            self.lines.woken.add(row.line)  # It may be due before what a sleeper waits for.
        self._recount(row, state)

    def hold(self, row: Row) -> None:
        """Places a row without a group that was leased; `count_held` counts it with the others."""
        row.stamp += 1
        row.counted = State.PROCESSING
        assert row.lease_until is not None
        heapq.heappush(self.leases, (row.lease_until, row.seq, row.stamp))

    def end(self, row: Row) -> None:
        """Drops a held row without a group; `count_ended` counts it with the others."""
        del self.rows[row.new.tenant, row.new.id]
        del self.by_seq[row.seq]
        row.stamp += 1
        number, size = self._ended.get(row.line, (0, 0))
        self._ended[row.line] = number + 1, size + row.size

    def count_ended(self) -> None:
        """Counts what `end` dropped, and lets go on what waited for its place."""
        for line, (number, size) in self._ended.items():
            for counter in (self.counts[line], self.tenants[line[0]]):
                counter[State.PROCESSING] -= number
            self.bytes[line[0]] -= size
            for other in self.lines.resting_of(line[0]):
                self.refresh(other)
        self._ended.clear()
        self._tidy()

    def _tidy(self) -> None:
        if len(self.order) > 64 + 2 * len(self.by_seq):
            self.order = list(self.by_seq)

    def count_held(self, line: Line, number: int) -> None:
        """Counts jobs without a group that were leased from a line."""
        self.gates.spend(line, number, self.now)
        for counter in (self.counts[line], self.tenants[line[0]]):
            counter[State.ENQUEUED] -= number
            counter[State.PROCESSING] += number

    def forget(self) -> None:
        """Drops the counters of lines, tenants and groups that have no jobs left."""
        self.counts = {line: counts for line, counts in self.counts.items() if +counts}
        self.tenants = {name: counts for name, counts in self.tenants.items() if +counts}
        self.groups = {scope: group for scope, group in self.groups.items() if +group.counts}
        self.ages = {line: ages for line, ages in self.ages.items() if line in self.counts}
        self.queues = Counter(tenant for tenant, _ in self.counts)
        self.named_groups = Counter(scope.tenant for scope in self.groups)

    def leave(self, row: Row) -> None:
        """Takes a job out of its line that is past its time to live: upkeep will fail it."""
        self._ungrant(row)
        if (scope := row.group) is not None:
            self.grant(scope, row.new.queue)

    # -- counts ----------------------------------------------------------------------------------

    def _recount(self, row: Row, state: State | None) -> None:
        """Moves the row from one count to another, and lets go on what waited for its place."""
        before, row.counted = row.counted, state
        if before is state:
            return
        for counter in row.counters:
            if before is not None:
                counter[before] -= 1
            if state is not None:
                counter[state] += 1
        lives = state is not None and state not in TERMINAL
        lived = before is not None and before not in TERMINAL
        if lives is not lived:
            self.bytes[row.new.tenant] += row.size if lives else -row.size
        if before is State.PROCESSING:
            for line in self.lines.resting_of(row.new.tenant):
                self.refresh(line)
        scope = row.group
        if scope is not None and lived and state is not State.PROCESSING:
            self.grant_all(scope)  # A place is free, or an ordered group has a new head.

    def _counters(self, row: Row) -> tuple[Counter[State], ...]:
        line, tenant, scope = row.line, row.new.tenant, row.group
        if line not in self.counts:
            self.counts[line] = Counter()
            self.queues[tenant] += 1
        if tenant not in self.tenants:
            self.tenants[tenant] = Counter()
        if scope is None:
            return self.counts[line], self.tenants[tenant]
        if scope not in self.groups:
            self.groups[scope] = Group()
            self.named_groups[tenant] += 1
        return self.counts[line], self.tenants[tenant], self.groups[scope].counts

    def counted(self, scope: Scope) -> Counter[State]:
        """How many jobs of a scope are in each state."""
        if scope.kind is ScopeKind.TENANT:
            return self.tenants.get(scope.tenant, NONE)
        if scope.kind is ScopeKind.QUEUE:
            return self.counts.get((scope.tenant, scope.part), NONE)
        group = self.groups.get(scope)
        return NONE if group is None else group.counts

    def running(self, scope: Scope) -> int:
        return self.counted(scope)[State.PROCESSING]

    def holders(self, scope: Scope, most: int) -> list[str]:
        """The ids of jobs that take a scope's places."""
        found: list[str] = []
        for _, seq, stamp in self.leases:
            row = self.by_seq.get(seq)
            if row is None or row.stamp != stamp or not row.inside(scope):
                continue
            found.append(row.new.id)
            if len(found) == most:
                break
        return found

    def recount(self) -> int:
        """Counts every row anew; returns how many held jobs the counts were off by."""
        before = {line: counts[State.PROCESSING] for line, counts in self.counts.items()}
        groups = [group.counts for group in self.groups.values()]
        for counter in (*self.counts.values(), *self.tenants.values(), *groups):
            counter.clear()
        for row in self.rows.values():
            for counter in row.counters:
                counter[row.state] += 1
        after = {line: counts[State.PROCESSING] for line, counts in self.counts.items()}
        return sum(abs(after.get(line, 0) - before.get(line, 0)) for line in before | after)

    def alive(self, tenant: str) -> int:
        return alive(self.tenants.get(tenant, NONE))

    # -- gates -----------------------------------------------------------------------------------

    def refresh(self, line: Line) -> None:
        """Lets a line rest or go on, as its tenant and its queue allow now."""
        tenant, queue = line
        if self.gates.line_room(tenant, queue, self.now) > 0:
            self.lines.resume(line)
            return
        self.lines.rest(line)
        for scope in (tenant_scope(tenant), queue_scope(tenant, queue)):
            self._reopen_later(scope, self.gates.of(scope).rate)

    def _reopen_later(self, scope: Scope, rate: Rate | None) -> None:
        at = self.gates.next_token(scope, rate, self.now)
        if at is not None:
            self.reopen_at(at, scope)

    def reopen_at(self, at: Micros, scope: Scope) -> None:
        """Has the first repair from an instant on look at a scope; the earliest word counts."""
        known = self._reopening.get(scope)
        if known is None or at < known:
            self._reopening[scope] = at
            heapq.heappush(self.reopen, (at, scope))

    def reopened(self) -> None:
        """Looks at the scope whose instant has come; its lines and groups may go on."""
        at, scope = heapq.heappop(self.reopen)
        if self._reopening.get(scope) == at:
            del self._reopening[scope]
        self.look(scope)
        if slots := self.gates.live_slots(scope, self.now):
            self.reopen_at(min(slots.values()), scope)

    def look(self, scope: Scope) -> None:
        """Lets what waits in a scope go on or rest, as its places and tokens are now."""
        if scope.kind is ScopeKind.GROUP:
            self.grant_all(scope)
        elif scope.kind is ScopeKind.QUEUE:
            self.refresh((scope.tenant, scope.part))
        else:
            for line in self.lines.of(scope.tenant):
                self.refresh(line)

    def changed(self, scope: Scope) -> None:
        """Applies new settings of a scope to all that waits in it."""
        self.gates.bound(scope, self.gates.of(scope).rate, self.now)
        if scope.kind is ScopeKind.GROUP:
            self._regrant(scope)
        elif scope.kind is ScopeKind.QUEUE:
            for group, found in self.groups.items():
                if group.tenant == scope.tenant and scope.part in found.parts:
                    self.gates.bound(group, self.gates.group(group, scope.part).rate, self.now)
                    self._regrant(group)
        self.look(scope)

    # -- groups ----------------------------------------------------------------------------------

    def head(self, group: Group) -> int | None:
        """The sequence of the group's first job that has not ended."""
        while group.order:
            row = self.by_seq.get(group.order[0])
            if row is not None and row.state not in TERMINAL:
                return row.seq
            heapq.heappop(group.order)
        return None

    def _wait(self, row: Row) -> None:
        scope = row.group
        assert scope is not None
        self._line_up(scope, row)
        self.grant(scope, row.new.queue)

    def wait_again(self, row: Row) -> None:
        """Puts a granted job back: its group has no place for it after all."""
        row.stamp += 1
        self._ungrant(row)
        scope = row.group
        assert scope is not None
        self._line_up(scope, row)
        self._reopen_later(scope, self.gates.group(scope, row.new.queue).rate)

    def _line_up(self, scope: Scope, row: Row) -> None:
        ordered = self.gates.group(scope, row.new.queue).ordered
        rank = (0, row.seq, row.stamp) if ordered else row.rank
        heapq.heappush(self.groups[scope].part(row.new.queue).waiting, rank)

    def _ungrant(self, row: Row) -> None:
        if row.group is not None:
            part = self.groups[row.group].part(row.new.queue)
            part.granted.discard(row.seq)
            if not part.granted:
                part.worst = None

    def grant_all(self, scope: Scope) -> None:
        group = self.groups.get(scope)
        for queue in list(group.parts) if group is not None else ():
            self.grant(scope, queue)

    def grant(self, scope: Scope, queue: str) -> None:
        """Lets as many of a group's jobs into their line as it has room for, the first first."""
        group = self.groups[scope]
        part, gate = group.part(queue), self.gates.group(scope, queue)
        room = self.gates.group_room(scope, queue, self.now)
        while part.waiting:
            rank = part.waiting[0]
            row = self.current(rank)
            if row is None:
                heapq.heappop(part.waiting)
                continue
            if gate.ordered and row.seq != self.head(group):
                return
            before_another = part.worst is not None and rank < part.worst
            if room == 0 or (len(part.granted) >= room and not before_another):
                break
            heapq.heappop(part.waiting)
            part.granted.add(row.seq)
            part.worst = rank if part.worst is None else max(part.worst, rank)
            self.lines.push(row.line, row.rank)
            self.refresh(row.line)
        if part.waiting:
            self._reopen_later(scope, gate.rate)

    def _regrant(self, scope: Scope) -> None:
        """Sorts a group anew after its rules have changed."""
        group = self.groups.get(scope)
        if group is None:
            return
        for part in group.parts.values():
            rows = [self.by_seq[seq] for seq in part.granted if seq in self.by_seq]
            rows += [row for row in map(self.current, part.waiting) if row is not None]
            part.granted, part.worst, part.waiting = set(), None, []
            for row in rows:
                row.stamp += 1
                self._line_up(scope, row)
        self.grant_all(scope)

    def current(self, entry: Entry) -> Row | None:
        """The row that an entry of a line or a heap points to; None if it is stale."""
        row = self.by_seq.get(entry[1])
        return row if row is not None and row.stamp == entry[2] else None

    def pages(self, after: int | None, newest_first: bool) -> Iterator[Row]:
        """Rows past a cursor, in or against first-enqueue order."""
        order = self.order  # Deleting while walking may put a shorter list in its place.
        if newest_first:
            end = len(order) if after is None else bisect_left(order, after)
            seqs = iter(order[i] for i in range(end - 1, -1, -1))
        else:
            start = 0 if after is None else bisect_right(order, after)
            seqs = iter(order[i] for i in range(start, len(order)))
        return (row for seq in seqs if (row := self.by_seq.get(seq)) is not None)
