"""The FoundationDB store, for those who outgrow one machine. `layout.py` draws its keys.

Each verb is a step (`step.py`): one transaction that Python fills by the same pure rules as memory
and SQLite. It is repeated after a conflict, and done only once (`runner.py`).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import Clock, Micros, micros
from holdfast.core.errors import (
    NOT_OPEN,
    HoldfastError,
    InvalidInput,
    StoreError,
    StoreUnavailable,
    TenantFull,
)
from holdfast.core.job import By, Lease, NewJob
from holdfast.core.journal import Signal, Signaled
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import Explanation, ScopeKind, scope_of, slot_scope_of
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep
from holdfast.store import (
    Acked,
    Canceled,
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
from holdfast.stores.foundationdb import limits_platform, maintenance, migrate
from holdfast.stores.foundationdb.ack import ack_jobs, ask_acks, ask_jobs
from holdfast.stores.foundationdb.binding import open_database, require
from holdfast.stores.foundationdb.cancel import cancel_jobs
from holdfast.stores.foundationdb.change import change_jobs
from holdfast.stores.foundationdb.claim import ClaimRun
from holdfast.stores.foundationdb.claim_sharing import Claimers, leave
from holdfast.stores.foundationdb.clock import Time
from holdfast.stores.foundationdb.count import Asked, count_jobs
from holdfast.stores.foundationdb.directory import Directories
from holdfast.stores.foundationdb.enqueue import (
    ask_enqueue,
    enqueue_jobs,
    enqueue_whole,
    job_bytes,
    split,
)
from holdfast.stores.foundationdb.events import BATCHES_MAX, number_events, read_events
from holdfast.stores.foundationdb.explain import explain_job
from holdfast.stores.foundationdb.extend import ask_leases, extend_leases
from holdfast.stores.foundationdb.fairness import Turns
from holdfast.stores.foundationdb.find import find_jobs
from holdfast.stores.foundationdb.holds import list_holds, prune_holds, take_holds
from holdfast.stores.foundationdb.joins import Releases
from holdfast.stores.foundationdb.journal import entries_bytes
from holdfast.stores.foundationdb.layout import Keys
from holdfast.stores.foundationdb.limits_groups import has_marks, regroup
from holdfast.stores.foundationdb.maintenance_sweep import Sweep
from holdfast.stores.foundationdb.notify import Watches, soonest
from holdfast.stores.foundationdb.options import Options, parse
from holdfast.stores.foundationdb.recount import recount as correct_counts
from holdfast.stores.foundationdb.runner import Ahead, Runner, Work, on, signed
from holdfast.stores.foundationdb.scope_cache import ScopeCache
from holdfast.stores.foundationdb.settings import list_settings, put_settings
from holdfast.stores.foundationdb.shadow import apply_step, read_shadow
from holdfast.stores.foundationdb.signal import ask_signals, send_signals, signal_bytes
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Notifier

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")

LAPSED_PASSES_MAX = 200
"""Steps that delete lapsed holds before a tenant is told that it has too many."""
SWEEPS_MAX = 10
"""Steps of a prune that delete keys which no verb deletes."""
NUMBER_AFTER = 200
"""Batches of events that a store writes before it numbers those that are there."""


def _is_of_platform(put: Put) -> bool:
    scope = scope_of(put.name)
    return scope is not None and scope.of_platform


class FoundationStore:
    """Any thread that runs an event loop may call; a verb returns after its commit.

    Tests give a `database`, that of an engine of their own; else the cluster file names it.
    """

    def __init__(self, options: Options, clock: Clock | None = None, database: Any = None) -> None:
        self.options = options
        self._database = database
        self._time = Time(clock, micros(options.grace_s))
        self._cache = ScopeCache()
        self._turns = Turns()
        self._claimers = Claimers()
        self._releases = Releases()
        self._unnumbered = 0
        self._sweep = Sweep()
        self._notifier = Notifier()
        self._watches: Watches | None = None
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
            platform=True,
            tiers=True,
            steps=True,
            sources=True,
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
        runner = Runner(database, self.options, self._time, self._cache)
        runner.keys = Keys(await self._prefix(runner))
        if self.options.migrate == "auto":
            await migrate.migrate(runner)
        place = self.options.name
        runner.first = await runner.write(lambda step: migrate.open_format(step, place))
        runner.check = migrate.check
        self._owner = os.getpid()
        # A new one: after a fork the lock of the old one may be held for ever.
        self._notifier = Notifier()
        self._watches = Watches(database, runner.keys, self._notifier, self.options.timeout_s)
        self._runner = runner

    async def _prefix(self, runner: Runner) -> bytes:
        """The prefix of all keys."""
        options = self.options
        if options.prefix is not None:
            return options.prefix.encode() + b"\0"
        return await runner.bare(
            lambda transaction: Directories(transaction, options.name).create_or_open(options.path)
        )

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        watches, self._watches = self._watches, None
        if runner is None or self._owner != os.getpid():
            return
        if watches is not None:
            watches.close()
        self._notifier.notify_all()
        with suppress(StoreError):  # The names lapse by themselves, only later.
            await runner.write(partial(leave, claimers=self._claimers))

    async def migrate(self) -> int:
        database = open_database(self.options) if self._database is None else self._database
        runner = Runner(database, self.options, self._time, self._cache)
        runner.keys = Keys(await self._prefix(runner))
        return await migrate.migrate(runner)

    # -- life of a job ---------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        if whole:
            return await self._write(on(jobs, enqueue_whole), on(jobs, ask_enqueue))
        return await self._split(jobs, job_bytes, enqueue_jobs, ask_enqueue)

    async def enqueue_using(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """In the caller's own transaction, a `Transaction` of the binding. The caller commits it,
        and repeats it; the ids find the jobs of the first try then.
        """
        if not hasattr(connection, "set_versionstamped_key"):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            why = f"is a {kind}; must be a Transaction of the package foundationdb"
            raise InvalidInput(field="using", why=why)
        runner = self._open()
        step = await runner.joined(connection, partial(ask_enqueue, jobs=jobs, trust_new=False))
        answers = await runner.checked(step, partial(enqueue_jobs, jobs=jobs, trust_new=False))
        await step.conclude()
        step.flush()
        return answers

    async def claim(self, claim: Claim) -> list[Lease]:
        shared = self._turns, self._claimers, self._releases
        return await ClaimRun(claim, self._write, *shared).run()

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        return await self._split(extensions, entries_bytes, extend_leases, ask_leases)

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        return await self._split(transitions, entries_bytes, ack_jobs, ask_acks)

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        return await self._split(signals, signal_bytes, send_signals, ask_signals, by)

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        return await self._write(
            signed(by, partial(cancel_jobs, refs=refs)), partial(ask_jobs, jobs=refs)
        )

    async def change(self, change: Change) -> Changed:
        return await self._write(signed(change.by, partial(change_jobs, change=change)))

    # -- maintenance -----------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        return await self._open().read(partial(maintenance.expired_jobs, limit=limit))

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        while await self._write(number_events) >= BATCHES_MAX:
            continue
        await self._regroup()
        await self._write(limits_platform.count_uncounted)
        for _ in range(SWEEPS_MAX):
            if not await self._write(self._sweep.run):
                break
        jobs = events = looked = 0
        while limit:
            left = limit - looked
            done = await self._write(
                partial(maintenance.prune, limit=left, events_keep_us=events_keep_us)
            )
            part, looked = done.pruned, looked + done.looked
            jobs, events = jobs + part.jobs, events + part.events
            if not part.more or looked >= limit:
                return Pruned(jobs, events, part.more)
        return Pruned(0, 0, more=True)

    # -- reads -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        return await find_jobs(self._open(), find)

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
        correction = await correct_counts(self._write) if recount else 0
        if recount:
            await self._write(limits_platform.recount)
        asked = Asked(tenant=tenant, by=by, part=part, after=after, limit=limit)
        return await self._open().read(partial(count_jobs, asked=asked, correction=correction))

    async def explain(self, ref: Ref) -> Explanation:
        return await self._open().read(partial(explain_job, ref=ref))

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        return await self._open().read(lambda step: read_events(step, tenant, after, limit, job_id))

    # -- settings and holds ----------------------------------------------------------------------

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        runner, answer = self._open(), list[Setting]()
        if puts:
            answer = await self._write(signed(by, partial(put_settings, puts=puts)))
            await self._regroup()
            if any(_is_of_platform(put) for put in puts):
                await self._write(limits_platform.count_uncounted)
        return answer if under is None else await list_settings(runner, under, after, limit)

    async def _regroup(self) -> None:
        """Regroups the jobs of groups whose settings have changed, to the end."""
        while await self._open().read(has_marks):
            await self._write(regroup)

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        for one in takes:
            slot_scope_of(one.name)  # Refused before anything is changed.
        runner = self._open()
        held = await self._take(takes) if takes else []
        return held if under is None else await list_holds(runner, under, after, limit)

    async def _take(self, takes: Sequence[Take]) -> list[Hold]:
        """Takes names. If a tenant seems to have too many slots, lapsed ones are deleted first."""
        held = await self._write(partial(take_holds, takes=takes))
        for _ in range(LAPSED_PASSES_MAX):
            if not isinstance(held, TenantFull):
                return held
            lapsed = await self._write(partial(prune_holds, limit=PAGE_MAX))
            held = await self._write(partial(take_holds, takes=takes))
            if not lapsed:
                break
        if isinstance(held, TenantFull):
            raise held
        return held

    # -- sources ---------------------------------------------------------------------------------

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        if isinstance(ask, ShadowRead):
            return await self._open().read(partial(read_shadow, read=ask))
        ahead = on(ask.jobs, ask_enqueue) if ask.jobs else None
        answer = await self._write(partial(apply_step, change=ask), ahead)
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        runner, watches = self._open(), self._watches
        assert watches is not None
        with self._notifier.listen(watch) as listener:
            most = await watches.listen(watch)
            delay, limited = await runner.read(partial(soonest, watch=watch))
            if limited and delay > 0:
                # Room at limits of the platform has a topic, watched only where there are some.
                most = min(most, await watches.listen_to_platform())
                delay, _ = await runner.read(partial(soonest, watch=watch))
            await listener.sleep(min(timeout_s, most, delay))

    # -- inside ----------------------------------------------------------------------------------

    def _open(self) -> Runner:
        if self._runner is None:
            raise StoreUnavailable(store=self.options.name, why=NOT_OPEN)
        if self._owner != os.getpid():
            raise StoreUnavailable(store=self.options.name, why="it was opened before a fork")
        return self._runner

    async def _split(
        self,
        items: Sequence[Item],
        bytes_of: Callable[[Item], int],
        work: Callable[[Step, Sequence[Item]], Awaitable[list[Answer]]],
        ask: Callable[[Step, Sequence[Item]], None],
        by: By | None = None,
    ) -> list[Answer]:
        """The answers to what a call was given, in as many steps as it takes."""
        self._open()
        answers: list[Answer] = []
        for some in split(items, bytes_of):
            answers += await self._write(signed(by, on(some, work)), on(some, ask))
        return answers

    async def _write(self, work: Work[T], ahead: Ahead | None = None) -> T:
        runner = self._open()
        answer = await runner.write(work, self._committed, ahead)
        if self._unnumbered >= NUMBER_AFTER:
            # So that readers, which write nothing, find few batches to count through.
            self._unnumbered = 0
            await runner.try_once(number_events)
        return answer

    def _committed(self, step: Step) -> None:
        """Wakes the sleepers of this process after a commit."""
        self._unnumbered += step.batches
        if step.wakes_all:
            self._notifier.notify_all()
        elif step.lines or step.ended:
            self._notifier.notify(step.lines, step.ended)
