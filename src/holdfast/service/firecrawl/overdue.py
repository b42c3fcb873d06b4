"""Jobs and claims of the wire that are past their time, ended in bounded steps."""

from __future__ import annotations

import msgspec

from holdfast.job import JobRecord, State
from holdfast.lifecycle import Transition, lapse
from holdfast.limits import BATCH_MAX, EXPIRED_MAX
from holdfast.service.firecrawl.mapping import QUEUE
from holdfast.service.firecrawl.pages import alive_jobs
from holdfast.service.firecrawl.wire import REMEMBERED_MAX, Wire
from holdfast.store import Selection

WALK_MAX = 10_000
"""Jobs that one call looks through where others' are overdue for longer."""
WAITING = (State.ENQUEUED, State.SCHEDULED, State.RETRYING)


class Overdue(msgspec.Struct, frozen=True):
    """What to end, and how much of it at most."""

    claims: bool
    """Claims, whose jobs can be popped again; else jobs that waited too long, which are gone."""
    step: int = 100
    """Jobs that are read at a time: each comes with its data."""
    steps: int = 10


async def end_overdue(wire: Wire, tenant: str | None, what: Overdue) -> int:
    """How many were ended; of one team, or of all."""
    done, step = 0, what.step
    for _ in range(what.steps):
        overdue = await wire.store.expired(step)
        ours = [one for one in overdue if _is(what, one.job, tenant)]
        acked = await wire.store.ack([lapse(one.job, one.token) for one in ours]) if ours else []
        ended = sum(one.error is None for one in acked)
        done += ended
        if len(overdue) < step:
            break
        if not ended and step == EXPIRED_MAX:  # Others stand before, and are not ours to end.
            return done + (0 if what.claims else await _walk(wire, tenant))
        if not ended:
            step = EXPIRED_MAX
    return done


async def _walk(wire: Wire, tenant: str | None) -> int:
    """Looks through the waiting jobs of the wire itself, on from where it stopped the last time."""
    now = await wire.now()
    select = Selection(tenant=tenant, queues=(QUEUE,), states=WAITING)
    looked, late = 0, list[Transition]()
    last = wire.walked.pop(tenant, 0)
    async for job in alive_jobs(wire.store, select, WALK_MAX, last or None):
        looked, last = looked + 1, job.seq
        if job.expires_at is not None and job.expires_at <= now:
            late.append(lapse(job, None))
        if looked == WALK_MAX or len(late) == BATCH_MAX:
            wire.walked[tenant] = last
            break
    if len(wire.walked) > REMEMBERED_MAX:
        wire.walked.popitem(last=False)
    acked = await wire.store.ack(late) if late else []
    return sum(one.error is None for one in acked)


def _is(what: Overdue, job: JobRecord, tenant: str | None) -> bool:
    held = job.state is State.PROCESSING
    return job.queue == QUEUE and held is what.claims and tenant in (None, job.tenant)
