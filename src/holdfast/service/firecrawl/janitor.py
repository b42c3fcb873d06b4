"""What Firecrawl's janitor asks for: cleanups, reconciles, and samples of teams and crawls.

Upkeep does most of this by itself, so these routes seldom find anything. Each does a bounded step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.clock import Micros
from holdfast.errors import HoldfastError
from holdfast.limits import PAGE_MAX, SLOTS_MAX
from holdfast.scope import Scope, ScopeKind
from holdfast.scopes import ALIVE, recount
from holdfast.service.api.system import READY_S
from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.endpoint import Ask
from holdfast.service.firecrawl.mapping import CRAWLS, QUEUE
from holdfast.service.firecrawl.overdue import Overdue, end_overdue
from holdfast.service.firecrawl.pages import PAGE_BYTES, alive_jobs, size_of
from holdfast.service.firecrawl.shapes import CleanedOut, CorrectionOut, HealthOut, IdsOut
from holdfast.service.firecrawl.wire import OWNER, Wire
from holdfast.store import Selection, Store, Take, Tally

JOBS, CLAIMS = Overdue(claims=False), Overdue(claims=True)
MARKERS_MAX = 1000
"""Markers of one cleanup."""
RECOUNTED_MAX = 5000
"""Jobs that one reconcile counts; a team or crawl with more is left to upkeep's own recount."""
SAMPLE_DEFAULT, SAMPLE_MAX = 50, 100_000
CLOCK = "firecrawl/clock"
EVENTS_KEEP_US: Micros = 2**52


async def health(ask: Ask) -> HealthOut:
    """200 also when the store does not answer."""
    try:
        async with asyncio.timeout(READY_S):
            await ask.wire.store.settings(under="holdfast/ready", limit=1)
    except (HoldfastError, TimeoutError):
        return HealthOut(status="degraded", fdbConnected=False)
    return HealthOut(status="ok", fdbConnected=True)


# -- cleanup ---------------------------------------------------------------------------------------


async def expired_jobs(ask: Ask) -> CleanedOut:
    """Jobs that waited past their time."""
    return CleanedOut(cleaned=await end_overdue(ask.wire, ask.caller.tenant, JOBS))


async def orphaned_claims(ask: Ask) -> CleanedOut:
    """Claims past their time: their jobs can be popped again."""
    return CleanedOut(cleaned=await end_overdue(ask.wire, ask.caller.tenant, CLAIMS))


async def expired_markers(ask: Ask) -> CleanedOut:
    """Markers end by themselves; this drops what the store still keeps of them, and tells how many
    of those that this process set have ended since the last call.
    """
    store, own = ask.wire.store, ask.caller.tenant
    [hold] = await store.hold([Take(CLOCK, OWNER, 1)])  # By the store's clock, not by ours.
    if own is None:
        await store.prune(MARKERS_MAX, EVENTS_KEEP_US)
    return CleanedOut(cleaned=ask.wire.lapsed(own, hold.until - 1, MARKERS_MAX))


async def stale_counters(ask: Ask) -> CleanedOut:
    """There are none: counts change in the step that changes what they count."""
    return CleanedOut(cleaned=0)


# -- reconcile -------------------------------------------------------------------------------------


async def team_queue(ask: Ask) -> CorrectionOut:
    wire, tenant = ask.wire, ask.team(ask.part("team"), "team")
    scope = Scope(tenant, ScopeKind.QUEUE, QUEUE)

    async def counted() -> int:
        return mapping.alive(await wire.tally(scope))

    async def actual() -> int | None:
        return await _walked(wire, [Selection(tenant=tenant, queues=(QUEUE,), states=ALIVE)])

    return CorrectionOut(correction=await _correction(wire.store, counted, actual))


async def crawl_queue(ask: Ask) -> CorrectionOut:
    """Also lists the crawl for longer if it has jobs, and no more if it has none."""
    wire, own = ask.wire, ask.caller.tenant
    crawl = mapping.crawl_name(ask.part("crawl"), "crawl")
    tallies = await wire.crawl_tallies(crawl, own)
    if mapping.alive(tallies):
        await wire.renew_crawl(crawl, [tally.tenant for tally in tallies])
    elif own is None:
        await wire.drop_crawl(crawl, await wire.crawl_teams(crawl))

    async def counted() -> int:
        return mapping.alive(await wire.crawl_tallies(crawl, own))

    async def actual() -> int | None:
        return await _walked(
            wire,
            [Selection(tenant=one.tenant, groups=(crawl,), states=ALIVE) for one in tallies],
        )

    return CorrectionOut(correction=await _correction(wire.store, counted, actual))


async def team_active(ask: Ask) -> CorrectionOut:
    scope = mapping.team_scope(ask.team(ask.part("team"), "team"))
    return CorrectionOut(correction=await _slots_correction(ask.wire, scope))


async def crawl_active(ask: Ask) -> CorrectionOut:
    scope = mapping.crawl_scope(mapping.crawl_name(ask.part("crawl"), "crawl"))
    return CorrectionOut(correction=await _slots_correction(ask.wire, scope))


async def _slots_correction(wire: Wire, scope: Scope) -> int:
    async def counted() -> int:
        return sum(tally.slots for tally in await wire.tally(scope))

    async def actual() -> int | None:
        return len([hold async for hold in wire.each_hold(scope.slots, SLOTS_MAX)])

    return await _correction(wire.store, counted, actual)


async def _correction(
    store: Store, counted: Callable[[], Awaitable[int]], actual: Callable[[], Awaitable[int | None]]
) -> int:
    """Actual minus counter, and the counter mended. Only a counter that stood still while it was
    checked, twice, can be said to be wrong; a busy one is left for the next time.
    """
    before, correction = await counted(), 0
    for _ in range(2):
        found = await actual()
        if found is None or found == before or await counted() != before:
            return 0
        correction = found - before
    await recount(store)
    return correction


async def _walked(wire: Wire, selections: list[Selection]) -> int | None:
    """How many jobs there are; None when that is too many to count here."""
    number = size = 0
    for select in selections:
        async for job in alive_jobs(wire.store, select, RECOUNTED_MAX + 1 - number):
            number, size = number + 1, size + size_of(job)
            if number > RECOUNTED_MAX or size > PAGE_BYTES:
                return None
    return number


# -- samples ---------------------------------------------------------------------------------------


async def teams(ask: Ask) -> IdsOut:
    """Teams that have jobs or markers, in a stable order, on from `after`."""
    after = ask.request.query_params.get("after")
    start = ("", "") if not after else (mapping.team_name(after, "after"), "")
    return await _sampled(ask, ScopeKind.TENANT, ask.caller.tenant, start)


async def crawls(ask: Ask) -> IdsOut:
    """Crawls that were pushed to of late, or have markers; of a team, those that have jobs."""
    after = ask.request.query_params.get("after")
    tenant = ask.caller.tenant or CRAWLS
    start = (tenant, "" if not after else mapping.crawl_name(after, "after"))
    return await _sampled(ask, ScopeKind.GROUP, tenant, start)


async def _sampled(ask: Ask, by: ScopeKind, tenant: str | None, start: tuple[str, str]) -> IdsOut:
    limit = ask.number("limit", SAMPLE_DEFAULT, SAMPLE_MAX)
    found: list[Tally] = []
    while len(found) < limit:
        wanted = min(PAGE_MAX, limit - len(found))
        page = await ask.wire.store.count(tenant, by=by, after=start, limit=wanted)
        found += page
        if len(page) < wanted:
            break
        start = (page[-1].tenant, page[-1].queue)
    names = (one.tenant if by is ScopeKind.TENANT else one.queue for one in found)
    return IdsOut(ids=[mapping.id_of(name) for name in names])
