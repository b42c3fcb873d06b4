"""Enqueue: checks ids, keys and caps, then writes the rows of new jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.core.clock import Micros
from holdfast.core.errors import IdConflict, InvalidInput
from holdfast.core.job import EventKind, NewJob, edge_bytes
from holdfast.core.journal import Edge, new_join
from holdfast.store import Enqueued
from holdfast.stores.foundationdb import limits_caps, limits_groups
from holdfast.stores.foundationdb.idempotency import ask_holders, ask_keys, key_holder, take_key
from holdfast.stores.foundationdb.joins_edges import put_edges
from holdfast.stores.foundationdb.journal import write
from holdfast.stores.foundationdb.layout import STEP_BYTES_MAX, WHOLE_BYTES_MAX
from holdfast.stores.foundationdb.rows import Row, new_row
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.sql_rows import size_of
from holdfast.stores.whole import stands, undone

T = TypeVar("T")

ROW_BYTES = 1000
"""What a job costs besides its payload, about."""


def split(items: Sequence[T], bytes_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """What a call was given, in batches that one transaction can take."""
    start = size = 0
    for place, item in enumerate(items):
        more = bytes_of(item)
        if place > start and size + more > STEP_BYTES_MAX:
            yield items[start:place]
            start, size = place, 0
        size += more
    if items:
        yield items[start:]


def job_bytes(job: NewJob) -> int:
    """What a new job writes, about."""
    return ROW_BYTES + size_of(job.envelope.body) + edge_bytes(job)


def ask_enqueue(step: Step, jobs: Sequence[NewJob], *, trust_new: bool = True) -> None:
    """Requests what `enqueue_jobs` reads, as far as that is known without an answer."""
    step.settings.ask(job.tenant for job in jobs)
    limits_caps.ask_names(step, jobs)
    step.ask_last_seq()
    step.ask_rows(_maybe_known(jobs, trust_new))
    ask_keys(step, jobs)


def _maybe_known(jobs: Sequence[NewJob], trust_new: bool) -> list[tuple[str, str]]:
    """The names of jobs that may be there already."""
    return [(job.tenant, job.id) for job in jobs if not (trust_new and job.fresh)]


async def enqueue_jobs(
    step: Step, jobs: Sequence[NewJob], *, trust_new: bool = True
) -> list[Enqueued]:
    """`trust_new`: ids that were made for this very call are not looked up. Not where the caller
    may repeat the transaction.
    """
    await step.settings.load(job.tenant for job in jobs)
    await step.rows(_maybe_known(jobs, trust_new))  # All at once; each is read again below.
    await ask_holders(step, jobs)
    limits_caps.ask_caps(step, {job.tenant for job in jobs})
    await step.find_seqs(len(jobs))
    answers = [await _enqueue(step, job, trust_new) for job in jobs]
    await limits_groups.reopen_freed(step)
    return answers


async def enqueue_whole(step: Step, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Creates all of these jobs, or none. InvalidInput for more than one transaction takes."""
    size = sum(map(job_bytes, jobs))
    if size > WHOLE_BYTES_MAX:
        why = f"come to about {size} bytes; one transaction takes {WHOLE_BYTES_MAX}"
        raise InvalidInput(field="jobs", why=why)
    answers = await enqueue_jobs(step, jobs)
    if stands(jobs, answers):
        return answers
    step.void = True
    return undone(answers)


async def _enqueue(step: Step, job: NewJob, trust_new: bool) -> Enqueued:
    if not (trust_new and job.fresh):
        earlier = await step.row(job.tenant, job.id)
        if earlier is not None:
            return _existing(job, earlier)
    if (holder := await key_holder(step, job)) is not None:
        return Enqueued(holder, False)
    row = new_row(job, step.now)
    if (over := await limits_caps.over(step, row)) is not None:
        return Enqueued(job.id, False, over)
    if job.parents:
        await write(step, row, [new_join("", job.parents)])
    await insert(step, row, job.envelope.body, job.rules.key_us, job.edges)
    return Enqueued(job.id, True)


def _existing(job: NewJob, row: Row) -> Enqueued:
    """The answer for an id that is there already."""
    if (row.type, row.queue) != (job.envelope.type, job.queue):
        clash = IdConflict(field="id", id=job.id, type=row.type, queue=row.queue)
        return Enqueued(job.id, False, clash)
    return Enqueued(job.id, False)


async def insert(
    step: Step, row: Row, body: bytes, key_us: Micros | None, edges: Sequence[Edge] = ()
) -> None:
    """Writes a new job."""
    await limits_caps.count_names(step, row)
    limits_groups.hold_back(step, row)
    step.insert(row, body)
    if edges:
        put_edges(step, row, edges)
    take_key(step, row, key_us)
    step.note(EventKind.ENQUEUED, row, row.run_at if row.run_at > step.now else None)
