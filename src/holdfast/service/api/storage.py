"""The verbs of the contract for the remote store: decode, check rights, call, encode.

Other languages use the native API instead. `stores/remote/wire.py` defines the shapes, versioned by
its FORMAT; `permissions.py` says what a caller may name. The rules are:

- For a caller of one tenant, a missing tenant means its own. It may name no other.
- A token for some queues enqueues, claims, finds, counts, sets and holds slots only there; jobs in
  other queues are not found. It may read the limits of its tenant, because these limit its jobs. A
  token for some types enqueues only those, and never gets a job of another type.
- An ack contains the secret token of a lease, which the store checks, so the right work is enough.
  An ack without a token, or because of a passed deadline, belongs to the upkeep and needs the right
  admin.
- Workers hold `worker/<name>` while they run. The names of one tenant's workers contain the tenant,
  and their notes say that they serve only this tenant.
- What the platform set for a tenant can be changed only with the right platform (`ceiling.py`). The
  scopes of the platform, which have no tenant, can be read and changed only with that right. Their
  events are read by tokens for every tenant.
- The hold `upkeep` elects the process that does the upkeep of all tenants. A caller without the
  right is told who leads, and never leads itself.
- All other names are for admins of every tenant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from starlette.responses import Response

from holdfast.core.bounds import WAIT_S_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.check import check_seconds
from holdfast.core.errors import BatchRefused, InvalidInput, JobNotFound, PayloadTooLarge
from holdfast.core.job import Lease, NewJob, Released
from holdfast.core.journal import Signaled
from holdfast.core.lifecycle import Transition, decide
from holdfast.core.scope import Explanation, ScopeKind
from holdfast.explain import told
from holdfast.service.api import permissions
from holdfast.service.api.hiding import addressable, hidden, joinable, seen
from holdfast.service.api.journals import running
from holdfast.service.api.verbs import encoded, encoded_lease, verb
from holdfast.service.aside import EDGE_COST, aside
from holdfast.service.call import Call
from holdfast.service.rights import Unauthenticated
from holdfast.store import (
    Acked,
    Canceled,
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
"""How long a wait sleeps before it checks whether the service is stopping."""
WRONG_TYPE_US = 5_000_000
"""How long a job is delayed that was claimed by a token for other types."""


# -- life ------------------------------------------------------------------------------------------


async def hello(call: Call) -> Response:
    """The capabilities of the store, and the identity of the caller."""
    service, known = call.service, None
    with suppress(Unauthenticated):  # Without a token, a caller may ask too, but is not known.
        who = await service.caller(call.request)
        known = wire.KnownCaller(name=who.name, tenant=who.tenant, rights=(*sorted(who.rights),))
    told = wire.Hello(
        format=wire.FORMAT,
        capabilities=_capabilities(call),
        body_max=service.limits.body_max,
        wait_s=min(service.limits.wait_s, WAIT_S_MAX),
        caller=known,
    )
    return Response(wire.encode(told), media_type=MEDIA)


def _capabilities(call: Call) -> Capabilities:
    """The capabilities of the store, as seen through the service."""
    return msgspec.structs.replace(
        call.service.store.capabilities,
        shared=True,
        encodes=True,
        transactional_enqueue=False,
        transactional_ack=False,
        payload_max=call.service.payload_max,
    )


# -- enqueue, claim, extend, ack -------------------------------------------------------------------


@verb(wire.ENQUEUE)
async def enqueue(call: Call, asked: wire.NewJobs) -> list[Enqueued]:
    """Enqueues jobs. Each has its own answer."""
    jobs = asked.jobs
    size = sum(len(job.envelope.body) for job in jobs if isinstance(job.envelope.body, bytes))
    size += sum(len(job.edges) for job in jobs) * EDGE_COST
    jobs = await aside(size, lambda: [permissions.new_job(call, job) for job in jobs])
    await joinable(call, jobs)
    if len(jobs) == 1 and (large := _too_large(call, jobs[0])) is None:
        return [await call.service.enqueued(jobs[0])]  # Shares a batch with other callers.
    refused = {n: large for n, job in enumerate(jobs) if (large := _too_large(call, job))}
    if asked.whole and refused:
        whys = [refused.get(n) or BatchRefused(id=job.id) for n, job in enumerate(jobs)]
        return [Enqueued(job.id, False, why) for job, why in zip(jobs, whys, strict=True)]
    fitting = [job for n, job in enumerate(jobs) if n not in refused]
    store = call.service.store
    kept = iter(await store.enqueue(fitting, whole=asked.whole) if fitting else ())
    return [
        Enqueued(job.id, False, refused[n]) if n in refused else next(kept)
        for n, job in enumerate(jobs)
    ]


def _too_large(call: Call, job: NewJob) -> PayloadTooLarge | None:
    size, most = len(job.envelope.body), call.service.payload_most(job.envelope)
    return PayloadTooLarge(field="payload", size=size, max=most) if size > most else None


@verb(wire.CLAIM)
async def claim(call: Call, wish: Claim) -> list[Lease]:
    """Leases jobs. If the caller has disconnected, the leases are released at once, unless the
    claim is repeated meanwhile: then the second answer contains the leases.
    """
    wish = permissions.claim(call, wish)
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
    mine = [lease for lease in leases if permissions.may_lease(call, lease)]
    if len(mine) < len(leases):
        others = (lease for lease in leases if not permissions.may_lease(call, lease))
        await _give_back(call, [*others], WRONG_TYPE_US)
    return [encoded_lease(lease) for lease in mine]


async def _give_back(call: Call, leases: Sequence[Lease], delay_us: int) -> None:
    released = Released(delay_us)
    if leases:
        await call.service.store.ack([decide(released, one.job, one.token, 0.0) for one in leases])


@verb(wire.EXTEND)
async def extend(call: Call, extensions: list[Extension]) -> list[Extended]:
    """Renews leases."""
    size = sum(len(one.entries) for one in extensions) * EDGE_COST
    extensions = await aside(size, lambda: [permissions.extension(call, one) for one in extensions])
    if len(extensions) == 1:
        answers = [await call.service.extends.submit(extensions[0])]
    else:
        answers = await call.service.store.extend(extensions)
    return await hidden(call, [Ref(one.tenant, one.id) for one in extensions], answers)


@verb(wire.ACK)
async def ack(call: Call, changes: list[Transition]) -> list[Acked]:
    """Settles leases by their tokens."""
    size = sum(len(one.entries) for one in changes) * EDGE_COST
    changes = await aside(
        size, lambda: [permissions.transition(call, one, upkeep=False) for one in changes]
    )
    await permissions.results(call, changes)
    if len(changes) == 1:
        answers = [await call.service.acks.submit(await call.service.ready_ack(changes[0]))]
    else:
        answers = await call.service.store.ack(changes)
    return await hidden(call, [Ref(one.tenant, one.id) for one in changes], answers)


@verb(wire.REMEMBERED)
async def remembered(call: Call, asked: Ref) -> wire.FoundPage:
    """A running job with its journal, for the worker whose lease has left it out."""
    return _told(await running(call, permissions.ref(call, asked)))


@verb(wire.LAPSE)
async def lapse(call: Call, changes: list[Transition]) -> list[Acked]:
    """Settles expired leases: the ack of the upkeep."""
    changes = [permissions.transition(call, one, upkeep=True) for one in changes]
    await permissions.results(call, changes)
    return await call.service.store.ack(changes)


# -- signal, cancel and change ---------------------------------------------------------------------


@verb(wire.SIGNAL)
async def signal(call: Call, asked: wire.Signals) -> list[Signaled]:
    """Sends values to jobs. Each has its own answer."""
    signals = [permissions.signal(call, one) for one in asked.signals]
    by = permissions.signed(call, asked.by)
    refs = [Ref(one.tenant, one.id) for one in signals]
    mine = await addressable(call, refs)
    sent = [one for one, ref in zip(signals, refs, strict=True) if mine is None or ref in mine]
    answers = iter(await call.service.store.signal(sent, by=by) if sent else ())
    return [
        next(answers)
        if mine is None or ref in mine
        else Signaled(ref.id, False, JobNotFound(id=ref.id))
        for ref in refs
    ]


@verb(wire.CANCEL)
async def cancel(call: Call, asked: wire.Refs) -> list[Canceled]:
    """Cancels jobs that are not finished."""
    refs = [permissions.ref(call, one) for one in asked.refs]
    by = permissions.signed(call, asked.by)
    if call.caller.queues is None:
        return await call.service.store.cancel(refs, by=by)
    mine = await seen(call, refs)
    answers = iter(await call.service.store.cancel([one for one in refs if one in mine], by=by))
    return [
        next(answers) if one in mine else Canceled(one.id, False, JobNotFound(id=one.id))
        for one in refs
    ]


@verb(wire.CHANGE)
async def change(call: Call, asked: Change) -> wire.ChangedPairs:
    """Does one step of a change to selected jobs."""
    select = permissions.selection(call, asked.select)
    by = permissions.signed(call, asked.by)
    done = await call.service.store.change(msgspec.structs.replace(asked, select=select, by=by))
    return wire.ChangedPairs.of(done)


# -- expired, prune --------------------------------------------------------------------------------


@verb(wire.EXPIRED)
async def expired(call: Call, asked: wire.Limit) -> list[Lapsed]:
    """Jobs past their deadlines, with their expired tokens."""
    found = await call.service.store.expired(asked.limit)
    return [msgspec.structs.replace(one, job=encoded(one.job)) for one in found]


@verb(wire.PRUNE)
async def prune(call: Call, asked: wire.Pruning) -> Pruned:
    """Deletes records and events past their retention."""
    return await call.service.store.prune(asked.limit, asked.events_keep_us)


# -- find, count, explain, events ------------------------------------------------------------------


@verb(wire.FIND)
async def find(call: Call, asked: Find) -> wire.FoundPage:
    """A page of jobs."""
    select = permissions.selection(call, asked.select)
    return _told(await call.service.store.find(msgspec.structs.replace(asked, select=select)))


def _told(page: Page) -> wire.FoundPage:
    return wire.FoundPage.of(msgspec.structs.replace(page, jobs=[*map(encoded, page.jobs)]))


@verb(wire.COUNT)
async def count(call: Call, asked: wire.Counting) -> list[Tally]:
    """Counts per queue, group or tenant; a token for some queues sees only those."""
    permissions.counted(call, asked.by, asked.tenant)
    queues = call.caller.queues
    if asked.by is not ScopeKind.QUEUE or queues is None:
        return await _count(call, asked, recount=False)
    if asked.part is not None:
        queues = tuple(queue for queue in queues if queue == asked.part)
    # One by one, because a page of all queues may contain none of these.
    found: list[Tally] = []
    for queue in set(queues):
        found += await _count(call, msgspec.structs.replace(asked, part=queue), recount=False)
    return sorted(found, key=lambda tally: (tally.tenant, tally.queue))[: asked.limit]


@verb(wire.RECOUNT)
async def recount(call: Call, asked: wire.Counting) -> list[Tally]:
    """Recounts the jobs and corrects the counts."""
    return await _count(call, asked, recount=True)


async def _count(call: Call, asked: wire.Counting, *, recount: bool) -> list[Tally]:
    return await call.service.store.count(
        permissions.one(call, asked.tenant),
        by=asked.by,
        part=asked.part,
        after=asked.after,
        limit=asked.limit,
        recount=recount,
    )


@verb(wire.EXPLAIN)
async def explain(call: Call, asked: Ref) -> Explanation:
    """Every blocker of a job."""
    ref = permissions.ref(call, asked)
    if call.caller.queues is not None and not await seen(call, [ref]):
        raise JobNotFound(id=ref.id)
    found = await call.service.store.explain(ref)
    return msgspec.structs.replace(
        found,
        gates=told(found.gates, call.reader),
        tenants=found.tenants if call.caller.tenant is None else None,
    )


@verb(wire.EVENTS)
async def events(call: Call, asked: wire.Reading) -> EventPage:
    """The events after a cursor."""
    page = await call.service.store.events(
        permissions.one(call, asked.tenant), asked.after, asked.limit, asked.job_id
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
        tenants=permissions.several(call, asked.watch.tenants),
        queues=permissions.queues(call, asked.watch.queues),
        job=None,
        news=False,
    )
    await _sleep(call, wire.Sleep(watch, asked.timeout_s))


@verb(wire.WATCH)
async def watch(call: Call, asked: wire.Sleep) -> None:
    """Sleeps until a job may have ended, or something may have changed."""
    if asked.watch.job is not None:
        ref = permissions.ref(call, asked.watch.job)
        if call.caller.queues is not None and not await seen(call, [ref]):
            raise JobNotFound(id=ref.id)
    elif not asked.watch.news:
        raise InvalidInput(field="watch", why="names neither a job nor changes; use wait")
    await _sleep(call, asked)


async def _sleep(call: Call, asked: wire.Sleep) -> None:
    """Waits as long as requested, unless the caller disconnects or the service stops."""
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
