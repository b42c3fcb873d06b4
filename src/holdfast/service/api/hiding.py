"""Hides jobs in queues that a token does not cover: they are not found, also in refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.core.bounds import BATCH_MAX, EDGES_MAX, within
from holdfast.core.errors import JobNotFound
from holdfast.core.job import JobRecord, NewJob
from holdfast.lookup import find_jobs
from holdfast.service.api import permissions
from holdfast.service.call import Call
from holdfast.store import Acked, Extended, Ref

A = TypeVar("A", Acked, Extended)


async def seen(call: Call, refs: Sequence[Ref]) -> set[Ref]:
    """The jobs that are in the caller's queues."""
    found: set[Ref] = set()
    queues = permissions.queues(call, None) or ()
    for tenant in {one.tenant for one in refs}:
        ids = tuple({one.id for one in refs if one.tenant == tenant})
        jobs = await find_jobs(call.service.store, tenant, ids, queues=queues)
        found.update(Ref(job.tenant, job.id) for job in jobs)
    return found


async def addressable(call: Call, refs: Sequence[Ref]) -> set[Ref] | None:
    """The jobs to which the caller may send a value; None: every one. A value is read by the
    handler as a payload is, so a token for some types gives it only to jobs of these.
    """
    caller = call.caller
    if caller.queues is None and caller.types is None:
        return None
    found: set[Ref] = set()
    for job in await _jobs(call, refs):
        if caller.may_queue(job.queue):
            caller.check_type(job.type)
            found.add(Ref(job.tenant, job.id))
    return found


async def joinable(call: Call, jobs: Sequence[NewJob]) -> None:
    """Refuses an edge to a job in a queue that the token does not cover: the end of the new job
    could make that job ready, or fail it. A job that is not there yet may appear in any queue, so
    only the others of this call may be named before.
    """
    targets = {Ref(job.tenant, edge.target) for job in jobs for edge in job.edges}
    if call.caller.queues is None or not targets:
        return
    within("edges", len(targets), EDGES_MAX)
    stored = {Ref(job.tenant, job.id): job.queue for job in await _jobs(call, list(targets))}
    new = {Ref(job.tenant, job.id) for job in jobs}
    for target in targets:
        queue = stored.get(target)
        if not (target in new if queue is None else call.caller.may_queue(queue)):
            raise JobNotFound(id=target.id)


async def _jobs(call: Call, refs: Sequence[Ref]) -> list[JobRecord]:
    """The jobs of any queue, to decide what the caller may do to them."""
    found: list[JobRecord] = []
    for tenant in {one.tenant for one in refs}:
        ids = sorted({one.id for one in refs if one.tenant == tenant})
        for start in range(0, len(ids), BATCH_MAX):
            found += await find_jobs(call.service.store, tenant, ids[start : start + BATCH_MAX])
    return found


async def hidden(call: Call, refs: Sequence[Ref], answers: list[A]) -> list[A]:
    """The answers. A refusal about a job that the caller may not see becomes JobNotFound."""
    refused = [ref for ref, one in zip(refs, answers, strict=True) if one.error is not None]
    if call.caller.queues is None or not refused:
        return answers
    visible = await seen(call, refused)
    return [
        one
        if one.error is None or ref in visible
        else msgspec.structs.replace(one, error=JobNotFound(id=ref.id))
        for ref, one in zip(refs, answers, strict=True)
    ]
