"""The queue of a team: push, pop, complete, release, and how many there are."""

from __future__ import annotations

from functools import partial
from typing import Any

import uuid_utils

from holdfast.errors import InvalidInput, LeaseExpired
from holdfast.job import Failed, Lease, Reason, State
from holdfast.lifecycle import Transition, decide
from holdfast.limits import EXCLUDE_MAX
from holdfast.scope import Scope, ScopeKind
from holdfast.scopes import ALIVE
from holdfast.service.aside import aside, size_of
from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.claims import KEPT_US, note_of
from holdfast.service.firecrawl.endpoint import Ask
from holdfast.service.firecrawl.mapping import QUEUE, TYPE, Claimed, Key
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
from holdfast.store import Act, Change, Claim, Selection, Take

LARGE = 64 * 1024
"""A job of more bytes does not share its way into the store with others."""
STRANGERS_MAX = 100
"""Jobs that a pop puts aside because somebody else put them into the queue."""
OVERDUE_POP = Overdue(claims=False, step=20, steps=1)
"""What a pop that found nothing removes of the jobs past their time."""
RELEASED_MAX = 1000
"""Claims of one id that a release gives back."""
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
    """The next job with its queueKey, or null; the bare job, removed, for a client that does not
    say who it is.
    """
    body: PopIn = ask.body
    tenant = ask.team(ask.part("team"), "team")
    if body.workerId is None and body.blockedCrawlIds is None:
        raise InvalidInput(field="workerId", why="is missing")  # Nobody's pop shall remove a job.
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
        lease = next(iter(await ask.wire.store.claim(wish)), None)
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
    """The answer to a pop; without a note the job is removed."""
    claimed = Claimed(lease.job.tenant, lease.job.id, lease.token)
    if note is None:
        acked = await ask.service.acks.submit(_transition(claimed, State.COMPLETED))
        return None if acked.error is not None else found.job
    name = mapping.claim_hold(Key(claimed.tenant, claimed.id, claimed.token, found.job.id))
    await ask.wire.holds.submit(Take(name, OWNER, ask.wire.claim_us + KEPT_US, note))
    return found


async def _refused(wire: Wire, lease: Lease) -> None:
    """To the dead letters with what is no job of the wire: it would come first again and again."""
    why = Failed(error="this is no job of the wire", reason=Reason.DECODE, retryable=False)
    await wire.store.ack([decide(why, lease.job, lease.token, 0.0)])


# -- complete, release -----------------------------------------------------------------------------


async def complete(ask: Ask) -> SuccessOut:
    """False when the job is gone, or claimed anew by somebody else."""
    body: CompleteIn = ask.body
    key = mapping.key_of(body.queueKey)
    if ask.caller.tenant not in (None, key.tenant):
        return SuccessOut(success=False)  # Another tenant's job is not found.
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
    """The claim has lapsed; whether nobody has claimed the job since, and it could be ended.

    LeaseExpired says that the token is still the last one given. While nothing has moved the job,
    upkeep's own kind of transition ends it: valid only with that token and past the deadline. Else
    the job waits again, and is deleted only if it does: a change never touches what is held.
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
    """Lets every claimed job of this id be popped again, with its attempt; always true."""
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
            await ask.service.acks.submit(back)  # A refusal: it is claimed no more.
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
    """In the order of pops, claimed ones too."""
    tenant = ask.team(ask.part("team"), "team")
    limit = ask.number("limit", JOBS_DEFAULT, JOBS_MAX)
    select = Selection(tenant=tenant, queues=(QUEUE,), states=ALIVE)
    places = [
        (-job.priority, job.seq, id)
        async for job in alive_jobs(ask.wire.store, select, JOBS_MAX)
        if (id := mapping.job_id(job)) is not None
    ]
    return JobIdsOut(jobIds=[id for _, _, id in sorted(places)[:limit]])
