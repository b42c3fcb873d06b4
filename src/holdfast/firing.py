"""What a tick does when it runs: it makes the jobs that are due, and enqueues the next tick.

Every step is safe to repeat, so a worker may die between any two of them, and two workers may do
the same tick at once: the ids of the jobs and of the next tick follow from the schedule and the
instant, and a key keeps the id of a job that was deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from holdfast.context import Context, Snooze
from holdfast.core.bounds import FAN_OUT_MAX, FAN_OUT_PART, TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.clock import SECOND, Micros, seconds
from holdfast.core.codec import JSON
from holdfast.core.errors import HoldfastError, InvalidInput, QueueFull, StoreError, TenantFull
from holdfast.core.job import By, JobRecord, NewJob, Reason, State
from holdfast.core.mapped import is_mapped_codec
from holdfast.core.schedule import ITSELF, OVER_ALL, QUEUE, TYPE, Definition, Overlap, name_of
from holdfast.core.tick import (
    TICK_RULES,
    Due,
    Tick,
    due,
    due_at,
    instant_text,
    job_id,
    key_length,
    target,
    tick_id,
    tick_job,
)
from holdfast.definitions import ALIVE, ScheduleState, jobs_named, pause_itself, state_of
from holdfast.lookup import find_jobs
from holdfast.store import Enqueued, Ref, Store
from holdfast.typed import JobFunction, JobType, Style

logger = logging.getLogger("holdfast.schedules")

Tenants: TypeAlias = Callable[
    [], Iterable[str] | AsyncIterator[str] | Awaitable[Iterable[str] | AsyncIterator[str]]
]
"""What `tenants=` takes: a function that lists the tenants, or a generator of them."""

FULL_S = 5.0
"""How long a tick waits when its tenant has no room for the job."""
FOREIGN_S = 30.0
"""How long a tick waits whose `tenants=` this worker does not know."""
FOREIGN_MOST: Micros = 24 * 3600 * SECOND
"""Then the schedule pauses itself."""
_UNKNOWN = frozenset({Reason.UNKNOWN_TYPE, Reason.DECODE})


class Firing:
    """Fires the ticks of a store. `tenants` has the functions of schedules over many tenants."""

    def __init__(self, store: Store, tenants: Callable[[str], Tenants | None]) -> None:
        self._store = store
        self._tenants = tenants

    async def fire(self, job: JobRecord, tick: Tick) -> None:
        """Does what the tick stands for. A tick that is not, or no longer, one of its schedule ends
        without a trace.
        """
        state = await self._state(job.tenant, tick.schedule)
        if state is None:
            return
        definition = state.definition
        if definition is None:
            logger.error("schedule %r of %r: %s", tick.schedule, job.tenant, state.fault)
            return
        # The instant of the claim, by the store's clock.
        run = _Run(state, definition, job, tick, now=job.updated_at)
        if definition.revision != tick.revision:
            return
        try:
            if not run.real():
                return
            plan = run.plan()
        except InvalidInput as error:
            await self._stop(run, str(error))
            return
        if plan.dropped is not None:
            first, last = map(instant_text, plan.dropped)
            words = "%s: made no jobs for the ticks from %s to %s, which were missed"
            logger.warning(words, run.words, first, last)
        if plan.next is None and not tick.asked:
            await self._stop(run, "it has no further ticks")
        await self._make(run, plan)

    async def _state(self, tenant: str, schedule: str) -> ScheduleState | None:
        name = name_of(tenant, schedule)
        for setting in await self._store.settings(under=name, limit=1):
            if setting.name == name:
                return state_of(setting)
        return None

    async def _make(self, run: _Run, plan: Due) -> None:
        made = () if run.definition.paused is not None and not run.tick.asked else plan.made
        if made and is_mapped_codec(run.definition.job.codec):
            await self._without_keys(run)
            return
        if run.tenant == OVER_ALL:
            if made:
                await self._fan_out(run, made)
            await self._enqueue(run, (), plan.next, run.earlier(made))
            return
        made, earlier = await self._overlap(run, made)
        key_us = key_length(run.definition)
        jobs = [target(run.tenant, run.name, run.definition, at, key_us=key_us) for at in made]
        await self._enqueue(run, jobs, plan.next, earlier)

    async def _without_keys(self, run: _Run) -> None:
        """Leaves a tick to a worker that has the keys of what its job carries."""
        if run.now - run.tick.at > FOREIGN_MOST:
            await self._stop(run, "no worker has the keys of its payload")
            return
        raise Snooze(FOREIGN_S)

    async def _enqueue(
        self,
        run: _Run,
        jobs: Sequence[NewJob],
        at: Micros | None,
        earlier: Sequence[tuple[Micros, Micros]],
    ) -> None:
        """Makes the jobs, then the next tick: if the process dies between them, the tick runs again
        and finds the jobs made.
        """
        if jobs:
            for answer in await self._store.enqueue(jobs):
                await self._refused(run, answer)
        if at is not None and not run.tick.asked:
            following = tick_job(run.tenant, run.name, run.definition, at, earlier)
            [answer] = await self._store.enqueue([following])
            if answer.error is not None:
                raise _later(answer.error)

    async def _refused(self, run: _Run, answer: Enqueued) -> None:
        """A tenant without room gets its job later. What cannot be made stops the schedule."""
        error = answer.error
        if error is None:
            return
        if isinstance(error, QueueFull | TenantFull | StoreError):
            raise _later(error)
        await self._stop(run, f"its job cannot be made: {error}")

    async def _stop(self, run: _Run, reason: str) -> None:
        logger.error("%s: paused itself: %s", run.words, reason)
        await pause_itself(self._store, run.state, reason, run.now)

    # -- overlap ---------------------------------------------------------------------------------

    async def _overlap(
        self, run: _Run, made: tuple[Micros, ...]
    ) -> tuple[tuple[Micros, ...], tuple[tuple[Micros, Micros], ...]]:
        """The instants that get a job, by the rule about overlap, and what the next tick must know.
        The jobs of one run do not count against each other.
        """
        earlier = [pair for pair in run.tick.earlier if pair[1] not in made]
        ids = {job_id(run.tenant, run.name, *pair): pair for pair in earlier}
        jobs = await find_jobs(self._store, run.tenant, tuple(ids))
        mine = [job for job in jobs if ids[job.id][0] == run.tick.revision]
        newest = max(mine, key=lambda job: job.seq, default=None)
        if newest is not None and newest.state is State.FAILED and newest.reason in _UNKNOWN:
            await self._stop(run, f"job {newest.id} failed: {_told(newest)}")
            return (), ()  # Forgotten, so that it counts no more after a resume.
        alive = [job for job in jobs if job.state in ALIVE]
        if made and alive:
            made = await self._against(run, made, alive)
        return made, run.earlier(made)

    async def _against(
        self, run: _Run, made: tuple[Micros, ...], alive: Sequence[JobRecord]
    ) -> tuple[Micros, ...]:
        overlap = run.definition.overlap
        if overlap is Overlap.CANCEL:
            refs = [Ref(job.tenant, job.id) for job in alive]
            await self._store.cancel(refs, by=By(ITSELF, f"the next tick of {run.name}"))
        elif overlap is Overlap.SKIP or (overlap is Overlap.QUEUE and len(alive) > 1):
            words = "%s: skips the tick %s, because job %s has not ended"
            logger.info(words, run.words, instant_text(made[-1]), alive[0].id)
            return ()
        return made

    # -- many tenants ----------------------------------------------------------------------------

    async def _fan_out(self, run: _Run, made: tuple[Micros, ...]) -> None:
        """Makes the jobs of every tenant, in parts. Each part is safe to repeat. A worker without
        the code that lists the tenants leaves the tick to another one.
        """
        listing = self._tenants(run.name)
        if listing is None:
            if run.now - run.tick.at > FOREIGN_MOST:
                await self._stop(run, "no worker has the code that lists its tenants")
                return
            raise Snooze(FOREIGN_S)
        number = 0
        async for part in _parts(listing):
            number += len(part)
            if number > FAN_OUT_MAX:
                await self._stop(run, f"tenants= lists more than {FAN_OUT_MAX} tenants")
                return
            await self._part(run, made, part)

    async def _part(self, run: _Run, made: tuple[Micros, ...], tenants: Sequence[str]) -> None:
        definition, name = run.definition, run.name
        busy = await self._busy(run, made, tenants)
        key_us = key_length(definition)
        for at in made:
            jobs = [
                target(tenant, name, definition, at, key_us=key_us)
                for tenant in tenants
                if tenant not in busy
            ]
            for job, answer in zip(jobs, await self._store.enqueue(jobs), strict=True):
                if answer.error is not None:  # It must not keep the others from their jobs.
                    words = "%s: no job for tenant %r: %s"
                    logger.warning(words, run.words, job.tenant, answer.error)

    async def _busy(
        self, run: _Run, made: tuple[Micros, ...], tenants: Sequence[str]
    ) -> frozenset[str]:
        """The tenants that get no job, by the rule about overlap."""
        if run.definition.overlap is Overlap.ALLOW:
            return frozenset()
        earlier = [pair for pair in run.tick.earlier if pair[1] not in made]
        refs = [
            Ref(tenant, job_id(tenant, run.name, *pair)) for tenant in tenants for pair in earlier
        ]
        alive = await jobs_named(self._store, refs, ALIVE)
        if run.definition.overlap is Overlap.CANCEL:
            refs = [Ref(job.tenant, job.id) for job in alive]
            await self._store.cancel(refs, by=By(ITSELF, f"the next tick of {run.name}"))
            return frozenset()
        return frozenset(job.tenant for job in alive)


def tick_type(firing: Callable[[], Firing]) -> JobType:
    """The job type of ticks, which every app has."""

    async def tick(
        ctx: Context,
        *,
        schedule: str,
        revision: int,
        at: int,
        earlier: tuple[tuple[int, int], ...] = (),
        asked: bool = False,
    ) -> None:
        found = Tick(schedule=schedule, revision=revision, at=at, earlier=earlier, asked=asked)
        await firing().fire(ctx.job, found)

    return JobType(
        name=TYPE,
        kind=JobFunction(tick, TYPE).kind,
        queue=QUEUE,
        priority=0,
        rules=TICK_RULES,
        style=Style.LOOP,
        version=1,
        upgrades={},
        codec=JSON,
        home="holdfast itself",
        built_in=True,
    )


class _Run(msgspec.Struct, frozen=True):
    """One run of one tick."""

    state: ScheduleState
    definition: Definition
    job: JobRecord
    tick: Tick
    now: Micros

    @property
    def tenant(self) -> str:
        return self.job.tenant

    @property
    def name(self) -> str:
        return self.tick.schedule

    @property
    def words(self) -> str:
        return f"schedule {self.name!r} of {self.tenant!r}"

    def real(self) -> bool:
        """Whether the schedule has this tick. Anyone who may enqueue could have made another one.
        A tick that an operator moved forward waits for its instant.
        """
        tick, definition = self.tick, self.definition
        if self.job.id != tick_id(self.tenant, self.name, tick.revision, tick.at):
            return False
        if not tick.asked and not definition.timing.holds(tick.at):
            return False
        at = tick.at if tick.asked else due_at(self.tenant, self.name, definition, tick.at)
        if at > self.now:
            raise Snooze(seconds(at - self.now))
        return True

    def plan(self) -> Due:
        if self.tick.asked:
            return Due((self.tick.at,), None)
        return due(self.tenant, self.name, self.definition, self.tick.at, self.now)

    def earlier(self, made: tuple[Micros, ...]) -> tuple[tuple[Micros, Micros], ...]:
        """The ticks that made jobs, for the next tick."""
        old = [pair for pair in self.tick.earlier if pair[1] not in made]
        return (*old, *((self.tick.revision, at) for at in made))


def _told(job: JobRecord) -> str:
    """Why a job failed. What a payload cannot be read for may quote it, and a schedule is no place
    for that.
    """
    return str(job.reason.value) if job.reason is Reason.DECODE else str(job.error)


def _later(error: HoldfastError) -> HoldfastError | Snooze:
    """A tenant without room, and a store that is away, cost no attempt."""
    return Snooze(FULL_S) if isinstance(error, QueueFull | TenantFull | StoreError) else error


async def _parts(listing: Tenants) -> AsyncIterator[list[str]]:
    """The tenants in parts of FAN_OUT_PART. A blocking listing runs in a thread."""
    given: Any = listing() if _async(listing) else await asyncio.to_thread(listing)
    if inspect.isawaitable(given):
        given = await given
    if hasattr(given, "__aiter__"):
        part: list[str] = []
        async for tenant in given:
            part.append(check_name("tenants", tenant, TENANT_MAX))
            if len(part) == FAN_OUT_PART:
                yield part
                part = []
        if part:
            yield part
        return
    rest: Iterator[str] = iter(given)
    while part := await asyncio.to_thread(lambda: list(islice(rest, FAN_OUT_PART))):
        yield [check_name("tenants", tenant, TENANT_MAX) for tenant in part]


def _async(listing: Tenants) -> bool:
    return inspect.iscoroutinefunction(listing) or inspect.isasyncgenfunction(listing)
