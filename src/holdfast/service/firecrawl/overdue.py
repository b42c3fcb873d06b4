"""Ends jobs and claims of the protocol that are past their time, in bounded steps."""

from __future__ import annotations

import msgspec

from holdfast.core.bounds import BATCH_MAX, EXPIRED_MAX
from holdfast.core.job import JobRecord, State
from holdfast.core.lifecycle import Transition, lapse
from holdfast.service.firecrawl.mapping import QUEUE, Key, claim_hold, job_id
from holdfast.service.firecrawl.pages import alive_jobs
from holdfast.service.firecrawl.wire import REMEMBERED_MAX, Wire
from holdfast.store import Selection

WALK_MAX = 10_000
"""Maximum jobs that one call scans behind more overdue jobs of others."""
WAITING = (State.ENQUEUED, State.SCHEDULED, State.RETRYING)


class Overdue(msgspec.Struct, frozen=True):
    """What to end, and the maximum number."""

    claims: bool
    """True: claims, whose jobs can then be popped again. False: jobs that waited too long."""
    step: int = 100
    """Jobs to read at a time; each includes its data."""
    steps: int = 10


async def end_overdue(wire: Wire, tenant: str | None, what: Overdue) -> int:
    """The number that was ended, of one team or of all."""
    done, step = 0, what.step
    for _ in range(what.steps):
        overdue = await wire.store.expired(step)
        ours = [one for one in overdue if _is(what, one.job, tenant)]
        ended = await _end(wire, [lapse(one.job, one.token) for one in ours])
        done += ended
        if len(overdue) < step:
            break
        if (
            not ended and step == EXPIRED_MAX
        ):  # Jobs of others come first, which must not be ended here.
            return done + await _walk(wire, tenant, what)
        if not ended:
            step = EXPIRED_MAX
    return done


async def _walk(wire: Wire, tenant: str | None, what: Overdue) -> int:
    """Scans the jobs of the protocol, starting where the last call stopped."""
    now, place = await wire.now(), (what.claims, tenant)
    states, most = ((State.PROCESSING,), what.step) if what.claims else (WAITING, BATCH_MAX)
    select = Selection(tenant=tenant, queues=(QUEUE,), states=states)
    looked, late = 0, list[JobRecord]()
    last = wire.walked.pop(place, 0)
    async for job in alive_jobs(wire.store, select, WALK_MAX, last or None):
        looked, last = looked + 1, job.seq
        until = job.lease_until if what.claims else job.expires_at
        if until is not None and until <= now:
            late.append(job)
        if looked == WALK_MAX or len(late) == most:
            wire.walked[place] = last
            break
    if len(wire.walked) > REMEMBERED_MAX:
        wire.walked.popitem(last=False)
    if not what.claims:
        return await _end(wire, [lapse(job, None) for job in late])
    tokens = [(job, await _token(wire, job)) for job in late]
    return await _end(wire, [lapse(job, token) for job, token in tokens if token is not None])


async def _end(wire: Wire, lapses: list[Transition]) -> int:
    acked = await wire.store.ack(lapses) if lapses else []
    return sum(one.error is None for one in acked)


async def _token(wire: Wire, job: JobRecord) -> str | None:
    """The token of the last claim of a job, from the hold of its pop. None if no pop of the
    protocol claimed it, or if that was long ago: the upkeep or the next pop ends such a claim.
    """
    id = job_id(job)
    if id is None:
        return None
    name = claim_hold(Key(job.tenant, job.id, "", id))
    for hold in await wire.store.hold(under=name, limit=1):
        if hold.name == name:
            return await wire.nonces.token(hold.note)
    return None


def _is(what: Overdue, job: JobRecord, tenant: str | None) -> bool:
    held = job.state is State.PROCESSING
    return job.queue == QUEUE and held is what.claims and tenant in (None, job.tenant)
