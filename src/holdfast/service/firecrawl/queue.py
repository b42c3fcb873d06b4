"""The queue of a team: push, pop, complete, release and counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import uuid_utils

from holdfast.core.bounds import EXCLUDE_MAX
from holdfast.core.errors import InvalidInput, LeaseExpired
from holdfast.core.job import Failed, Lease, Reason, State
from holdfast.core.lifecycle import Transition, decide
from holdfast.core.scope import Scope, ScopeKind
from holdfast.scopes import ALIVE
from holdfast.service.aside import aside, size_of
from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.endpoint import Ask
from holdfast.service.firecrawl.mapping import QUEUE, TYPE, Claimed, Key
from holdfast.service.firecrawl.nonces import KEPT_US, note_of
from holdfast.service.firecrawl.overdue import Overdue, end_overdue
from holdfast.service.firecrawl.pages import alive_jobs
from holdfast.service.firecrawl.shapes import (
    CompleteIn,
    CountOut,
    JobIdsOut,
    PopIn,
    PoppedOut,
    PushIn,
    ReleaseIn,
    SuccessOut,
)
from holdfast.service.firecrawl.wire import OWNER, Wire
from holdfast.service.unread import readable
from holdfast.store import Act, Change, Claim, Selection, Take

LARGE = 64 * 1024
"""A job with more bytes does not share a batch with others."""
STRANGERS_MAX = 100
"""Maximum jobs that a pop sets aside because they did not come from this protocol."""
OVERDUE_POP = Overdue(claims=False, step=20, steps=1)
"""Maximum overdue jobs that a pop removes if it finds nothing."""
RELEASED_MAX = 1000
"""Maximum claims of one id that a release ends."""
JOBS_DEFAULT, JOBS_MAX = 10_000, 100_000
DONE = SuccessOut(success=True)


# -- push ------------------------------------------------------------------------------------------


async def push(ask: Ask) -> SuccessOut:
    given: tuple[PushIn, bytes] = ask.body
    ask.team(given[0].teamId)
    ask.caller.check_type(TYPE)
    job = mapping.new_job(*given, id=str(uuid_utils.uuid7()), rules=ask.wire.rules)
    if job.group is not None:
        await ask.wire.list_crawl(job.group, job.tenant)
    if len(job.envelope.body) > LARGE:
        [result] = await ask.service.store.enqueue([job])
    else:
        result = await ask.service.enqueues.submit(job)
    if result.error is not None:
        raise result.error
    return DONE


# -- pop -------------------------------------------------------------------------------------------


async def pop(ask: Ask) -> Any:
    """The next job with its queueKey, or null. A client that sends no workerId gets the bare job,
    which is removed.
    """
    body: PopIn = ask.body
    tenant = ask.team(ask.part("team"), "team")
    if body.workerId is None and body.blockedCrawlIds is None:
        raise InvalidInput(
            field="workerId", why="is missing"
        )  # A pop without any of them must not remove a job.
    names = (mapping.known(mapping.crawl_name, id) for id in body.blockedCrawlIds or ())
    blocked = {name for name in names if name is not None}
    if len(blocked) > EXCLUDE_MAX:
        raise InvalidInput(
            field="blockedCrawlIds", why=f"has {len(blocked)}, at most {EXCLUDE_MAX}"
        )
    worker = "firecrawl" if body.workerId is None else mapping.worker_name(body.workerId)
    for _ in range(STRANGERS_MAX):
        salt, nonce = await ask.wire.nonces.new()
        wish = Claim(
            worker=worker,
            nonce=nonce,
            limit=1,
            lease_us=ask.wire.claim_us,
            tenants=(tenant,),
            queues=(QUEUE,),
            exclude_groups=tuple(sorted(blocked)),
        )
        leases = await ask.wire.store.claim(wish)
        lease = next(iter(await readable(ask.wire.store, leases)), None)
        if lease is None and leases:
            continue
        if lease is None:
            await end_overdue(ask.wire, tenant, OVERDUE_POP)
            return None
        found = await aside(size_of([lease.job]), partial(mapping.popped, lease))
        if found is not None:
            note = None if body.workerId is None else note_of(salt, nonce, lease.token)
            return await _given(ask, lease, found, note)
        await _refused(ask.wire, lease)
    return None


async def _given(ask: Ask, lease: Lease, found: PoppedOut, note: str | None) -> Any:
    """The answer to a pop. Without a note the job is removed."""
    claimed = Claimed(lease.job.tenant, lease.job.id, lease.token)
    if note is None:
        acked = await ask.service.acks.submit(_transition(claimed, State.COMPLETED))
        return None if acked.error is not None else found.job
    name = mapping.claim_hold(Key(claimed.tenant, claimed.id, claimed.token, found.job.id))
    await ask.wire.holds.submit(Take(name, OWNER, ask.wire.claim_us + KEPT_US, note))
    return found


async def _refused(wire: Wire, lease: Lease) -> None:
    """Fails a job that did not come from this protocol; otherwise it would stay first for ever."""
    why = Failed(
        error="this job did not come from the Firecrawl protocol",
        reason=Reason.DECODE,
        retryable=False,
    )
    await wire.store.ack([decide(why, lease.job, lease.token, 0.0)])


# -- complete, release -----------------------------------------------------------------------------


async def complete(ask: Ask) -> SuccessOut:
    """False if the job no longer exists, or another client has claimed it."""
    body: CompleteIn = ask.body
    key = mapping.key_of(body.queueKey)
    if ask.caller.tenant not in (None, key.tenant):
        return SuccessOut(success=False)  # A job of another tenant is not found.
    if mapping.known(mapping.token_name, key.token) is None:
        return SuccessOut(success=False)
    claimed = Claimed(key.tenant, key.id, key.token)
    acked = await ask.service.acks.submit(_transition(claimed, State.COMPLETED))
    done = acked.error is None
    if isinstance(acked.error, LeaseExpired):
        done = await _complete_late(ask.wire, claimed)
    if done:
        await ask.wire.holds.submit(Take(mapping.claim_hold(key), OWNER, 0))
    return SuccessOut(success=done)


async def _complete_late(wire: Wire, claimed: Claimed) -> bool:
    """Completes a job after its claim has expired. False if it was claimed again since.

    LeaseExpired means that the token is still the last one. If the job has not changed, a
    transition as by the upkeep ends it, which is valid only with that token and after the deadline.
    Otherwise the job waits again and is deleted; a change never affects a leased job.
    """
    late = _transition(claimed, State.COMPLETED, lapsed=True)
    [acked] = await wire.store.ack([late])
    if acked.error is None:
        return True
    select = Selection(tenant=claimed.tenant, ids=(claimed.id,), states=ALIVE)
    changed = await wire.store.change(Change(select=select, act=Act.DELETE, limit=1))
    return bool(changed.done)


def _transition(claimed: Claimed, to: State, **more: Any) -> Transition:
    return Transition(tenant=claimed.tenant, id=claimed.id, token=claimed.token, to=to, **more)


async def release(ask: Ask) -> SuccessOut:
    """Releases every claimed job of this id, without using its attempt. Always true."""
    body: ReleaseIn = ask.body
    if mapping.known(mapping.job_name, body.jobId) is None:
        return DONE
    under, own = mapping.claims_under(body.jobId, None), ask.caller.tenant
    narrow = under if own is None else mapping.claims_under(body.jobId, own)
    holds = [hold async for hold in ask.wire.each_hold(narrow, RELEASED_MAX)]
    for hold in holds:
        token = await ask.wire.nonces.token(hold.note)
        claimed = mapping.claim_of(hold.name, under, token)
        if claimed is not None:
            back = _transition(claimed, State.ENQUEUED, give_back=True)
            await ask.service.acks.submit(back)  # Refused: it is no longer claimed.
        await ask.wire.holds.submit(Take(hold.name, OWNER, 0))
    return DONE


# -- counts ----------------------------------------------------------------------------------------


async def count_team(ask: Ask) -> CountOut:
    tenant = ask.team(ask.part("team"), "team")
    tally = await ask.wire.tally(Scope(tenant, ScopeKind.QUEUE, QUEUE))
    return CountOut(count=mapping.alive(tally))


async def count_crawl(ask: Ask) -> CountOut:
    crawl = mapping.crawl_name(ask.part("crawl"), "crawl")
    tallies = await ask.wire.crawl_tallies(crawl, ask.caller.tenant)
    return CountOut(count=mapping.alive(tallies))


async def jobs_of_team(ask: Ask) -> JobIdsOut:
    """The job ids in the order of pops, including claimed ones."""
    tenant = ask.team(ask.part("team"), "team")
    limit = ask.number("limit", JOBS_DEFAULT, JOBS_MAX)
    select = Selection(tenant=tenant, queues=(QUEUE,), states=ALIVE)
    places = [
        (-job.priority, job.seq, id)
        async for job in alive_jobs(ask.wire.store, select, JOBS_MAX)
        if (id := mapping.job_id(job)) is not None
    ]
    return JobIdsOut(jobIds=[id for _, _, id in sorted(places)[:limit]])
