"""Tenant: the calls that act for one tenant."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import datetime
from enum import StrEnum
from types import UnionType
from typing import Any, TypeVar, Unpack, overload

from holdfast.change_one import change_one, signed
from holdfast.core.bounds import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    WAIT_S_MAX,
)
from holdfast.core.check import check_seconds, check_whole
from holdfast.core.clock import Micros, instant, micros
from holdfast.core.codec import Codecs, JsonCodec, check_type
from holdfast.core.errors import (
    QUEUE_FULL_RETRY_S,
    InvalidInput,
    JobCanceled,
    JobFailed,
    JobNotFound,
    NotChangeable,
    QueueFull,
    WaitTimeout,
    did_you_mean,
)
from holdfast.core.flow import HEAD, is_flow_id
from holdfast.core.job import TERMINAL, By, Event, JobRecord, Reason, State
from holdfast.core.journal import Signal
from holdfast.core.mapped import plain_codec
from holdfast.core.schedule import name_of
from holdfast.core.scope import Scope, ScopeKind
from holdfast.definitions import ScheduleState, schedules_page
from holdfast.enqueue import Enqueuer, Options, checked
from holdfast.events import Gap, follow
from holdfast.explain import Explained, explain
from holdfast.handle import JobHandle, handle_of
from holdfast.job_journal import JobJournal, read_journal
from holdfast.listings import tallies
from holdfast.many import EnqueuedMany
from holdfast.payload.app_blobs import needed, with_result
from holdfast.payload.blobs import Blobs
from holdfast.schedules import ScheduleHandle
from holdfast.scopes import GroupHandle, ScopeHandle, supported
from holdfast.sources.calls import SourceCalls
from holdfast.store import (
    Act,
    Change,
    Enqueued,
    Find,
    Page,
    Ref,
    Selection,
    Store,
    Tally,
    Watch,
)
from holdfast.typed import AnyJob
from holdfast.webhooks.handle import WebhookHandle
from holdfast.webhooks.stored import WebhookState, webhooks_page
from holdfast.workflow.calls import FlowCalls

_encoder = JsonCodec()
E = TypeVar("E", bound=StrEnum)
R = TypeVar("R")
T = TypeVar("T")

WAIT_POLL_S = 5.0
"""How long `wait` sleeps if no wake-up arrives."""
REPLAY_TRIES_MAX = 3


class Tenant(FlowCalls, SourceCalls):
    """The jobs of one tenant. Made by `app.tenant(name)`; cheap to create, keeps no resources."""

    def __init__(self, name: str, store: Store, enqueuer: Enqueuer, codecs: Codecs) -> None:
        self.name = name
        self._store = store
        self._enqueuer = enqueuer
        self._codecs = codecs

    async def enqueue(
        self, job: AnyJob[R], *, using: Any = None, **options: Unpack[Options]
    ) -> JobHandle[R]:
        """Stores the job durably. Safe to repeat with the same id or key.

        `using` is the caller's own connection to the store's database. The job is then part of its
        transaction and can run when that commits.
        """
        if using is not None:
            made = await self._enqueuer.enqueue_using(using, self.name, job, checked(options))
        else:
            made = await self._enqueuer.enqueue(self.name, job, checked(options))
        return handle_of(JobHandle, made, self)

    async def enqueue_many(
        self,
        jobs: Iterable[AnyJob[Any]],
        *,
        on_batch: Callable[[list[Enqueued]], None] | None = None,
        **options: Unpack[Options],
    ) -> EnqueuedMany:
        """Enqueues any number of jobs, in batches, with bounded memory.

        `on_batch` is called with the answers of each batch.
        """
        return await self._enqueuer.enqueue_many(self.name, jobs, checked(options), on_batch)

    async def cancel(self, job_id: str, *, by: By | None = None) -> bool:
        """Cancels a job. True: it is canceled. False: it had already ended in another state.

        `by` names the author and the reason, which are stored in the event. The id of a flow
        cancels the flow.
        """
        if is_flow_id(job_id) and (await self.get(job_id)).type == HEAD:
            return await self.flow(job_id).cancel(by=by)
        [result] = await self._store.cancel([Ref(self.name, job_id)], by=signed(by))
        if result.error is not None:
            raise result.error
        return result.canceled

    async def get(self, job_id: str) -> JobRecord:
        """The job. Raises JobNotFound, also for another tenant's job."""
        page = await self._store.find(
            Find(select=Selection(tenant=self.name, ids=(job_id,)), limit=1)
        )
        if not page.jobs:
            raise JobNotFound(id=job_id)
        return page.jobs[0]

    async def find(
        self,
        *,
        states: Iterable[State | str] = (),
        queues: Iterable[str] = (),
        types: Iterable[str] = (),
        tags: Iterable[str] = (),
        groups: Iterable[str] = (),
        reasons: Iterable[Reason | str] = (),
        key: str | None = None,
        failed_from: datetime | None = None,
        failed_before: datetime | None = None,
        after: int | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> Page:
        """A page of this tenant's jobs. Pass its cursor as `after` to get the next page.
        `failed_from` and `failed_before` select jobs that failed for good in that time.
        """
        select = Selection(
            tenant=self.name,
            states=tuple(_member("states", State, state) for state in states),
            queues=tuple(queues),
            types=tuple(types),
            tags=tuple(tags),
            groups=tuple(groups),
            reasons=tuple(_member("reasons", Reason, reason) for reason in reasons),
            key=key,
            failed_from=_instant("failed_from", failed_from),
            failed_before=_instant("failed_before", failed_before),
        )
        find = Find(select=select, after=after, limit=limit, newest_first=newest_first)
        return await self._store.find(find)

    @overload
    async def wait(self, job: Enqueued[R], *, timeout: float = 30.0) -> R: ...
    @overload
    async def wait(self, job: str, *, timeout: float = 30.0) -> Any: ...
    @overload
    async def wait(self, job: Enqueued[Any] | str, *, as_: type[T], timeout: float = 30.0) -> T: ...
    @overload
    async def wait(
        self, job: Enqueued[Any] | str, *, as_: UnionType, timeout: float = 30.0
    ) -> Any: ...
    async def wait(
        self, job: Enqueued[Any] | str, *, as_: Any = None, timeout: float = 30.0
    ) -> Any:
        """Waits for a job and returns its result. Takes the answer of `enqueue` or an id. Raises
        JobFailed, JobCanceled or WaitTimeout.

        `as_` is the type of the result: DecodeError if the stored one does not fit it.
        """
        if as_ is not None:
            check_type("as_", as_)
        job_id = job if isinstance(job, str) else job.id
        end = time.monotonic() + check_seconds("timeout", timeout)
        while True:
            found = await self.get(job_id)
            if found.state in TERMINAL:
                return self._result(await with_result(self._enqueuer.blobs, found), as_)
            left = end - time.monotonic()
            if left <= 0:
                raise WaitTimeout(id=job_id, timeout_s=timeout)
            watch = Watch(job=Ref(self.name, job_id))
            await self._store.wait(watch, min(left, WAIT_POLL_S, WAIT_S_MAX))

    def _result(self, job: JobRecord, as_: Any) -> Any:
        if job.state is State.CANCELED:
            raise JobCanceled(id=job.id)
        if job.state is State.FAILED:
            raise JobFailed(id=job.id, reason=job.reason, error=job.error)
        codec = plain_codec(job.envelope.codec)
        if as_ is not None:
            return self._codecs.unseal_result_as(codec, job.result, as_)
        return self._codecs.unseal_result(codec, job.result, self._enqueuer.result_of(job.type))

    async def reprioritise(self, job_id: str, priority: int, *, by: By | None = None) -> None:
        """Changes the priority of a waiting job. Raises NotChangeable if it runs or has ended."""
        check_whole("priority", priority, PRIORITY_MIN, PRIORITY_MAX)
        await change_one(
            self._store, Ref(self.name, job_id), Act.REPRIORITISE, priority=priority, by=by
        )

    async def reschedule(
        self,
        job_id: str,
        *,
        delay: float | None = None,
        run_at: datetime | None = None,
        by: By | None = None,
    ) -> None:
        """Changes when a waiting job, or one waiting for a retry, may run: after a delay (0: now)
        or at an instant. Raises NotChangeable if it runs or has ended.
        """
        if (delay is None) == (run_at is None):
            raise InvalidInput(field="delay", why="give either delay or run_at")
        delay_us = 0 if delay is None else micros(check_seconds("delay", delay))
        at = _instant("run_at", run_at)
        ref = Ref(self.name, job_id)
        await change_one(self._store, ref, Act.RESCHEDULE, delay_us=delay_us, run_at=at, by=by)

    async def signal(
        self, job_id: str, name: str, value: Any = None, *, by: By | None = None
    ) -> bool:
        """Sends a named value to a job, which may wait for it now, later or never. The first value
        of a name counts: False says that there was one. Raises JobNotFound, JobAlreadyTerminal
        or JobCanceled for a job that has ended, JournalFull, or QueueFull for a full tenant.
        """
        signal = Signal(self.name, job_id, name, _json("value", value))
        [answer] = await self._store.signal([signal], by=signed(by))
        if answer.error is not None:
            raise answer.error
        return answer.stored

    async def journal(self, job_id: str) -> JobJournal:
        """What a job remembers: steps, signals, the errors of its last attempts, its log. Raises
        JobNotFound.
        """
        return await read_journal(self._store, Ref(self.name, job_id))

    async def replay(
        self, job_id: str, *, from_step: str | None = None, by: By | None = None
    ) -> str:
        """Makes a new job with the payload of a finished one and returns its id. A job is replayed
        once: a second call returns the same id.

        With `from_step` the new job remembers the steps that were finished before this one, and all
        signals. Otherwise it starts from the beginning.
        """
        if from_step is not None:
            (await self.journal(job_id)).checked_step(from_step)
        for _ in range(REPLAY_TRIES_MAX):
            job = await self.get(job_id)
            if job.state not in TERMINAL:
                raise NotChangeable(id=job_id, state=job.state.value)
            if job.replayed_as is not None:
                return job.replayed_as
            select = Selection(tenant=self.name, ids=(job_id,))
            replay = Change(
                select=select, act=Act.REPLAY, limit=1, from_step=from_step, by=signed(by)
            )
            changed = await self._store.change(replay)
            ref = Ref(self.name, job_id)
            if ref in changed.done:
                return changed.done[ref]
            # It was replayed or pruned in between, or the tenant is full.
        raise await self._full()

    async def _full(self) -> QueueFull:
        """The error that tells which cap this tenant has reached."""
        settings = (await self.scope().get()).settings
        counts = (await self.scope().counts()).counts
        alive = sum(number for state, number in counts.items() if state not in TERMINAL)
        jobs = settings.max_queued is not None and alive >= settings.max_queued
        return QueueFull(
            tenant=self.name,
            what="jobs" if jobs else "bytes",
            queued=alive if jobs else "too many",
            max=settings.max_queued if jobs else settings.max_bytes,
            retry_after_s=QUEUE_FULL_RETRY_S,
        )

    async def counts(self) -> list[Tally]:
        """The number of jobs of each queue in each state."""
        return [tally async for tally in tallies(self._store, self.name)]

    @property
    def blobs(self) -> Blobs:
        """Its blobs. Raises ConfigError if the app has no bucket."""
        return needed(self._enqueuer.blobs).of(self.name)

    # -- scopes ----------------------------------------------------------------------------------

    def scope(self) -> ScopeHandle:
        """A handle for the limits, rate, pause, counts and slots of the whole tenant."""
        return ScopeHandle(self._store, Scope(self.name))

    def queue(self, name: str) -> ScopeHandle:
        """A handle for one of its queues."""
        return ScopeHandle(self._store, Scope(self.name, ScopeKind.QUEUE, name))

    def group(self, name: str) -> GroupHandle:
        """A handle for one of its groups."""
        return GroupHandle(self._store, Scope(self.name, ScopeKind.GROUP, name))

    async def groups(self, *, after: str | None = None, limit: int = 100) -> list[Tally]:
        """The groups with jobs or slots, by name. `after` is the last group of the previous page.

        `Tally.queue` is the group's name.
        """
        supported(self._store)
        start = None if after is None else (self.name, after)
        return await self._store.count(self.name, by=ScopeKind.GROUP, after=start, limit=limit)

    # -- schedules -------------------------------------------------------------------------------

    def schedule(self, name: str) -> ScheduleHandle:
        """A handle for one of its schedules, also for one that is not there yet."""
        return ScheduleHandle(self._store, self.name, name, enqueuer=self._enqueuer)

    async def schedules(self, *, after: str | None = None, limit: int = 100) -> list[ScheduleState]:
        """The schedules, by name. `after` is the last name of the previous page."""
        start = "" if after is None else name_of(self.name, after)
        found, _ = await schedules_page(self._store, self.name, after=start, limit=limit)
        return found

    # -- webhooks --------------------------------------------------------------------------------

    def webhook(self, name: str) -> WebhookHandle:
        """A handle for one of its webhooks, also for one that is not there yet."""
        allow = self._enqueuer.webhooks_allow
        return WebhookHandle(self._store, self.name, name, allow=allow)

    async def webhooks(self) -> list[WebhookState]:
        """The webhooks, by name."""
        found, _ = await webhooks_page(self._store, self.name)
        return found

    async def explain(self, job_id: str) -> Explained:
        """Why the job does not run now: its blockers, its position and an estimate."""
        return await explain(self._store, Ref(self.name, job_id))

    # -- events ----------------------------------------------------------------------------------

    def events(self, after: int = 0, *, job_id: str | None = None) -> AsyncIterator[Event | Gap]:
        """Yields this tenant's events after a cursor, then each new one. -1 starts at the current
        end.
        """
        return follow(self._store, self.name, after, job_id)


def preparing(tenant: Tenant) -> Coroutine[Any, Any, None] | None:
    """Reads the keys that an enqueue on a blocking connection cannot wait for; None: no keys."""
    enqueuer = tenant._enqueuer
    return enqueuer.prepare(tenant.name) if enqueuer.maps else None


def _json(field: str, value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except Exception as error:
        raise InvalidInput(field=field, why=f"cannot be sent as JSON: {error}") from error


def _instant(field: str, at: datetime | None) -> Micros | None:
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise InvalidInput(field=field, why=f"must be a datetime, not {type(at).__name__}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise InvalidInput(field=field, why="has no time zone; use datetime(..., tzinfo=UTC)")
    return instant(at)


def _member(field: str, kind: type[E], word: str) -> E:
    try:
        return kind(word)
    except ValueError:
        hint = did_you_mean(str(word), kind)
        raise InvalidInput(field=field, why=f"there is no {word!r}.{hint}") from None
