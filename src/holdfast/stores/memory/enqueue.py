"""Enqueue: checks id, key and caps, then adds the job."""

from __future__ import annotations

from holdfast.core.errors import IdConflict
from holdfast.core.job import EventKind, NewJob
from holdfast.store import Enqueued
from holdfast.stores.memory.idempotency import key_of
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.limits_caps import over


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
