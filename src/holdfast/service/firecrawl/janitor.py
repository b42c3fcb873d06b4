"""The routes of Firecrawl's janitor: cleanups, reconciles, and samples of teams and crawls.

The upkeep does most of this anyway, so these routes seldom find anything. Each does a bounded step.
"""

from __future__ import annotations

import asyncio

from holdfast.arguments import DELAY_MAX
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import HoldfastError
from holdfast.core.scope import ScopeKind
from holdfast.service.api.system import READY_S
from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.endpoint import Ask
from holdfast.service.firecrawl.mapping import ACTIVE, CRAWLS
from holdfast.service.firecrawl.overdue import Overdue, end_overdue
from holdfast.service.firecrawl.shapes import CleanedOut, CorrectionOut, HealthOut, IdsOut
from holdfast.store import Tally

JOBS, CLAIMS = Overdue(claims=False), Overdue(claims=True)
MARKERS_MAX = 1000
"""Maximum markers of one cleanup."""
SAMPLE_DEFAULT, SAMPLE_MAX = 50, 100_000
EVENTS_KEEP_US: Micros = DELAY_MAX
"""A hundred years: a cleanup of markers deletes no event."""


async def health(ask: Ask) -> HealthOut:
    """Answers 200 even if the store does not answer."""
    try:
        async with asyncio.timeout(READY_S):
            await ask.wire.store.settings(under="holdfast/ready", limit=1)
    except (HoldfastError, TimeoutError):
        return HealthOut(status="degraded", fdbConnected=False)
    return HealthOut(status="ok", fdbConnected=True)


# -- cleanup ---------------------------------------------------------------------------------------


async def expired_jobs(ask: Ask) -> CleanedOut:
    """Removes jobs that waited past their time-out."""
    return CleanedOut(cleaned=await end_overdue(ask.wire, ask.caller.tenant, JOBS))


async def orphaned_claims(ask: Ask) -> CleanedOut:
    """Ends claims past their time, so that their jobs can be popped again."""
    return CleanedOut(cleaned=await end_overdue(ask.wire, ask.caller.tenant, CLAIMS))


async def expired_markers(ask: Ask) -> CleanedOut:
    """Markers end by themselves. This deletes their remains in the store, and returns how many of
    the markers that this process set have ended since the last call.
    """
    own, now = ask.caller.tenant, await ask.wire.now()
    if own is None:
        await ask.wire.store.prune(MARKERS_MAX, EVENTS_KEEP_US)
    return CleanedOut(cleaned=ask.wire.lapsed(own, now, MARKERS_MAX))


async def stale_counters(ask: Ask) -> CleanedOut:
    """There are no stale counters: counts change in the same step as the jobs."""
    return CleanedOut(cleaned=0)


# -- reconcile -------------------------------------------------------------------------------------


async def team_queue(ask: Ask) -> CorrectionOut:
    ask.team(ask.part("team"), "team")
    return await _corrected(ask)


async def crawl_queue(ask: Ask) -> CorrectionOut:
    """Recounts a crawl. Also keeps it listed if it has jobs, and removes it if it has none."""
    wire, own = ask.wire, ask.caller.tenant
    crawl = mapping.crawl_name(ask.part("crawl"), "crawl")
    tallies = await wire.crawl_tallies(crawl, own)
    if mapping.alive(tallies):
        await wire.renew_crawl(crawl, [tally.tenant for tally in tallies])
    elif own is None:
        await wire.drop_crawl(crawl, await wire.crawl_teams(crawl))
    return await _corrected(ask)


async def team_active(ask: Ask) -> CorrectionOut:
    ask.team(ask.part("team"), "team")
    return await _corrected(ask)


async def crawl_active(ask: Ask) -> CorrectionOut:
    mapping.crawl_name(ask.part("crawl"), "crawl")
    return await _corrected(ask)


async def _corrected(ask: Ask) -> CorrectionOut:
    """The correction that the store made in one atomic step; two reads would differ under load. It
    counts everything, so it is left to the upkeep for a token of one team.
    """
    whole = ask.caller.tenant is None
    return CorrectionOut(correction=await ask.wire.recounted() if whole else 0)


# -- samples ---------------------------------------------------------------------------------------


async def teams(ask: Ask) -> IdsOut:
    """Teams with jobs or markers, in a stable order, starting after `after`."""
    after = ask.request.query_params.get("after")
    start = ("", "") if not after else (mapping.team_name(after, "after"), "")
    found = await _sampled(ask, ScopeKind.TENANT, ask.caller.tenant, start)
    return IdsOut(ids=[mapping.id_of(one.tenant) for one in found])


async def crawls(ask: Ask) -> IdsOut:
    """Crawls with recent pushes or markers; for a team, those with jobs."""
    after = ask.request.query_params.get("after")
    own, names = ask.caller.tenant, set[str]()
    for tenant in (CRAWLS, ACTIVE) if own is None else (own,):
        start = (tenant, "" if not after else mapping.crawl_name(after, "after"))
        names |= {one.queue for one in await _sampled(ask, ScopeKind.GROUP, tenant, start)}
    return IdsOut(ids=[mapping.id_of(name) for name in sorted(names)[: _limit(ask)]])


def _limit(ask: Ask) -> int:
    return ask.number("limit", SAMPLE_DEFAULT, SAMPLE_MAX)


async def _sampled(
    ask: Ask, by: ScopeKind, tenant: str | None, start: tuple[str, str]
) -> list[Tally]:
    limit = _limit(ask)
    found: list[Tally] = []
    while len(found) < limit:
        wanted = min(PAGE_MAX, limit - len(found))
        page = await ask.wire.store.count(tenant, by=by, after=start, limit=wanted)
        found += page
        if len(page) < wanted:
            break
        start = (page[-1].tenant, page[-1].queue)
    return found
