"""The FoundationDB store: for those who outgrow one machine. Layout and rules: `layout.py`.

Each verb is a step (`step.py`): a transaction that Python fills by the same pure rules as memory
and SQLite, tried again while others are in the way, and done once (`runner.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from holdfast.clock import Clock, Micros, micros
from holdfast.errors import NOT_OPEN, InvalidInput, StoreError, StoreUnavailable, TenantFull
from holdfast.job import By, Lease, NewJob
from holdfast.lifecycle import Transition
from holdfast.limits import (
    BATCH_MAX,
    CHANGE_MAX,
    CLAIM_MAX,
    EXCLUDE_MAX,
    EXPIRED_MAX,
    PAGE_MAX,
    PRUNE_MAX,
    REPAIR_MAX,
    within,
)
from holdfast.scope import Explanation, ScopeKind, slot_scope_of
from holdfast.store import (
    Acked,
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
from holdfast.stores.foundationdb import (
    claims,
    counting,
    explain,
    journey,
    log,
    migrate,
    names,
    recounting,
    sight,
    sorting,
    upkeep,
    will,
)
from holdfast.stores.foundationdb.binding import open_database, require
from holdfast.stores.foundationdb.claiming import Claiming, mend
from holdfast.stores.foundationdb.clock import Time
from holdfast.stores.foundationdb.directory import Directories
from holdfast.stores.foundationdb.layout import Keys
from holdfast.stores.foundationdb.options import Options, parse
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.runner import Ahead, Runner, Work
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.sweep import Sweep
from holdfast.stores.foundationdb.turns import Turns, leave
from holdfast.stores.foundationdb.wakeup import Doorbell

T = TypeVar("T")

CHANGE_LOOKS_MAX = 5000
"""Jobs that one transaction of a change looks at."""
COUNT_PASSES_MAX = 1000
"""Steps that make due jobs ready before they are counted."""
LAPSED_PASSES_MAX = 200
"""Steps that drop lapsed holds before a tenant is told that it has too many."""
SWEEPS_MAX = 10
"""Steps of a prune that clear away what nothing ends of itself."""


def signed(by: By | None, work: Work[T]) -> Work[T]:
    """The work, whose facts say who wanted it."""
    words = None if by is None else by.checked().words

    async def signs(step: Step) -> T:
        step.by = words
        return await work(step)

    return signs


class FoundationStore:
    """Any thread that runs an event loop may call; a verb returns after its commit.

    `database` is given by tests, which have an engine of their own; else the cluster file's.
    """

    def __init__(self, options: Options, clock: Clock | None = None, database: Any = None) -> None:
        self.options = options
        self._database = database
        self._time = Time(clock, micros(options.grace_s))
        self._known = Known()
        self._turns = Turns()
        self._sweep = Sweep()
        self._bell = Bell()
        self._doorbell: Doorbell | None = None
        self._runner: Runner | None = None
        self._owner = 0
        self.capabilities = Capabilities(
            durable=True,
            shared=True,
            encodes=True,
            payload_max=None,
            transactional_enqueue=True,
            native_wakeup=True,
            event_log=options.events,
            time_precision_us=1,
            cluster=True,
            scopes=True,
        )

    @classmethod
    def from_url(cls, url: str, clock: Clock | None = None) -> FoundationStore:
        options = parse(url)
        require()
        return cls(options, clock)

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._runner is not None and self._owner == os.getpid():
            return
        database = open_database(self.options) if self._database is None else self._database
        runner = Runner(database, self.options, self._time)
        runner.keys = Keys(await self._prefix(runner))
        if self.options.migrate == "auto":
            await migrate.migrate(runner)
        place = self.options.name
        runner.first = await runner.write(lambda step: migrate.open_format(step, place))
        runner.check = migrate.check
        self._owner = os.getpid()
        self._bell = Bell()  # A new one: after a fork the old one's lock may be held for ever.
        self._doorbell = Doorbell(database, runner.keys, self._bell, self.options.timeout_s)
        self._runner = runner

    async def _prefix(self, runner: Runner) -> bytes:
        """What all keys begin with."""
        options = self.options
        if options.prefix is not None:
            return options.prefix.encode() + b"\0"
        return await runner.bare(
            lambda transaction: Directories(transaction, options.name).create_or_open(options.path)
        )

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        doorbell, self._doorbell = self._doorbell, None
        if runner is None or self._owner != os.getpid():
            return
        if doorbell is not None:
            doorbell.close()
        self._bell.ring_all()
        with suppress(StoreError):  # Names fade by themselves, only later.
            await runner.write(partial(leave, turns=self._turns))

    async def migrate(self) -> int:
        database = open_database(self.options) if self._database is None else self._database
        runner = Runner(database, self.options, self._time)
        runner.keys = Keys(await self._prefix(runner))
        return await migrate.migrate(runner)

    # -- journey ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        within("jobs", len(jobs), BATCH_MAX)
        answers: list[Enqueued] = []
        for some in journey.batches(jobs):
            answers += await self._write(
                partial(journey.enqueue, known=self._known, jobs=some),
                partial(journey.ask_enqueue, jobs=some),
            )
        if not jobs:
            self._open()
        return answers

    async def enqueue_using(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """In the caller's own transaction, a `Transaction` of the binding: the caller commits it,
        and tries it again; the ids find the first try then.
        """
        within("jobs", len(jobs), BATCH_MAX)
        if not hasattr(connection, "set_versionstamped_key"):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            why = f"is a {kind}; must be a Transaction of the package foundationdb"
            raise InvalidInput(field="using", why=why)
        ahead = partial(journey.ask_enqueue, jobs=jobs, believe=False)
        runner = self._open()
        step = await runner.joined(connection, ahead)
        answers = await runner.checked(
            step, lambda step: journey.enqueue(step, self._known, jobs, believe=False)
        )
        await step.conclude()
        step.flush()
        return answers

    async def claim(self, claim: Claim) -> list[Lease]:
        within("limit", claim.limit, CLAIM_MAX)
        within("exclude_groups", len(claim.exclude_groups), EXCLUDE_MAX)
        return await Claiming(claim, self._write, self._turns, self._known).run()

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        within("extensions", len(extensions), BATCH_MAX)
        return await self._write(
            lambda step: journey.extend(step, extensions),
            lambda step: step.ask_rows((each.tenant, each.id) for each in extensions),
        )

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        within("transitions", len(transitions), BATCH_MAX)
        return await self._write(
            lambda step: journey.ack(step, self._known, transitions),
            lambda step: journey.ask_acts(step, transitions),
        )

    # -- will ------------------------------------------------------------------------------------

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        within("refs", len(refs), BATCH_MAX)
        return await self._write(
            signed(by, lambda step: will.cancel(step, self._known, refs)),
            lambda step: journey.ask_acts(step, refs),
        )

    async def change(self, change: Change) -> Changed:
        within("limit", change.limit, CHANGE_MAX)
        sight.bounded(change.select)
        return await self._write(
            signed(change.by, lambda step: will.change(step, self._known, change, CHANGE_LOOKS_MAX))
        )

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        within("limit", limit, EXPIRED_MAX)
        return await self._open().read(lambda step: upkeep.expired(step, limit))

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        within("limit", limit, PRUNE_MAX)
        await self._number()
        await self._sort()
        for _ in range(SWEEPS_MAX):
            if not await self._write(self._sweep.on):
                break
        jobs = events = 0
        while limit:
            left = limit - max(jobs, events)
            part = await self._write(
                partial(upkeep.prune, known=self._known, limit=left, events_keep_us=events_keep_us)
            )
            jobs, events = jobs + part.jobs, events + part.events
            if not part.more or max(jobs, events) >= limit:
                return Pruned(jobs, events, part.more)
        return Pruned(0, 0, more=True)

    # -- sight -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        within("limit", find.limit, PAGE_MAX)
        sight.bounded(find.select)
        runner = self._open()
        if find.limit == 0:
            return Page([], find.after)
        finding, ends = sight.Finding(find), monotonic() + sight.FIND_S
        while (page := await runner.read(finding.look)) is None:
            if monotonic() >= ends:
                return finding.short()
        return page

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
        if await self._open().read(claims.due):  # A due job is seen as enqueued.
            for _ in range(COUNT_PASSES_MAX):
                if await self._write(partial(claims.promote, known=self._known)) < REPAIR_MAX:
                    break
        correction = await self._recount() if recount else 0
        asked = counting.Asked(tenant=tenant, by=by, part=part, after=after, limit=limit)
        return await self._open().read(lambda step: counting.count(step, asked, correction))

    async def _recount(self) -> int:
        place: bytes | None = b""
        off, large = 0, list[str]()
        while place is not None:
            part = await self._write(partial(recounting.recount, place=place))
            place, off = part.place, off + part.off
            large += part.large
        if large:
            off += await self._write(partial(recounting.recount_held, tenants=tuple(large)))
        return off

    async def explain(self, ref: Ref) -> Explanation:
        if await self._open().read(claims.overdue):  # What a claim would do first is no gate.
            await mend(self._write, self._known)
        return await self._open().read(lambda step: explain.explain(step, self._known, ref))

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        within("limit", limit, PAGE_MAX)
        await self._number()
        return await self._open().read(lambda step: log.page(step, tenant, after, limit, job_id))

    async def _number(self) -> None:
        """Numbers the facts that are there now."""
        while await self._write(log.number) >= log.RUNS_MAX:
            continue

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
        answer: list[Setting] = []
        if puts:
            answer = await self._write(signed(by, lambda step: names.put(step, self._known, puts)))
            await self._sort()
        runner = self._open()
        if under is None:
            return answer
        listing = names.Listing(under, after, limit)
        while limit and not await runner.read(listing.look_at_settings):
            continue
        return listing.settings

    async def _sort(self) -> None:
        """Sorts the groups whose rules have changed, to the end."""
        while await self._open().read(sorting.waits):
            await self._write(partial(sorting.go_on, known=self._known))

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
        for one in takes:
            slot_scope_of(one.name)  # Refused before anything is changed.
        held = await self._take(takes) if takes else []
        runner = self._open()
        if under is None:
            return held
        listing = names.Listing(under, after, limit)
        while limit and not await runner.read(listing.look_at_holds):
            continue
        return listing.holds

    async def _take(self, takes: Sequence[Take]) -> list[Hold]:
        """Takes names. Where a tenant seems to have too many slots, lapsed ones go first."""
        work = partial(names.take, known=self._known, takes=takes)
        held = await self._write(work)
        for _ in range(LAPSED_PASSES_MAX):
            if not isinstance(held, TenantFull):
                return held
            lapsed = await self._write(partial(names.prune, limit=PAGE_MAX))
            held = await self._write(work)
            if not lapsed:
                break
        if isinstance(held, TenantFull):
            raise held
        return held

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        runner, doorbell = self._open(), self._doorbell
        assert doorbell is not None
        with self._bell.listen(watch) as ear:
            most = await doorbell.listen(watch)
            delay = await runner.read(lambda step: claims.soonest(step, self._known, watch))
            await ear.sleep(min(timeout_s, most, delay))

    # -- inside ----------------------------------------------------------------------------------

    def _open(self) -> Runner:
        if self._runner is None:
            raise StoreUnavailable(store=self.options.name, why=NOT_OPEN)
        if self._owner != os.getpid():
            raise StoreUnavailable(store=self.options.name, why="it was opened before a fork")
        return self._runner

    async def _write(self, work: Work[T], ahead: Ahead | None = None) -> T:
        return await self._open().write(work, self._ring, ahead)

    def _ring(self, step: Step) -> None:
        """Tells the sleepers of this process what a step has done."""
        if step.lines or step.ended:
            self._bell.ring(step.lines, step.ended)
