"""Start: makes the jobs of a flow, all or none, whatever is cut off in between.

Up to `CALL_MAX` nodes are made by one call, so they are all there at once. Nodes of a larger flow
are made by several calls, and all of them wait. The last call makes one job, the begin, which
releases the first nodes. So nothing runs before everything is there.

The first call also makes a guard. If the start is cut off, the guard runs some minutes later and
removes what is there. It decides by an id: it takes the id of the begin, unless the begin is there.
A start that finds the id taken has failed. In a flow without a begin, jobs can only be missing if
the call refused some and the caller died before it removed the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.core.bounds import BATCH_MAX, NODES_READ, START_S
from holdfast.core.clock import micros
from holdfast.core.errors import FlowRefused, HoldfastError, IdConflict, StoreError
from holdfast.core.flow import BEGIN, GUARD, head_of, own_id
from holdfast.core.job import TERMINAL, JobRecord, NewJob, State
from holdfast.core.journal import EntryKind, Journal, join_of
from holdfast.enqueue import CHUNK_BYTES_MAX
from holdfast.store import Act, Change, Find, Page, Ref, Selection, Store
from holdfast.workflow.plan import Plan

log = logging.getLogger("holdfast.flow")
JOIN = EntryKind.JOIN


async def start(store: Store, plan: Plan, *, fresh: bool) -> bool:
    """Makes the jobs of the flow. Returns False if it was started earlier. `fresh` says that this
    cannot be. Safe to repeat; a repeat finishes a start that was cut off.

    Raises FlowRefused, which names the node; then no job of the flow is left.
    """
    if not fresh and await _is_started(store, plan):
        return False
    delayed = msgspec.structs.replace(plan.guard, delay_us=micros(START_S))
    created = False
    for part in _parts([delayed, plan.head, *plan.nodes]):
        answers = await store.enqueue(part)
        created = created or any(one.id == plan.id and one.created for one in answers)
        for job, answer in zip(part, answers, strict=True):
            if answer.error is not None or answer.id != job.id:
                await _refuse(store, plan, job, answer.error, created=created)
        known = [one.id for one in answers if not one.created and one.id in plan.names]
        if created and known and await _is_older(store, plan, known):
            await sweep(store, plan.tenant, plan.id, [each.id for each in plan.nodes])
            return await start(store, plan, fresh=True)
    if plan.begin is not None:
        [answer] = await store.enqueue([plan.begin])
        if answer.error is not None:
            await _refuse(store, plan, plan.begin, answer.error, created=created)
    await _call_off(store, plan)
    return created


async def _is_older(store: Store, plan: Plan, ids: Sequence[str]) -> bool:
    """Whether one of these nodes is older than the head: it is left from an earlier run, whose head
    was kept for a shorter time.
    """
    heads = (await _read(store, plan.tenant, [plan.id])).jobs
    for part in _ids(ids, NODES_READ):
        for job in (await _read(store, plan.tenant, part)).jobs:
            if any(job.seq < head.seq for head in heads):
                return True
    return False


async def _refuse(
    store: Store, plan: Plan, job: NewJob, error: HoldfastError | None, *, created: bool
) -> None:
    """Removes what was made, if this call has begun the flow, and raises."""
    if created:
        await sweep(store, plan.tenant, plan.id, [each.id for each in plan.nodes])
        await store.cancel([Ref(plan.tenant, plan.guard.id)])
    why = str(error) if error is not None else f"its key {job.key!r} is held by another job"
    if isinstance(error, IdConflict) and job is plan.begin:
        why = f"the start took longer than {START_S:g} s and was given up; start it again later"
    name = plan.names.get(job.id, "the flow")
    raise FlowRefused(id=plan.id, node=name, why=why) from error


async def _call_off(store: Store, plan: Plan) -> None:
    """Ends the guard. A guard that is left finds everything there and does nothing."""
    try:
        await store.cancel([Ref(plan.tenant, plan.guard.id)])
    except StoreError as error:
        log.info("the guard of flow %s was not called off: %s", plan.id, error)


async def _is_started(store: Store, plan: Plan) -> bool:
    begin = own_id(plan.id, BEGIN)
    ids = [plan.id, begin, plan.guard.id]
    found = {job.id: job for job in (await _read(store, plan.tenant, ids)).jobs}
    head = found.get(plan.id)
    if head is None:
        return False
    if plan.guard.id not in found:  # It was called off when everything was there.
        return True
    if head.state is State.CANCELED:
        why = "what is left of an earlier start is being removed; start it again later"
        raise FlowRefused(id=plan.id, node=plan.names[plan.id], why=why)
    whole = begin in found and found[begin].type == BEGIN
    if not whole and plan.begin is None:
        whole = await is_whole(store, plan.tenant, plan.id)
    if whole or head.state in TERMINAL:
        await _call_off(store, plan)
        return True
    return False


# -- for the guard ---------------------------------------------------------------------------------


async def is_whole(store: Store, tenant: str, flow: str) -> bool:
    """Whether every job that the head awaits was made."""
    heads = (await _read(store, tenant, [flow])).jobs
    if not heads or heads[0].state is not State.WAITING:
        return bool(heads) and heads[0].state is not State.CANCELED
    there = alive = 0
    nodes = head_of(heads[0]).own(flow)
    for part in _ids(nodes, NODES_READ):
        jobs = (await _read(store, tenant, part)).jobs
        there += len(jobs)
        alive += sum(job.state not in TERMINAL for job in jobs)
    return there == len(nodes) or await _left(store, tenant, flow) <= alive


async def _left(store: Store, tenant: str, flow: str) -> int:
    """How many nodes the head still awaits. A node that was deleted is not among them."""
    page = await _read(store, tenant, [flow], journals=True)
    journal = page.journals.get(Ref(tenant, flow), Journal())
    joins = [join_of(one) for one in journal.entries if (one.kind, one.name) == (JOIN, "")]
    return joins[0].left if joins else 0


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


async def _read(store: Store, tenant: str, ids: Sequence[str], *, journals: bool = False) -> Page:
    select = Selection(tenant=tenant, ids=tuple(ids))
    return await store.find(Find(select=select, limit=len(ids), journals=journals))


def _ids(ids: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    for first in range(0, len(ids), most):
        yield ids[first : first + most]


def _parts(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    """Splits jobs into calls bounded by number and by payload bytes."""
    part: list[NewJob] = []
    size = 0
    for job in jobs:
        body = job.envelope.body
        more = len(body) if isinstance(body, bytes) else 0
        if len(part) == BATCH_MAX or (part and size + more > 2 * CHUNK_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(job)
        size += more
    yield part
