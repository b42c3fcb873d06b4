"""The memory store: the reference for every other. Hands job objects over without encoding them."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from holdfast.clock import SECOND, Clock, Micros, SystemClock, seconds
from holdfast.errors import NOT_OPEN, ConfigError, IdConflict, JobNotFound, StoreUnavailable
from holdfast.job import TERMINAL, By, EventKind, Lease, NewJob, State, replay_id
from holdfast.lifecycle import Transition, apply, refusal, why
from holdfast.limits import (
    BATCH_MAX,
    CHANGE_MAX,
    CLAIM_MAX,
    EXCLUDE_MAX,
    EXPIRED_MAX,
    PAGE_MAX,
    PRUNE_MAX,
    REPAIR_MAX,
    REPAIR_PASSES_MAX,
    WAIT_S_MAX,
    within,
)
from holdfast.scope import Explanation, ScopeKind
from holdfast.store import (
    Acked,
    Act,
    Canceled,
    Capabilities,
    Change,
    Changed,
    Claim,
    Enqueued,
    EventPage,
    Extended,
    Extension,
    Find,
    Hold,
    Lapsed,
    Page,
    Pruned,
    Put,
    Ref,
    Setting,
    Take,
    Tally,
    Watch,
)
from holdfast.stores.bell import Bell
from holdfast.stores.memory import sight
from holdfast.stores.memory.caps import full
from holdfast.stores.memory.claims import again, promote, repair, take
from holdfast.stores.memory.keys import key_of
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.names import Names
from holdfast.stores.memory.rows import Row
from holdfast.stores.memory.selects import bounded, selects


class MemoryStore:
    """One process, gone with it. Any thread may call; one lock makes each verb one atomic step."""

    capabilities = Capabilities(
        durable=False,
        shared=False,
        encodes=False,
        payload_max=None,
        transactional_enqueue=False,
        native_wakeup=True,
        event_log=True,
        time_precision_us=1,
        cluster=False,
        scopes=True,
    )

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._tables = Tables()
        self._names = Names(self._tables)
        self._bell = Bell()
        self._open = False

    @classmethod
    def from_url(cls, url: str, clock: Clock | None = None) -> MemoryStore:
        if url != "memory://":
            raise ConfigError(field="store", why=f"memory:// takes nothing more, got {url!r}")
        return cls(clock)

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False
        self._bell.ring_all()

    async def migrate(self) -> int:
        return 1

    # -- journey ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        within("jobs", len(jobs), BATCH_MAX)
        with self._step() as now:
            return [self._enqueue(job, now) for job in jobs]

    def _enqueue(self, job: NewJob, now: Micros) -> Enqueued:
        tables = self._tables
        earlier = tables.rows.get((job.tenant, job.id))
        if earlier is not None:
            was = earlier.new
            if (was.envelope.type, was.queue) != (job.envelope.type, job.queue):
                clash = IdConflict(field="id", id=job.id, type=was.envelope.type, queue=was.queue)
                return Enqueued(job.id, False, clash)
            return Enqueued(job.id, False)
        key = key_of(job)
        if key is not None and (holder := tables.held_key(key, now)) is not None:
            return Enqueued(holder, False)
        if (over := full(tables, job)) is not None:
            return Enqueued(job.id, False, over)
        row = tables.insert(job, now)
        tables.take_key(row, now)
        tables.note(EventKind.ENQUEUED, row, now, row.run_at if row.run_at > now else None)
        return Enqueued(job.id, True)

    async def claim(self, claim: Claim) -> list[Lease]:
        within("limit", claim.limit, CLAIM_MAX)
        within("exclude_groups", len(claim.exclude_groups), EXCLUDE_MAX)
        with self._step() as now:
            known = again(self._tables, claim)
            if known is not None:
                return known
            for _ in range(REPAIR_PASSES_MAX):
                if repair(self._tables, now) < REPAIR_MAX:
                    break
            leases = take(self._tables, claim, now)
            self._tables.claims.remember(claim.nonce, leases, now)
            return leases

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        within("extensions", len(extensions), BATCH_MAX)
        with self._step() as now:
            return [self._extend(extension, now) for extension in extensions]

    def _extend(self, extension: Extension, now: Micros) -> Extended:
        row = self._tables.rows.get((extension.tenant, extension.id))
        refused = JobNotFound if row is None else refusal(row, extension.token, now)
        if row is None or refused is not None:
            return Extended(extension.id, error=(refused or JobNotFound)(id=extension.id))
        assert row.lease_until is not None
        row.lease_until = max(row.lease_until, now + extension.lease_us)
        row.updated_at = now
        if extension.progress is not None:
            row.progress = extension.progress
        self._tables.place(row)
        self._tables.note(EventKind.EXTENDED, row, now, row.lease_until)
        return Extended(extension.id, row.lease_until)

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        within("transitions", len(transitions), BATCH_MAX)
        ended: list[Ref] = []
        with self._step() as now:
            acked = [self._ack(change, now, ended) for change in transitions]
            self._tables.count_ended()
        self._bell.ring(ended=ended)
        return acked

    def _ack(self, change: Transition, now: Micros, ended: list[Ref]) -> Acked:
        row = self._tables.rows.get((change.tenant, change.id))
        refused = None if row is None else refusal(row, change.token, now, change.lapsed)
        if row is None or refused is not None:
            return Acked(change.id, error=(refused or JobNotFound)(id=change.id))
        if change.to is State.COMPLETED and row.group is None:
            return self._complete(row, change, now, ended)
        self._tables.count_ended()  # Each transition sees what those before it did.
        settled = apply(row, change, now)
        row.updated_at = now
        if row.state in TERMINAL:
            self._finish(row, now)
            ended.append(Ref(change.tenant, change.id))
        else:
            self._tables.place(row)
        until = settled.run_at if settled.run_at is not None and settled.run_at > now else None
        self._tables.note(settled.kind, row, now, until, why(row))
        return Acked(change.id, row.state)

    def _complete(self, row: Row, change: Transition, now: Micros, ended: list[Ref]) -> Acked:
        """Nearly every ack, without what only others need: as `apply` and `_finish` would do it."""
        tables = self._tables
        row.state = State.COMPLETED
        row.token = row.reason = None
        row.result = change.result
        row.updated_at = row.finished_at = now
        tables.release_key(row, now)
        if row.new.rules.keep_us == 0:
            tables.end(row)
        else:
            tables.place(row)
        ended.append(Ref(change.tenant, change.id))
        tables.note(EventKind.COMPLETED, row, now)
        return Acked(change.id, State.COMPLETED)

    def _finish(self, row: Row, now: Micros) -> None:
        """Ends a job: its key is free, its record stays for its keeping, or goes at once."""
        row.finished_at = now
        self._tables.release_key(row, now)
        if row.keep_until <= now:
            self._tables.remove(row, now)
        else:
            self._tables.place(row)

    # -- will ------------------------------------------------------------------------------------

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        within("refs", len(refs), BATCH_MAX)
        with self._step(by) as now:
            canceled = [self._cancel(ref, now) for ref in refs]
        self._bell.ring(ended=refs)
        return canceled

    def _cancel(self, ref: Ref, now: Micros) -> Canceled:
        row = self._tables.rows.get((ref.tenant, ref.id))
        if row is None:
            return Canceled(ref.id, False, JobNotFound(id=ref.id))
        if row.state not in TERMINAL:
            row.state = State.CANCELED
            row.token = row.reason = None  # A reason is for the dead letters only.
            row.updated_at = now
            self._finish(row, now)
            self._tables.note(EventKind.CANCELED, row, now)
        return Canceled(ref.id, row.state is State.CANCELED)

    async def change(self, change: Change) -> Changed:
        within("limit", change.limit, CHANGE_MAX)
        select = bounded(change.select)
        done: dict[Ref, str] = {}
        cursor: int | None = change.after
        with self._step(change.by) as now:
            for row in self._tables.pages(change.after, newest_first=False):
                if len(done) >= change.limit:
                    break
                cursor = row.seq
                if selects(select, row, now):
                    outcome = self._change(change, row, now)
                    if outcome is not None:
                        done[Ref(row.new.tenant, row.new.id)] = outcome
            else:
                cursor = None
        return Changed(done, cursor)

    def _change(self, change: Change, row: Row, now: Micros) -> str | None:
        """The id that came of it, or None when this job cannot be changed so."""
        if change.act is Act.REPLAY:
            return self._replay(row, now)
        if row.state is State.PROCESSING:
            return None
        if change.act is Act.DELETE:
            self._tables.remove(row, now)
            self._tables.note(EventKind.DELETED, row, now)
            return row.new.id
        if row.state in TERMINAL:
            return None
        if change.act is Act.REPRIORITISE:
            row.priority = change.priority
        else:
            row.run_at = change.run_at if change.run_at is not None else now + change.delay_us
            row.state = State.SCHEDULED if row.run_at > now else State.ENQUEUED
        row.updated_at = now
        self._tables.place(row)
        self._tables.note(EventKind.CHANGED, row, now, row.run_at, change.act.value)
        return row.new.id

    def _replay(self, row: Row, now: Micros) -> str | None:
        if row.state not in TERMINAL or row.replayed_as is not None:
            return None
        new = msgspec.structs.replace(
            row.new,
            id=replay_id(row.new.tenant, row.new.id),
            origin=row.new.id,
            priority=row.priority,
            delay_us=0,
            run_at=None,
            key=None,
        )
        if self._enqueue(new, now).error is not None:
            return None  # Its tenant is full.
        row.replayed_as = new.id
        self._tables.note(EventKind.REPLAYED, row, now, note=new.id)
        return new.id

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        within("limit", limit, EXPIRED_MAX)
        tables = self._tables
        with self._step() as now:
            lapsed = []
            for heap in (tables.spent, tables.leases):
                for deadline, row in self._overdue(heap, now, limit):
                    lapsed.append(Lapsed(row.record(now), row.token, now - deadline))
            for deadline, row in self._overdue_ttl(now, limit):
                lapsed.append(Lapsed(row.record(now), None, now - deadline))
        return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]

    def _overdue(
        self, heap: list[tuple[int, int, int]], now: Micros, limit: int
    ) -> list[tuple[Micros, Row]]:
        """The rows of entries past their instant; they stay in the heap, stale ones do not."""
        found: list[tuple[Micros, Row]] = []
        entries = []
        while heap and heap[0][0] <= now and len(found) < limit:
            entry = heapq.heappop(heap)
            row = self._tables.current(entry)
            if row is not None:
                entries.append(entry)
                found.append((entry[0], row))
        for entry in entries:
            heapq.heappush(heap, entry)
        return found

    def _overdue_ttl(self, now: Micros, limit: int) -> list[tuple[Micros, Row]]:
        found: list[tuple[Micros, Row]] = []
        entries = []
        heap = self._tables.ttl
        while heap and heap[0][0] <= now and len(found) < limit:
            entry = heapq.heappop(heap)
            row = self._tables.by_seq.get(entry[1])
            if row is None or row.state in TERMINAL:
                continue
            entries.append(entry)
            if row.state is not State.PROCESSING:
                found.append((entry[0], row))
        for entry in entries:
            heapq.heappush(heap, entry)
        return found

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        within("limit", limit, PRUNE_MAX)
        tables = self._tables
        jobs = events = 0
        with self._step() as now:
            while tables.finished and tables.finished[0][0] <= now and jobs < limit:
                row = tables.current(heapq.heappop(tables.finished))
                if row is not None:
                    tables.remove(row, now)
                    jobs += 1
            while tables.key_ends and tables.key_ends[0][0] <= now:
                _, key = heapq.heappop(tables.key_ends)
                if tables.held_key(key, now) is None:
                    tables.keys.pop(key, None)
            self._names.prune()
            tables.forget()
            horizon = now - events_keep_us
            while tables.events and tables.events[0].at <= horizon and events < limit:
                tables.events_floor = tables.events.popleft().cursor
                events += 1
        return Pruned(jobs, events, more=limit in (jobs, events))

    # -- sight -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        within("limit", find.limit, PAGE_MAX)
        bounded(find.select)
        with self._step():
            return sight.find(self._tables, find)

    async def count(
        self,
        tenant: str | None,
        *,
        by: ScopeKind = ScopeKind.QUEUE,
        part: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = PAGE_MAX,
        recount: bool = False,
    ) -> list[Tally]:
        within("limit", limit, PAGE_MAX)
        tables = self._tables
        with self._step() as now:
            promote(tables, now, len(tables.due))  # A due job is seen as enqueued.
            correction = tables.recount() if recount else 0
            found = [
                scope
                for scope in sight.scopes(tables, tenant, by)
                if (part is None or scope.part == part)
                and (after is None or (scope.tenant, scope.part) > after)
            ]
            return [sight.tally(tables, scope, correction) for scope in found[:limit]]

    async def explain(self, ref: Ref) -> Explanation:
        with self._step() as now:
            row = self._tables.rows.get((ref.tenant, ref.id))
            if row is None:
                raise JobNotFound(id=ref.id)
            repair(self._tables, now)  # What a claim would do first is no gate.
            return sight.explain(self._tables, row)

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        within("limit", limit, PAGE_MAX)
        with self._step():
            return sight.events(self._tables, tenant, after, limit, job_id)

    # -- names -----------------------------------------------------------------------------------

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        within("puts", len(puts), BATCH_MAX)
        within("limit", limit, PAGE_MAX)
        puts = [put.checked() for put in puts]
        with self._step(by):
            done = self._names.put(puts)
            return done if under is None else self._names.settings(under, after, limit)

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        within("takes", len(takes), BATCH_MAX)
        within("limit", limit, PAGE_MAX)
        takes = [one.checked() for one in takes]
        with self._step():
            self._names.check_room(takes)
            holds = [self._names.take(one) for one in takes]
            return holds if under is None else self._names.holds(under, after, limit)

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        with self._bell.listen(watch) as ear:
            with self._step() as now:
                delay = self._soonest(watch, now)
            await ear.sleep(min(timeout_s, WAIT_S_MAX, delay))

    def _soonest(self, watch: Watch, now: Micros) -> float:
        """Seconds until something known will be worth a look; 0 when it already is."""
        if watch.news:
            return WAIT_S_MAX
        if watch.job is not None:
            row = self._tables.rows.get((watch.job.tenant, watch.job.id))
            return 0.0 if row is None or row.state in TERMINAL else WAIT_S_MAX
        if self._tables.lines.any(watch.tenants, watch.queues):
            return 0.0
        tables = self._tables
        heads = [heap[0][0] for heap in (tables.due, tables.leases, tables.reopen) if heap]
        return max(0.0, seconds(min(heads, default=now + 3600 * SECOND) - now))

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _step(self, by: By | None = None) -> Iterator[Micros]:
        """One atomic step at one instant of the clock; its events name who wanted it."""
        if not self._open:
            raise StoreUnavailable(store="memory://", why=NOT_OPEN)
        with self._lock:
            now = self._tables.now = self._clock.now()
            self._tables.by = None if by is None else by.checked().words
            yield now
            woken, self._tables.lines.woken = self._tables.lines.woken, set()
        if woken:
            self._bell.ring(woken)
