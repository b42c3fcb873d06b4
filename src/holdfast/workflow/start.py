"""Start: makes the jobs of a flow, all or none, whatever is cut off in between.

Up to `CALL_MAX` nodes are made by one whole call, together with the head. Nodes of a larger flow
are made by several calls, and all of them wait. The last call makes one job, the begin, which
releases the first nodes. So nothing runs before everything is there.

The first of several calls also makes a guard. If the start is cut off, the guard runs some minutes
later and removes what is there. It decides by an id: it takes the id of the begin, unless the begin
is there. A start that finds the id taken has failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.core.bounds import BATCH_MAX, NODES_READ, START_S, WHOLE_BYTES_MAX
from holdfast.core.clock import micros
from holdfast.core.errors import BatchRefused, FlowRefused, HoldfastError, IdConflict, StoreError
from holdfast.core.flow import BEGIN, GUARD, own_id
from holdfast.core.job import TERMINAL, JobRecord, NewJob, State
from holdfast.lookup import find_jobs
from holdfast.store import Act, Change, Enqueued, Ref, Selection, Store
from holdfast.whole import WholeCalls, job_bytes
from holdfast.workflow.plan import Begins, Plan

log = logging.getLogger("holdfast.flow")


async def start(store: Store, whole: WholeCalls, plan: Plan, *, fresh: bool) -> bool:
    """Makes the jobs of the flow. Returns False if it was started earlier. `fresh` says that this
    cannot be. Safe to repeat; a repeat finishes a start that was cut off.

    Raises FlowRefused, which names the node; then no job of the flow is left.
    """
    if plan.begins is None:
        return await _start_at_once(store, whole, plan)
    if not fresh and await _is_started(store, plan):
        return False
    return await _start_in_parts(store, plan, plan.begins)


# -- by one call -----------------------------------------------------------------------------------


async def _start_at_once(store: Store, whole: WholeCalls, plan: Plan) -> bool:
    jobs = [plan.head, *plan.nodes]
    answers = await whole.create(jobs)
    if all(answer.created for answer in answers):
        return True
    if _is_known(plan.head, answers[0]):
        if await _is_started(store, plan):
            return False
        why = "an earlier start of it was cut off; start it again later"
        raise FlowRefused(id=plan.id, node=plan.names()[plan.id], why=why)
    if any(map(_is_known, jobs, answers)):
        # They are left from an earlier run, whose head was kept for a shorter time.
        await sweep(store, plan.tenant, plan.id, [job.id for job in plan.nodes])
        answers = await whole.create(jobs)
        if all(answer.created for answer in answers):
            return True
    for job, answer in zip(jobs, answers, strict=True):
        if not answer.created and not isinstance(answer.error, BatchRefused):
            raise _refusal(plan, job, answer.error)
    return True  # Somebody else has started it meanwhile.


def _is_known(job: NewJob, answer: Enqueued) -> bool:
    """Whether the job was there before."""
    return not answer.created and answer.error is None and answer.id == job.id


def _refusal(plan: Plan, job: NewJob, error: HoldfastError | None) -> FlowRefused:
    why = str(error) if error is not None else f"its key {job.key!r} is held by another job"
    if isinstance(error, IdConflict) and plan.begins is not None and job is plan.begins.begin:
        why = f"the start took longer than {START_S:g} s and was given up; start it again later"
    refused = FlowRefused(id=plan.id, node=plan.names().get(job.id, "the flow"), why=why)
    refused.__cause__ = error
    return refused


# -- by several calls ------------------------------------------------------------------------------


async def _start_in_parts(store: Store, plan: Plan, begins: Begins, *, swept: bool = False) -> bool:
    """`swept`: nodes of an earlier run were removed first."""
    guard = msgspec.structs.replace(begins.guard, delay_us=micros(START_S))
    created, names = False, plan.names()
    for part in _parts([guard, plan.head, *plan.nodes]):
        answers = await store.enqueue(part)
        created = created or any(one.id == plan.id and one.created for one in answers)
        for job, answer in zip(part, answers, strict=True):
            if answer.error is not None or answer.id != job.id:
                await _give_up(store, plan, begins, created=created)
                raise _refusal(plan, job, answer.error)
        known = [one.id for one in answers if not one.created and one.id in names]
        if created and known and await _is_older(store, plan, known):
            await sweep(store, plan.tenant, plan.id, [each.id for each in plan.nodes])
            return await _start_in_parts(store, plan, begins, swept=True)
    [answer] = await store.enqueue([begins.begin])
    if swept and _is_known(begins.begin, answer):
        answer = await _begun_again(store, begins.begin)
    if answer.error is not None:
        await _give_up(store, plan, begins, created=created)
        raise _refusal(plan, begins.begin, answer.error)
    await _call_off(store, plan.tenant, begins.guard.id)
    return created


async def _begun_again(store: Store, begin: NewJob) -> Enqueued:
    """Makes a begin that another start has made, and that may have ended before the nodes were
    there which this one had to make anew. A node that it has released is not released twice.
    """
    found = await find_jobs(store, begin.tenant, [begin.id])
    if any(job.state not in TERMINAL for job in found):
        return Enqueued(begin.id, False)  # It ends later, and finds all nodes.
    await _delete(store, begin.tenant, [begin.id])
    [answer] = await store.enqueue([begin])
    return answer


async def _is_older(store: Store, plan: Plan, ids: Sequence[str]) -> bool:
    """Whether one of these nodes is older than the head: it is left from an earlier run, whose head
    was kept for a shorter time.
    """
    heads = await find_jobs(store, plan.tenant, [plan.id])
    for part in _ids(ids, NODES_READ):
        for job in await find_jobs(store, plan.tenant, part):
            if any(job.seq < head.seq for head in heads):
                return True
    return False


async def _give_up(store: Store, plan: Plan, begins: Begins, *, created: bool) -> None:
    """Removes what was made, if this call has begun the flow."""
    if created:
        await sweep(store, plan.tenant, plan.id, [each.id for each in plan.nodes])
        await store.cancel([Ref(plan.tenant, begins.guard.id)])


async def _call_off(store: Store, tenant: str, guard: str) -> None:
    """Ends the guard. A guard that is left finds everything there and does nothing."""
    try:
        await store.cancel([Ref(tenant, guard)])
    except StoreError as error:
        log.info("%s was not called off: %s", guard, error)


async def _is_started(store: Store, plan: Plan) -> bool:
    begin, guard = own_id(plan.id, BEGIN), own_id(plan.id, GUARD)
    named = await find_jobs(store, plan.tenant, [plan.id, begin, guard])
    found = {job.id: job for job in named}
    head = found.get(plan.id)
    if head is None:
        return False
    if guard not in found:  # It was called off when everything was there, or never needed.
        return True
    if head.state is State.CANCELED:
        why = "what is left of an earlier start is being removed; start it again later"
        raise FlowRefused(id=plan.id, node=plan.names()[plan.id], why=why)
    if (begin in found and found[begin].type == BEGIN) or head.state in TERMINAL:
        await _call_off(store, plan.tenant, guard)
        return True
    return False


# -- for the guard ---------------------------------------------------------------------------------


async def sweep(store: Store, tenant: str, flow: str, nodes: Sequence[str]) -> None:
    """Removes the jobs of a flow that was not started. The head goes first, so that it does not
    run, and its record last, so that a start of the same flow does not come in between.
    """
    await store.cancel([Ref(tenant, flow)])
    for part in _ids(nodes, BATCH_MAX):
        await store.cancel([Ref(tenant, id) for id in part])
    for part in _ids(nodes, BATCH_MAX):
        await _delete(store, tenant, part)
    await _delete(store, tenant, [flow])


async def taken_begin(store: Store, guard: JobRecord, begin: str) -> bool:
    """Takes the id of the begin of a flow, unless the begin is there: then returns False. The job
    that takes it is a second guard, which comes later.
    """
    second = NewJob(
        tenant=guard.tenant,
        id=begin,
        queue=guard.queue,
        envelope=guard.envelope,
        rules=guard.rules,
        delay_us=micros(START_S),
    )
    [answer] = await store.enqueue([second])
    if answer.error is not None and not isinstance(answer.error, IdConflict):
        raise answer.error
    return answer.error is None


def is_second(guard: JobRecord) -> bool:
    """Whether a guard runs under the id of a begin."""
    return guard.type == GUARD and not guard.id.endswith("-guard")


async def _delete(store: Store, tenant: str, ids: Sequence[str]) -> None:
    cursor: int | None = 0
    select = Selection(tenant=tenant, ids=tuple(ids))
    while cursor is not None:
        change = Change(select=select, act=Act.DELETE, after=cursor, limit=BATCH_MAX)
        cursor = (await store.change(change)).cursor


def _ids(ids: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    for first in range(0, len(ids), most):
        yield ids[first : first + most]


def _parts(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    """Splits jobs into calls bounded by number and by payload bytes."""
    part: list[NewJob] = []
    size = 0
    for job in jobs:
        more = job_bytes(job)
        if len(part) == BATCH_MAX or (part and size + more > WHOLE_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(job)
        size += more
    yield part
