"""Enqueue: new jobs as enqueue.lua takes them, and what its answers mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.core import bounds
from holdfast.core.clock import Micros
from holdfast.core.errors import (
    QUEUE_FULL_RETRY_S,
    BatchRefused,
    IdConflict,
    QueueFull,
    TenantFull,
)
from holdfast.core.job import NewJob
from holdfast.store import Enqueued
from holdfast.stores.redis import item_check
from holdfast.stores.redis.rows import new_row
from holdfast.stores.redis.shards import Shards, together

SCRIPT_BYTES_MAX = 4 * 1024 * 1024
"""Payloads of one call: the server does nothing else while a script copies them."""

CREATED, KNOWN, CONFLICT, FULL, TOO_MANY, UNDONE = 1, 0, 2, 3, 4, 5


async def enqueue_jobs(
    shards: Shards, jobs: Sequence[NewJob], now: Micros | None, *, whole: bool
) -> list[Enqueued]:
    """A whole call is one run of the script, which writes nothing before it has decided about all
    jobs, and nothing if it cannot create one of them.
    """

    async def act(some: Sequence[NewJob]) -> list[Enqueued]:
        if whole and len(some) < len(jobs):
            return [_undone(job) for job in some]
        return await _enqueue(shards, some, now, whole)

    return await item_check.each(
        jobs, item_check.of_job, act, lambda job, why: Enqueued(job.id, False, why)
    )


async def _enqueue(
    shards: Shards, jobs: Sequence[NewJob], now: Micros | None, whole: bool
) -> list[Enqueued]:
    spread = shards.spread(jobs, (job.tenant for job in jobs))
    found: list[Any] = [None] * len(jobs)
    # All jobs are encoded before the first is sent: a job that cannot be stored fails the whole
    # call.
    calls = {
        shard: [
            _call(jobs, part, alone=len(spread) == 1, whole=whole)
            for part in ([positions] if whole else _parts(jobs, positions))
        ]
        for shard, positions in spread.items()
    }

    async def call(shard: int, base: int | None) -> int:
        at = 0
        for one in calls[shard]:
            *answers, at = await shards.call(
                "enqueue", shard, one.args, now, texts=one.texts, base=base, wait=True
            )
            for position, answer in zip(one.positions, answers, strict=True):
                found[position] = answer
        return int(at)

    if spread:
        # The first shard's clock numbers the whole batch, so that its jobs keep their order.
        first, *others = spread
        base = await call(first, None)
        if others:
            await together(call(shard, base) for shard in others)
    return [answer_of(*each) for each in zip(jobs, found, strict=True)]


class _Call(msgspec.Struct):
    """One call of enqueue.lua, for some jobs of a batch."""

    positions: list[int]
    args: tuple[Any, ...]
    texts: Sequence[str | bytes]


def _call(jobs: Sequence[NewJob], positions: list[int], *, alone: bool, whole: bool) -> _Call:
    """`alone`: all jobs of the batch are in one shard, so the script needs no positions."""
    chosen = [jobs[position] for position in positions]
    single = {job.id for job in chosen if job.parents == 1}
    rows = (new_row(job, single) for job in chosen)
    names, fixed, bodies, options = zip(*rows, strict=True)
    args = (options, None if alone else positions, bounds.QUEUES_MAX, bounds.GROUPS_MAX, whole)
    return _Call(positions, args, (*names, *fixed, *bodies))


def _parts(jobs: Sequence[NewJob], positions: list[int]) -> Iterator[list[int]]:
    """The positions, in parts whose payloads are small enough for one call. Jobs that await others
    of their batch are enqueued with it in one step: else one could end before its target is there.
    """
    if any(jobs[position].edges or jobs[position].parents for position in positions):
        yield positions
        return
    part: list[int] = []
    size = 0
    for position in positions:
        body = len(jobs[position].envelope.body or b"")
        size += body
        if part and size > SCRIPT_BYTES_MAX:
            yield part
            part, size = [], body
        part.append(position)
    yield part


def answer_of(job: NewJob, answer: Any) -> Enqueued:
    """What the script has answered for a job."""
    if answer == CREATED:
        return Enqueued(job.id, True)
    if answer == UNDONE:
        return _undone(job)
    code, *values = answer
    if code == KNOWN:
        return Enqueued(values[0].decode(), False)
    if code == CONFLICT:
        type, queue = (value.decode() for value in values)
        return Enqueued(job.id, False, IdConflict(field="id", id=job.id, type=type, queue=queue))
    if code == TOO_MANY:
        what = values[0].decode()
        most = {"queues": bounds.QUEUES_MAX, "groups": bounds.GROUPS_MAX}[what]
        return Enqueued(job.id, False, TenantFull(tenant=job.tenant, what=what, max=most))
    return Enqueued(job.id, False, tenant_full(job.tenant, values))


def tenant_full(tenant: str, answer: Sequence[Any]) -> QueueFull:
    """What a tenant has too much of, how much, and the most."""
    what, has, most = answer
    return QueueFull(
        tenant=tenant,
        what=what.decode(),
        queued=int(has),
        max=int(most),
        retry_after_s=QUEUE_FULL_RETRY_S,
    )


def _undone(job: NewJob) -> Enqueued:
    return Enqueued(job.id, False, BatchRefused(id=job.id))
