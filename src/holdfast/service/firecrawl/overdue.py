"""Jobs and claims of the wire that are past their time, ended in bounded steps."""

from __future__ import annotations

import msgspec

from holdfast.job import JobRecord, State
from holdfast.lifecycle import lapse
from holdfast.limits import EXPIRED_MAX
from holdfast.service.firecrawl.mapping import QUEUE
from holdfast.service.firecrawl.wire import Wire


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
        if len(overdue) < step or (not ended and step == EXPIRED_MAX):
            break
        if not ended:
            step = EXPIRED_MAX  # Others are overdue for longer: look past them.
    return done


def _is(what: Overdue, job: JobRecord, tenant: str | None) -> bool:
    held = job.state is State.PROCESSING
    return job.queue == QUEUE and held is what.claims and tenant in (None, job.tenant)
