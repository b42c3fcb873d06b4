"""Jobs: enqueue, read, wait, cancel, change, replay, delete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from itertools import count
from typing import Annotated, ClassVar

import msgspec
import uuid_utils
from msgspec import UNSET, Meta

from holdfast import operate
from holdfast.change_one import change_one
from holdfast.core.bounds import GROUP_MAX, KEY_MAX, PAGE_MAX, QUEUE_MAX, TAG_MAX, TYPE_MAX
from holdfast.core.check import check_free, check_name
from holdfast.core.clock import instant
from holdfast.core.codec import BYTES, JSON, json_fault
from holdfast.core.errors import InvalidInput, JobNotFound, PayloadTooLarge
from holdfast.core.job import TERMINAL, Envelope, JobRecord, NewJob, Reason, State
from holdfast.core.journal import Edge
from holdfast.enqueue import plan_with
from holdfast.explain import explain as explain_job
from holdfast.fields import Strict, given
from holdfast.service.api.hiding import joinable
from holdfast.service.aside import EDGE_COST, aside, size_of
from holdfast.service.call import Call
from holdfast.service.endpoint import Status
from holdfast.service.problems import problem
from holdfast.service.render import (
    event_out,
    job_out,
    result_out,
    scope_text,
    unbase64,
    when,
)
from holdfast.service.wire import (
    BlockerOut,
    CanceledOut,
    DeletedOut,
    EnqueuedManyOut,
    EnqueuedOut,
    EventsOut,
    ExplainedOut,
    JobOut,
    JobsOut,
    NewJobIn,
    ReplayedOut,
    ResultOut,
)
from holdfast.store import Act, Enqueued, Find, Ref, Selection, Watch
from holdfast.typed import JobType
from holdfast.types import foreign_type

IDEMPOTENCY_HEADER = b"idempotency-key"
_QUEUE_ONLY = frozenset({"queue"})
NAP_S = 5.0
"""How long a wait sleeps if no wake-up arrives."""


# -- enqueue ---------------------------------------------------------------------------------------


async def enqueue(call: Call) -> Status:
    """Enqueues a job: 201 if it was created, 200 if the id or key belongs to an existing job."""
    known = await call.service.types.known([call.body.type])
    job = planned(call, call.body, known, call.header(IDEMPOTENCY_HEADER))
    await joinable(call, [job])
    result = await call.service.enqueued(job)
    if result.error is not None:
        raise result.error
    return Status(201 if result.created else 200, _told(result, call.body.type in known))


async def enqueue_many(call: Call) -> EnqueuedManyOut:
    """Enqueues up to 1,000 jobs. Each has its own answer; an invalid request refuses all."""
    key = call.header(IDEMPOTENCY_HEADER)
    known = await call.service.types.known([one.type for one in call.body.jobs])

    def plan() -> list[NewJob]:
        keys = ((None if key is None else f"{key}/{number}") for number in count())
        return [
            planned(call, one, known, own, f"jobs[{number}].")
            for number, (one, own) in enumerate(zip(call.body.jobs, keys, strict=False))
        ]

    size = sum(len(bytes(one.payload)) for one in call.body.jobs if one.payload is not UNSET)
    size += sum(len(one.edges) for one in call.body.jobs) * EDGE_COST
    jobs = await aside(size, plan)
    await joinable(call, jobs)
    results = await call.service.store.enqueue(jobs)
    told = [_told(one, job.envelope.type in known) for one, job in zip(results, jobs, strict=True)]
    return EnqueuedManyOut(jobs=told)


def _told(result: Enqueued, known: bool) -> EnqueuedOut:
    error = None if result.error is None else problem(result.error)
    return EnqueuedOut(id=result.id, created=result.created, type_known=known, error=error)


def planned(
    call: Call, job: NewJobIn, known: Mapping[str, JobType], key: str | None, where: str = ""
) -> NewJob:
    """The checked job in the form that the store takes. Unset fields come from its type."""
    try:
        job_type = known.get(job.type) or foreign_type(job.type)
        call.caller.check_type(job.type)
        options = given(job, "type", "payload", "payload_base64", "edges")
        if key is not None:
            options.setdefault("key", key)
        queue = options.get("queue", job_type.queue)
        call.caller.check_queue(queue)
        check_free("queue", queue)
        check_free("type", job.type)
        # The common case: everything else comes from the type.
        if options.keys() <= _QUEUE_ONLY and not job.edges:
            return NewJob(
                tenant=call.tenant,
                id=str(uuid_utils.uuid7()),
                queue=check_name("queue", queue, QUEUE_MAX),
                envelope=_sealed(call, job),
                rules=job_type.rules,
                priority=job_type.priority,
                fresh=True,
            )
        plan = plan_with(call.tenant, job_type, _sealed(call, job), options)  # type: ignore[arg-type]
        return _joined(plan, job) if job.edges else plan
    except InvalidInput as error:
        if where:
            error.facts["field"] = where + str(error.facts.get("field", ""))
        raise


def _joined(plan: NewJob, job: NewJobIn) -> NewJob:
    edges = tuple(Edge(one.target, one.join, one.on_failure).checked() for one in job.edges)
    return msgspec.structs.replace(plan, edges=edges)


def _sealed(call: Call, job: NewJobIn) -> Envelope:
    if job.payload_base64 is not UNSET:
        if job.payload is not UNSET:
            raise InvalidInput(field="payload", why="give either payload or payload_base64")
        codec, body = BYTES, unbase64("payload_base64", job.payload_base64)
    else:
        codec, body = JSON, b"{}" if job.payload is UNSET else bytes(job.payload)
    sealed = Envelope(job.type, codec, 1, body)
    most = call.service.payload_most(sealed)
    if len(body) > most:
        raise PayloadTooLarge(field="payload", size=len(body), max=most)
    if codec == JSON and (fault := json_fault(body)) is not None:
        raise InvalidInput(field="payload", why=fault)
    return sealed


# -- read ------------------------------------------------------------------------------------------


class Filter(Strict):
    """Filters for jobs. Separate values by commas. A job must have all of the tags."""

    LISTS: ClassVar[frozenset[str]] = frozenset(
        {"state", "queue", "type", "group", "tag", "reason", "id"}
    )
    state: tuple[State, ...] = ()
    queue: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    reason: tuple[Reason, ...] = ()
    id: tuple[str, ...] = ()
    key: str | None = None
    created_from: Annotated[datetime, Meta(tz=True)] | None = None
    created_before: Annotated[datetime, Meta(tz=True)] | None = None
    failed_from: Annotated[datetime, Meta(tz=True)] | None = None
    failed_before: Annotated[datetime, Meta(tz=True)] | None = None

    def selection(self, call: Call) -> Selection:
        """The selection, restricted to the caller's tenant and queues."""
        for field, most in (("queue", QUEUE_MAX), ("type", TYPE_MAX), ("group", GROUP_MAX)):
            for name in getattr(self, field):
                check_name(field, name, most)
        for field in ("tag", "id"):
            for name in getattr(self, field):
                check_name(field, name, max(TAG_MAX, QUEUE_MAX))
        if self.key is not None:
            check_name("key", self.key, KEY_MAX)
        return Selection(
            tenant=call.tenant,
            ids=self.id,
            queues=call.caller.queues_of(self.queue or None) or (),
            types=self.type,
            states=self.state,
            groups=self.group,
            tags=self.tag,
            reasons=self.reason,
            key=self.key,
            created_from=_instant(self.created_from),
            created_before=_instant(self.created_before),
            failed_from=_instant(self.failed_from),
            failed_before=_instant(self.failed_before),
        )


def _instant(at: datetime | None) -> int | None:
    return None if at is None else instant(at)


class Listing(Filter):
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100
    newest_first: bool = True


async def find(call: Call) -> JobsOut:
    """A page of jobs, without payloads."""
    return await listed(call, call.query.selection(call))


async def listed(call: Call, select: Selection) -> JobsOut:
    query: Listing = call.query
    page = await call.service.store.find(
        Find(
            select=select,
            after=None if query.cursor is None else cursor(query.cursor),
            limit=query.limit,
            newest_first=query.newest_first,
        )
    )
    return JobsOut(
        jobs=[job_out(job, payload=False) for job in page.jobs],
        cursor=None if page.cursor is None else str(page.cursor),
    )


def cursor(text: str, field: str = "cursor") -> int:
    """Parses a cursor that this service returned."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise InvalidInput(field=field, why="is not a cursor of this service")
    return int(text)


async def get(call: Call) -> JobOut:
    """One job, with its payload and its result."""
    job = await seen(call, call.job())
    return await aside(size_of([job]), lambda: job_out(job))


async def seen(call: Call, ref: Ref) -> JobRecord:
    """The job. Raises JobNotFound, also if it belongs to another tenant or is in a queue that the
    caller may not see.
    """
    job = await call.service.tenant(ref.tenant).get(ref.id)
    if not call.caller.may_queue(job.queue):
        raise JobNotFound(id=ref.id)
    return job


class Waiting(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    wait: Annotated[float, Meta(ge=0, le=30)] = 0.0


async def result(call: Call) -> ResultOut:
    """The result of the job. Waits for its end as long as requested."""
    ref, end = call.job(), time.monotonic() + min(call.query.wait, call.service.limits.wait_s)
    gone, standing = call.gone(), call.standing()
    try:
        while True:
            await standing.check()
            job = await seen(call, ref)
            left = end - time.monotonic()
            done = job.state in TERMINAL
            if done or left <= 0 or gone.done() or call.service.closing:
                told = partial(result_out, job, done=done)
                return await aside(size_of([job]), told)
            nap = asyncio.ensure_future(call.service.store.wait(Watch(job=ref), min(left, NAP_S)))
            await asyncio.wait({nap, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not nap.done():
                nap.cancel()
                await asyncio.gather(nap, return_exceptions=True)
    finally:
        gone.cancel()


async def explain(call: Call) -> ExplainedOut:
    """Why a job does not run now: every blocker, with a text."""
    ref = call.job()
    await seen(call, ref)
    found = await explain_job(call.service.store, ref, call.reader)
    return ExplainedOut(
        id=found.id,
        state=found.state,
        gates=[
            BlockerOut(
                kind=one.kind,
                words=one.words,
                scope=None if one.scope is None else scope_text(one.scope),
                until=when(one.until),
                holders=one.holders,
            )
            for one in found.gates
        ],
        ahead=found.ahead,
        tenants=found.tenants,
        not_before=when(found.not_before),
        estimate_s=found.estimate_s,
    )


async def timeline(call: Call) -> EventsOut:
    """The events of a job."""
    ref = call.job()
    await seen(call, ref)
    found = await operate.timeline(call.service.store, ref.id, ref.tenant)
    last = found.events[-1].cursor if found.events else 0
    events = [event_out(event) for event in found.events]
    return EventsOut(events=events, cursor=last, lost=found.lost)


# -- cancel and change -----------------------------------------------------------------------------


async def cancel(call: Call) -> CanceledOut:
    """Cancels a job. Nothing changes it afterwards, and a running handler is told to stop."""
    ref = call.job()
    await seen(call, ref)
    return CanceledOut(id=ref.id, canceled=await call.view.cancel(ref.id, by=call.by))


async def replay(call: Call) -> ReplayedOut:
    """Makes a new job from a finished one, from its beginning or from a step. A repeated call
    returns the same new job.
    """
    ref = call.job()
    await seen(call, ref)
    step = UNSET if call.body is None else call.body.from_step
    new = await call.view.replay(ref.id, from_step=None if step is UNSET else step, by=call.by)
    return ReplayedOut(id=ref.id, replayed_as=new)


async def reprioritise(call: Call) -> JobOut:
    """Changes the priority of a waiting job."""
    ref = call.job()
    await seen(call, ref)
    await call.view.reprioritise(ref.id, call.body.priority, by=call.by)
    return await get(call)


async def reschedule(call: Call) -> JobOut:
    """Changes when a waiting job may run: after a delay (0: now) or at an instant."""
    ref, body = call.job(), call.body
    await seen(call, ref)
    delay = None if body.delay is UNSET else body.delay
    run_at = None if body.run_at is UNSET else body.run_at
    await call.view.reschedule(ref.id, delay=delay, run_at=run_at, by=call.by)
    return await get(call)


async def delete(call: Call) -> DeletedOut:
    """Deletes a job that is not leased."""
    ref = call.job()
    await seen(call, ref)
    await change_one(call.service.store, ref, Act.DELETE, by=call.by)
    return DeletedOut(deleted=True)
