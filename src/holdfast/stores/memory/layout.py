"""What the memory store keeps, and in which order it can be reached.

    rows      (tenant, id) -> Row                     every job
    by_seq    seq -> Row                              the same
    order     [seq, ...]                              first-enqueue order, for pages
    lines     (tenant, queue) -> (-priority, seq)     ready jobs; see fairness.py
    claims    nonce -> jobs                           of the last minute; see claim_repeat.py
    groups    Scope -> Group                          see limits_groups.py
    limits    settings, rates, slots                  see limits.py
    platform  what waits at limits of the platform    see limits_platform.py
    counts    (tenant, queue) -> jobs by state        also `tenants` and `Group.counts`
    reopen    heap(instant, Scope)                    when a rate or a slot gives a scope room again
    due       heap(run_at)                            scheduled and retrying jobs
    leases    heap(lease_until)                       held jobs
    spent     heap(lease_until)                       lapsed, with no attempts left
    ttl       heap(expires_at)                        jobs with a time to live
    finished  heap(keep_until)                        terminal jobs until pruned
    ages      (tenant, queue) -> heap(run_at)         see count_ages.py
    releasing tenant -> rows                          ended, with edges to follow; see joins.py
    keys      (tenant, queue, type, key) -> KeyHold   see idempotency.py
    events    deque(Event)                            the newest EVENTS_MAX; see events.py

A heap entry is (instant, seq, stamp). It is stale unless the row's stamp is the same: every move of
a row gives it a new stamp, so nothing is ever searched for. Writes drop the stale entries that they
meet; reads skip them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import takewhile

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, NewJob, State
from holdfast.core.rate import Rate
from holdfast.core.scope import Scope, ScopeKind
from holdfast.core.tiers import Defaults
from holdfast.store import Ref
from holdfast.stores.memory.claim_repeat import ClaimHistory
from holdfast.stores.memory.count_ages import Ages
from holdfast.stores.memory.events import EventLog
from holdfast.stores.memory.fairness import Entry, Lines
from holdfast.stores.memory.idempotency import Keys
from holdfast.stores.memory.limits import Limits, queue_scope
from holdfast.stores.memory.limits_groups import Group
from holdfast.stores.memory.limits_platform import PlatformLimits
from holdfast.stores.memory.limits_tiers import Rechecks
from holdfast.stores.memory.rows import Row, ordered
from holdfast.stores.notifier import Line

ALIVE = frozenset(State) - TERMINAL
NONE: Counter[State] = Counter()


class Tables(Keys, EventLog):
    """The rows and their indexes, kept in step."""

    def __init__(self) -> None:
        Keys.__init__(self)
        EventLog.__init__(self)
        self.by_seq: dict[int, Row] = {}
        self.order: list[int] = []
        self.lines = Lines()
        self.claims = ClaimHistory()
        self.groups: dict[Scope, Group] = {}
        self.limits = Limits(self.running)
        self.platform = PlatformLimits(self.limits)
        self.rechecks = Rechecks(self.limits)
        self.wakes_all = False  # This step made room for more lines than `lines.woken` names.
        self.counts: dict[Line, Counter[State]] = {}
        self.tenants: dict[str, Counter[State]] = {}
        self.queues: Counter[str] = Counter()
        self.groups_of: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.reopen: list[tuple[Micros, Scope]] = []
        self._reopens: dict[Scope, Micros] = {}
        self.due: list[Entry] = []
        self.leases: list[Entry] = []
        self.spent: list[Entry] = []
        self.ttl: list[Entry] = []
        self.finished: list[Entry] = []
        self.ages = Ages(self._waits)
        self.releasing: dict[str, deque[Row]] = {}
        self.ended: list[Ref] = []  # By this step: callers may wait for them.
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
            self.groups[row.group].join(row.seq)
        self.place(row)
        return row

    def remove(self, row: Row, now: Micros) -> None:
        del self.rows[row.new.tenant, row.new.id]
        del self.by_seq[row.seq]
        row.stamp += 1
        if row.group is not None:
            self.ungrant(row, row.group)
        self._count(row, None)
        self.release_key(row, now)
        if len(self.order) > 64 + 2 * len(self.by_seq):
            self.order = list(self.by_seq)

    def place(self, row: Row) -> None:
        """Indexes the row by its state; what pointed to it before is stale from now on."""
        row.stamp += 1
        state, group = row.state, row.group
        if group is not None:
            self.ungrant(row, group)
        if state is State.PROCESSING:
            assert row.lease_until is not None
            heapq.heappush(self.leases, (row.lease_until, row.seq, row.stamp))
        elif state is State.ENQUEUED:
            entry = row.run_at, row.seq, row.stamp
            self.ages.add(row.line, entry, self.counts[row.line][State.ENQUEUED])
            if group is None:
                self.lines.push(row.line, row.rank)
            else:
                self.wait_for_group(row, group)
                self.grant(group, row.new.queue)
        elif state in TERMINAL:
            heapq.heappush(self.finished, (row.keep_until, row.seq, row.stamp))
        elif state is not State.WAITING:
            heapq.heappush(self.due, (row.run_at, row.seq, row.stamp))
            self.lines.woken.add(row.line)  # It may be due before what a sleeper waits for.
        self._count(row, state)

    def retire(self, row: Row) -> None:
        """Takes a job out of its line that is past its time to live."""
        if row.group is not None:
            self.ungrant(row, row.group)
            self.grant(row.group, row.new.queue)

    def current(self, entry: Entry) -> Row | None:
        """The row that an entry of a line or a heap points to; None if it is stale."""
        row = self.by_seq.get(entry[1])
        return row if row is not None and row.stamp == entry[2] else None

    def past(self, heap: list[Entry]) -> Iterator[tuple[Micros, Row]]:
        """The rows of a heap whose instant has come, the earliest first. Changes nothing."""
        for entry in takewhile(lambda entry: entry[0] <= self.now, ordered(heap)):
            row = self.current(entry)
            if row is not None:
                yield entry[0], row

    def pages(self, after: int | None, newest_first: bool) -> Iterator[Row]:
        """Rows past a cursor, in or against first-enqueue order."""
        order = self.order  # A deletion during the walk may put a shorter list in its place.
        if newest_first:
            places = range((len(order) if after is None else bisect_left(order, after)) - 1, -1, -1)
        else:
            places = range(0 if after is None else bisect_right(order, after), len(order))
        return (row for i in places if (row := self.by_seq.get(order[i])) is not None)

    # -- counts ----------------------------------------------------------------------------------

    def _count(self, row: Row, state: State | None) -> None:
        """Moves the row from one count to another, and uses the room that it leaves."""
        before = row.counted
        if before is state:
            return
        row.counted = state
        for counter in row.counters:
            if before is not None:
                counter[before] -= 1
            if state is not None:
                counter[state] += 1
        lives, lived = state in ALIVE, before in ALIVE
        if self.limits.platform and State.PROCESSING in (before, state):
            scopes = self.limits.platform_scopes(row.new.queue, row.new.envelope.type)
            self.wakes_all |= self.platform.count(scopes, 1 if state is State.PROCESSING else -1)
        if lives is not lived:
            self.bytes[row.new.tenant] += row.size if lives else -row.size
        if before is State.PROCESSING and self.lines.resting:
            for line in self.lines.resting_of(row.new.tenant):
                self.refresh(line)
        if row.group is not None and lived and state is not State.PROCESSING:
            self.grant_all(row.group)  # There is room, or an ordered group has a new head.

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
            self.groups_of[tenant] += 1
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
        if scope.of_platform:
            return self.platform.running[scope]
        return self.counted(scope)[State.PROCESSING]

    def forget_empty(self) -> None:
        """Drops the counters of lines, tenants and groups that have no jobs left."""
        self.counts = {line: counts for line, counts in self.counts.items() if +counts}
        self.tenants = {name: counts for name, counts in self.tenants.items() if +counts}
        self.groups = {scope: group for scope, group in self.groups.items() if +group.counts}
        self.ages.keep(self.counts)
        self.queues = Counter(tenant for tenant, _ in self.counts)
        self.groups_of = Counter(scope.tenant for scope in self.groups)

    def _waits(self, entry: Entry) -> bool:
        row = self.by_seq.get(entry[1])
        return row is not None and row.state is State.ENQUEUED and row.run_at == entry[0]

    # -- room of tenants and queues --------------------------------------------------------------

    def refresh(self, line: Line) -> None:
        """Lets a line rest or go on, by the room of its tenant and its queue now."""
        if self.platform.holds(line):
            return
        tenant, queue = line
        if self.limits.line_room(tenant, queue, self.now) > 0:
            self.lines.resume(line)
            return
        self.lines.rest(line)
        for scope in (Scope(tenant), queue_scope(tenant, queue)):
            self._reopen_later(scope, self.limits.of(scope).rate)

    def _reopen_later(self, scope: Scope, rate: Rate | None) -> None:
        at = self.limits.next_token(scope, rate, self.now)
        if at is not None:
            self.reopen_at(at, scope)

    def reopen_at(self, at: Micros, scope: Scope) -> None:
        """Has the first claim from an instant on refresh a scope; the earliest instant counts."""
        known = self._reopens.get(scope)
        if known is None or at < known:
            self._reopens[scope] = at
            heapq.heappush(self.reopen, (at, scope))

    def reopen_next(self) -> None:
        """Refreshes the scope whose instant has come."""
        at, scope = heapq.heappop(self.reopen)
        if self._reopens.get(scope) == at:
            del self._reopens[scope]
        self.refresh_scope(scope)
        if slots := self.limits.live_slots(scope, self.now):
            self.reopen_at(min(slots.values()), scope)

    def refresh_scope(self, scope: Scope) -> None:
        """Lets the lines or the jobs of a scope go on or rest, by its room now."""
        if scope.of_platform:
            self.wakes_all = True
        elif scope.kind is ScopeKind.GROUP:
            self.grant_all(scope)
        elif scope.kind is ScopeKind.QUEUE:
            self.refresh((scope.tenant, scope.part))
        else:
            for line in self.lines.of(scope.tenant):
                self.refresh(line)

    def settings_changed(self, scope: Scope) -> None:
        """Applies new settings of a scope to all that waits in it."""
        self.limits.bound_bucket(scope, self.limits.of(scope).rate, self.now)
        if scope.of_platform:
            self.count_running((scope,))
        elif scope.kind is ScopeKind.TENANT and self.limits.tiers:
            self.rechecks.add_groups_of(scope.tenant, self.groups)
        elif scope.kind is ScopeKind.GROUP:
            self._regroup(scope)
        elif scope.kind is ScopeKind.QUEUE:
            for group, found in self.groups.items():
                if group.tenant == scope.tenant and scope.part in found.parts:
                    rate = self.limits.group(group, scope.part).rate
                    self.limits.bound_bucket(group, rate, self.now)
                    self._regroup(group)
        self.refresh_scope(scope)

    def tier_changed(self, tier: str, before: Defaults) -> None:
        """Has claims look again, bit by bit, at what has no room by the changed values."""
        self.rechecks.add(tier, before, self.lines.resting, self.groups)
        self.wakes_all = True

    def recheck(self, each: Line | Scope) -> None:
        """Checks whether a line or a group has room under the tiers as they are now."""
        self.grant_all(each) if isinstance(each, Scope) else self.refresh(each)

    # -- room of the platform's scopes -----------------------------------------------------------

    def platform_room(self, scope: Scope) -> int:
        """How many jobs of a scope of the platform may start now."""
        room = self.limits.platform_room(scope, self.now)
        if room == 0:
            self._reopen_later(scope, self.limits.of(scope).rate)
        return room

    def count_running(self, scopes: Iterable[Scope]) -> None:
        """Counts the running jobs of scopes of the platform anew; of those with settings."""
        for scope in scopes:
            held = map(self.current, (*self.leases, *self.spent))
            inside = sum(row is not None and row.inside(scope) for row in held)
            self.platform.running[scope] = inside if scope in self.limits.platform else 0

    # -- room of groups --------------------------------------------------------------------------

    def head(self, group: Group) -> int | None:
        """The sequence of the group's first job that has not ended."""
        for seq in ordered(group.order):
            row = self.by_seq.get(seq)
            if row is not None and row.state not in TERMINAL:
                return seq
        return None

    def wait_again(self, row: Row, scope: Scope) -> None:
        """Puts a granted job back before its line: its group has no room for it after all."""
        row.stamp += 1
        self.ungrant(row, scope)
        self.wait_for_group(row, scope)
        self._reopen_later(scope, self.limits.group(scope, row.new.queue).rate)

    def wait_for_group(self, row: Row, scope: Scope) -> None:
        """Puts a job before its line, until its group has room for it."""
        ordered_group = self.limits.group(scope, row.new.queue).ordered
        rank = (0, row.seq, row.stamp) if ordered_group else row.rank
        heapq.heappush(self.groups[scope].part(row.new.queue).waiting, rank)

    def ungrant(self, row: Row, scope: Scope) -> None:
        part = self.groups[scope].part(row.new.queue)
        part.granted.discard(row.seq)
        if not part.granted:
            part.worst = None

    def grant_all(self, scope: Scope) -> None:
        group = self.groups.get(scope)
        for queue in list(group.parts) if group is not None else ():
            self.grant(scope, queue)

    def grant(self, scope: Scope, queue: str) -> None:
        """Lets as many of a group's jobs into their line as it has room for, in their order."""
        group = self.groups[scope]
        part, settings = group.part(queue), self.limits.group(scope, queue)
        room = self.limits.group_room(scope, queue, self.now)
        while part.waiting:
            rank = part.waiting[0]
            row = self.current(rank)
            if row is None:
                heapq.heappop(part.waiting)
                continue
            if settings.ordered and row.seq != self._drop_ended(group):
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
            self._reopen_later(scope, settings.rate)

    def _drop_ended(self, group: Group) -> int | None:
        """The head of the group, once the ended jobs before it are dropped."""
        head = self.head(group)
        while group.order and group.order[0] != head:
            heapq.heappop(group.order)
        return head

    def _regroup(self, scope: Scope) -> None:
        """Sorts the waiting jobs of a group anew after its settings have changed."""
        group = self.groups.get(scope)
        if group is None:
            return
        for part in group.parts.values():
            rows = [self.by_seq[seq] for seq in part.granted if seq in self.by_seq]
            rows += [row for row in map(self.current, part.waiting) if row is not None]
            part.granted, part.worst, part.waiting = set(), None, []
            for row in rows:
                row.stamp += 1
                self.wait_for_group(row, scope)
        self.grant_all(scope)
