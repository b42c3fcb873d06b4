"""Enqueue: checks id, key and caps, then adds the job."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import IdConflict
from holdfast.core.job import EventKind, NewJob
from holdfast.store import Enqueued
from holdfast.stores.memory.idempotency import key_of
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.limits_caps import over
from holdfast.stores.whole import stands, undone


def enqueue_jobs(tables: Tables, jobs: Sequence[NewJob], whole: bool) -> list[Enqueued]:
    before = tables.cursor
    answers = [enqueue(tables, job) for job in jobs]
    if not whole or stands(jobs, answers):
        return answers
    _take_back(tables, jobs, answers, before)
    return undone(answers)


def enqueue_all(tables: Tables, jobs: Sequence[NewJob]) -> None:
    """Makes those of the jobs that are not there; or none, and raises why one was refused."""
    before = tables.cursor
    answers = [enqueue(tables, job) for job in jobs]
    refused = next((answer.error for answer in answers if answer.error is not None), None)
    if refused is not None:
        _take_back(tables, jobs, answers, before)
        raise refused


def _take_back(
    tables: Tables, jobs: Sequence[NewJob], answers: Sequence[Enqueued], before: int
) -> None:
    """Removes what this call has created, and its events."""
    for job, answer in zip(jobs, answers, strict=True):
        if answer.created:
            row = tables.rows[job.tenant, job.id]
            tables.forget_key(row)
            tables.remove(row, tables.now)
    tables.drop_events(before)


def enqueue(tables: Tables, job: NewJob) -> Enqueued:
    now = tables.now
    earlier = tables.rows.get((job.tenant, job.id))
    if earlier is not None:
        was = earlier.new
        if (was.envelope.type, was.queue) != (job.envelope.type, job.queue):
            clash = IdConflict(field="id", id=job.id, type=was.envelope.type, queue=was.queue)
            return Enqueued(job.id, False, clash)
        return Enqueued(job.id, False)
    key = key_of(job)
    if key is not None and (holder := tables.key_holder(key, now)) is not None:
        return Enqueued(holder, False)
    if (refused := over(tables, job)) is not None:
        return Enqueued(job.id, False, refused)
    row = tables.insert(job, now)
    tables.take_key(row, now)
    tables.note(EventKind.ENQUEUED, row, row.run_at if row.run_at > now else None)
    return Enqueued(job.id, True)
