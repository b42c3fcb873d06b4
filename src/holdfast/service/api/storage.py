"""The verbs of the contract, for our own remote store: decode, hold to bounds, call, encode.

Not for other languages: the native API is. The shapes are `stores/remote/wire.py`'s, versioned by
its FORMAT; `bounds.py` says what a caller may name. What an enqueue, a claim or an ack may do:

- A caller of one tenant means its own where no tenant is named, and may name no other.
- A token for some queues enqueues, claims, finds, counts, sets and holds slots only there; jobs
  elsewhere are not found. It may read the limits of its tenant, which hold its jobs back. A token
  for some types enqueues only those, and is never handed a job of another.
- An ack carries a lease's secret token, which the store checks: the right to work is enough. One
  without a token, or because a deadline passed, is upkeep's, and needs the right to admin.
- Workers hold `worker/<name>` while they live. Those of one tenant's callers are kept apart by the
  tenant's name, and their notes say that they serve this tenant and no other.
- What the platform set on a tenant is changed with the right to platform alone (`ceiling.py`).
- `upkeep` elects who does the upkeep of all tenants. Who may not is told who leads, and never does.
- Other names are for admins of every tenant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from holdfast.check import check_name, check_seconds
from holdfast.errors import InvalidInput, JobNotFound, PayloadTooLarge
from holdfast.explain import unnamed
from holdfast.job import Lease, NewJob, Released
from holdfast.lifecycle import Transition, decide
from holdfast.limits import GROUP_MAX, NAME_MAX, QUEUE_MAX, WAIT_S_MAX
from holdfast.scope import Explanation, ScopeKind
from holdfast.service.api import bounds
from holdfast.service.api.hiding import hidden, seen
from holdfast.service.api.verbs import encoded, encoded_lease, verb
from holdfast.service.aside import aside
from holdfast.service.call import Call
from holdfast.service.rights import Unauthenticated
from holdfast.store import (
    Acked,
    Canceled,
    Capabilities,
    Change,
    Claim,
    Enqueued,
    EventPage,
    Extended,
    Extension,
    Find,
    Lapsed,
    Page,
    Pruned,
    Ref,
    Tally,
)
from holdfast.stores.remote import wire
from holdfast.stores.remote.wire import MEDIA
from holdfast.stores.repeats import asked_for

NAP_S = 5.0
"""How long a wait sleeps before it looks whether the service goes down."""
WRONG_TYPE_US = 5_000_000
"""How long a job rests that was claimed by a token which is not for its type."""


# -- life ------------------------------------------------------------------------------------------


async def hello(call: Call) -> Response:
    """What the store can do, and whom the service takes the caller for."""
    service = call.service
    known = None
    try:
        caller = await service.caller(call.request)
        rights = tuple(sorted(caller.rights))
        known = wire.Known(name=caller.name, tenant=caller.tenant, rights=rights)
    except Unauthenticated:
        pass  # Told by its absence: who has no token may ask too.
    told = wire.Hello(
        format=wire.FORMAT,
        capabilities=_capabilities(call),
        body_max=service.limits.body_max,
        wait_s=min(service.limits.wait_s, WAIT_S_MAX),
        caller=known,
    )
    return Response(wire.encode(told), media_type=MEDIA)


def _capabilities(call: Call) -> Capabilities:
    """Those of the store behind, seen through the service."""
    return msgspec.structs.replace(
        call.service.store.capabilities,
        shared=True,
        encodes=True,
        transactional_enqueue=False,
        payload_max=call.service.payload_max,
    )


# -- journey ---------------------------------------------------------------------------------------


@verb(wire.ENQUEUE)
async def enqueue(call: Call, jobs: list[NewJob]) -> list[Enqueued]:
    """Keeps jobs; each has its own answer."""
    size = sum(len(job.envelope.body) for job in jobs if isinstance(job.envelope.body, bytes))
    jobs = await aside(size, lambda: [bounds.new_job(call, job) for job in jobs])
    if len(jobs) == 1 and (large := _too_large(call, jobs[0])) is None:
        return [await call.service.enqueues.submit(jobs[0])]  # Travels with those of other callers.
    refused = {n: large for n, job in enumerate(jobs) if (large := _too_large(call, job))}
    fitting = [job for n, job in enumerate(jobs) if n not in refused]
    kept = iter(await call.service.store.enqueue(fitting) if fitting else ())
    return [
        Enqueued(job.id, False, refused[n]) if n in refused else next(kept)
        for n, job in enumerate(jobs)
    ]


def _too_large(call: Call, job: NewJob) -> PayloadTooLarge | None:
    size, most = len(job.envelope.body), call.service.payload_max
    return PayloadTooLarge(field="payload", size=size, max=most) if size > most else None


@verb(wire.CLAIM)
async def claim(call: Call, wish: Claim) -> list[Lease]:
    """Leases jobs. What was claimed for a caller that has left goes back at once, unless it asks
    again meanwhile: then the second answer has the leases.
    """
    wish = bounds.claim(call, wish)
    claims = call.service.claims
    claims[wish.nonce] = call
    try:
        taking = asyncio.ensure_future(call.service.store.claim(wish))
        try:
            leases = await asyncio.shield(taking)
        except asyncio.CancelledError:
            leases = await taking
            if claims.get(wish.nonce) is call:
                await _give_back(call, leases, 0)
            raise
        leases = [lease for lease in leases if asked_for(wish, lease.job)]
        if leases and await call.request.is_disconnected():
            if claims.get(wish.nonce) is call:
                await _give_back(call, leases, 0)
            return []
    finally:
        if claims.get(wish.nonce) is call:
            del claims[wish.nonce]
    mine = [lease for lease in leases if call.caller.may_type(lease.job.type)]
    if len(mine) < len(leases):
        others = [lease for lease in leases if not call.caller.may_type(lease.job.type)]
        await _give_back(call, others, WRONG_TYPE_US)
    return [encoded_lease(lease) for lease in mine]


async def _give_back(call: Call, leases: Sequence[Lease], delay_us: int) -> None:
    released = Released(delay_us)
    if leases:
        await call.service.store.ack([decide(released, one.job, one.token, 0.0) for one in leases])


@verb(wire.EXTEND)
async def extend(call: Call, extensions: list[Extension]) -> list[Extended]:
    """Renews leases."""
    extensions = [bounds.extension(call, one) for one in extensions]
    if len(extensions) == 1:
        answers = [await call.service.extends.submit(extensions[0])]
    else:
        answers = await call.service.store.extend(extensions)
    return await hidden(call, [Ref(one.tenant, one.id) for one in extensions], answers)


@verb(wire.ACK)
async def ack(call: Call, changes: list[Transition]) -> list[Acked]:
    """Settles leases, by their tokens."""
    changes = [bounds.transition(call, one, upkeep=False) for one in changes]
    await bounds.results(call, changes)
    if len(changes) == 1:
        answers = [await call.service.acks.submit(changes[0])]
    else:
        answers = await call.service.store.ack(changes)
    return await hidden(call, [Ref(one.tenant, one.id) for one in changes], answers)


@verb(wire.LAPSE)
async def lapse(call: Call, changes: list[Transition]) -> list[Acked]:
    """Settles what lapsed: upkeep's ack."""
    changes = [bounds.transition(call, one, upkeep=True) for one in changes]
    await bounds.results(call, changes)
    return await call.service.store.ack(changes)


# -- will ------------------------------------------------------------------------------------------


@verb(wire.CANCEL)
async def cancel(call: Call, asked: wire.Refs) -> list[Canceled]:
    """Cancels what is not finished."""
    refs, by = [bounds.ref(call, one) for one in asked.refs], bounds.signed(call, asked.by)
    if call.caller.queues is None:
        return await call.service.store.cancel(refs, by=by)
    mine = await seen(call, refs)
    answers = iter(await call.service.store.cancel([one for one in refs if one in mine], by=by))
    return [
        next(answers) if one in mine else Canceled(one.id, False, JobNotFound(id=one.id))
        for one in refs
    ]


@verb(wire.CHANGE)
async def change(call: Call, asked: Change) -> wire.Done:
    """One step of a change by selection."""
    bounds.cursor(asked.after)
    bounds.step(asked)
    select = bounds.selection(call, asked.select)
    by = bounds.signed(call, asked.by)
    done = await call.service.store.change(msgspec.structs.replace(asked, select=select, by=by))
    return wire.Done.of(done)


# -- upkeep ----------------------------------------------------------------------------------------


@verb(wire.EXPIRED)
async def expired(call: Call, asked: wire.Limit) -> list[Lapsed]:
    """Jobs past their deadlines, with the tokens that lapsed."""
    found = await call.service.store.expired(asked.limit)
    return [msgspec.structs.replace(one, job=encoded(one.job)) for one in found]


@verb(wire.PRUNE)
async def prune(call: Call, asked: wire.Pruning) -> Pruned:
    """Deletes what is past its keeping."""
    bounds.length("events_keep_us", asked.events_keep_us)
    return await call.service.store.prune(asked.limit, asked.events_keep_us)


# -- sight -----------------------------------------------------------------------------------------


@verb(wire.FIND)
async def find(call: Call, asked: Find) -> Page:
    """A page of jobs."""
    bounds.cursor(asked.after)
    select = bounds.selection(call, asked.select)
    page = await call.service.store.find(msgspec.structs.replace(asked, select=select))
    return Page([encoded(job) for job in page.jobs], page.cursor)


@verb(wire.COUNT)
async def count(call: Call, asked: wire.Counting) -> list[Tally]:
    """Counts per queue, group or tenant; a token for some queues sees those."""
    bounds.counted(call, asked.by)
    queues = call.caller.queues
    if asked.by is not ScopeKind.QUEUE or queues is None:
        return await _count(call, asked, recount=False)
    if asked.part is not None:
        queues = tuple(queue for queue in queues if queue == asked.part)
    # One by one: a page of all queues may hold none of these.
    found: list[Tally] = []
    for queue in set(queues):
        found += await _count(call, msgspec.structs.replace(asked, part=queue), recount=False)
    return sorted(found, key=lambda tally: (tally.tenant, tally.queue))[: asked.limit]


@verb(wire.RECOUNT)
async def recount(call: Call, asked: wire.Counting) -> list[Tally]:
    """Counts the jobs themselves, and mends what differs."""
    return await _count(call, asked, recount=True)


async def _count(call: Call, asked: wire.Counting, *, recount: bool) -> list[Tally]:
    if asked.part is not None and asked.part:
        check_name("part", asked.part, max(QUEUE_MAX, GROUP_MAX))
    for name in asked.after or ():
        if name:
            check_name("after", name, max(QUEUE_MAX, GROUP_MAX))
    return await call.service.store.count(
        bounds.one(call, asked.tenant),
        by=asked.by,
        part=asked.part,
        after=asked.after,
        limit=asked.limit,
        recount=recount,
    )


@verb(wire.EXPLAIN)
async def explain(call: Call, asked: Ref) -> Explanation:
    """Every gate that holds a job."""
    ref = bounds.ref(call, asked)
    if call.caller.queues is not None and not await seen(call, [ref]):
        raise JobNotFound(id=ref.id)
    found = await call.service.store.explain(ref)
    return msgspec.structs.replace(
        found,
        gates=found.gates if call.caller.queues is None else unnamed(found.gates),
        tenants=found.tenants if call.caller.tenant is None else None,
    )


@verb(wire.EVENTS)
async def events(call: Call, asked: wire.Reading) -> EventPage:
    """Facts after a cursor."""
    bounds.cursor(asked.after, -1)
    if asked.job_id is not None:
        check_name("job_id", asked.job_id, NAME_MAX)
    page = await call.service.store.events(
        bounds.one(call, asked.tenant), asked.after, asked.limit, asked.job_id
    )
    if call.caller.queues is None:
        return page
    mine = [event for event in page.events if call.caller.may_queue(event.queue)]
    return EventPage(mine, page.cursor, page.lost)


# -- wait ------------------------------------------------------------------------------------------


@verb(wire.WAIT)
async def wait(call: Call, asked: wire.Sleep) -> None:
    """Sleeps until there may be work."""
    watch = msgspec.structs.replace(
        asked.watch,
        tenants=bounds.several(call, asked.watch.tenants),
        queues=bounds.queues(call, asked.watch.queues),
        job=None,
        news=False,
    )
    await _sleep(call, wire.Sleep(watch, asked.timeout_s))


@verb(wire.WATCH)
async def watch(call: Call, asked: wire.Sleep) -> None:
    """Sleeps until a job may have ended, or there may be news."""
    if asked.watch.job is not None:
        ref = bounds.ref(call, asked.watch.job)
        if call.caller.queues is not None and not await seen(call, [ref]):
            raise JobNotFound(id=ref.id)
    elif not asked.watch.news:
        raise InvalidInput(field="watch", why="names no job and no news: that is what wait is for")
    await _sleep(call, asked)


async def _sleep(call: Call, asked: wire.Sleep) -> None:
    """As long as asked, unless the caller leaves or the service goes down."""
    wait_s = min(check_seconds("timeout_s", asked.timeout_s), call.service.limits.wait_s)
    end_s = time.monotonic() + wait_s
    gone, standing = call.gone(), call.standing()
    try:
        while not call.service.closing and not gone.done():
            nap_s = max(0.0, min(NAP_S, end_s - time.monotonic()))
            started = time.monotonic()
            nap = asyncio.ensure_future(call.service.store.wait(asked.watch, nap_s))
            try:
                await asyncio.wait({nap, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                nap.cancel()
                await asyncio.gather(nap, return_exceptions=True)
            if not nap.cancelled():
                nap.result()
            await standing.check()
            now = time.monotonic()
            if now - started < nap_s or now >= end_s:
                return
    finally:
        gone.cancel()
