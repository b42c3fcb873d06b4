"""Active markers: the jobs that a team and a crawl are running, each with a time-out."""

from __future__ import annotations

from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.endpoint import Ask
from holdfast.service.firecrawl.shapes import (
    CountOut,
    CrawlMarkIn,
    CrawlUnmarkIn,
    JobIdsOut,
    MarkIn,
    SuccessOut,
    UnmarkIn,
)
from holdfast.service.firecrawl.wire import OWNER
from holdfast.store import Take

LISTED_MAX = 10_000
DONE = SuccessOut(success=True)


async def mark(ask: Ask) -> SuccessOut:
    """Sets the marker of a team's job, or renews it."""
    body: MarkIn = ask.body
    tenant, job = ask.team(body.teamId), mapping.job_name(body.jobId)
    name = mapping.team_scope(tenant).slot(job)
    await ask.wire.mark(tenant, Take(name, job, mapping.marker_us(body.timeout)))
    return DONE


async def unmark(ask: Ask) -> SuccessOut:
    body: UnmarkIn = ask.body
    tenant = ask.team(body.teamId)
    if (job := mapping.known(mapping.job_name, body.jobId)) is not None:
        await ask.wire.mark(tenant, Take(mapping.team_scope(tenant).slot(job), job, 0))
    return DONE


async def count(ask: Ask) -> CountOut:
    tallies = await ask.wire.tally(mapping.team_scope(ask.team(ask.part("team"), "team")))
    return CountOut(count=sum(tally.slots for tally in tallies))


async def jobs(ask: Ask) -> JobIdsOut:
    under = mapping.team_scope(ask.team(ask.part("team"), "team")).slots
    holds = ask.wire.each_hold(under, LISTED_MAX)
    return JobIdsOut(jobIds=[mapping.id_of(hold.name.removeprefix(under)) async for hold in holds])


async def mark_crawl(ask: Ask) -> SuccessOut:
    body: CrawlMarkIn = ask.body
    await _mark_crawl(ask, body.crawlId, mapping.job_name(body.jobId), body.timeout)
    return DONE


async def unmark_crawl(ask: Ask) -> SuccessOut:
    body: CrawlUnmarkIn = ask.body
    if (job := mapping.known(mapping.job_name, body.jobId)) is not None:
        await _mark_crawl(ask, body.crawlId, job, 0)
    return DONE


async def _mark_crawl(ask: Ask, id: str, job: str, timeout_ms: int) -> None:
    """A marker counts against the team of its token. Tokens for all teams share one limit."""
    crawl, own, length = mapping.crawl_name(id), ask.caller.tenant, mapping.marker_us(timeout_ms)
    if own is None:
        await ask.wire.mark(own, Take(mapping.active_scope(crawl).slot(job), OWNER, length))
        return
    if length:
        await ask.wire.list_crawl(crawl, own)
    share, listed = (
        Take(name(own, crawl, job), OWNER, length)
        for name in (mapping.marker_share, mapping.marker_hold)
    )
    await ask.wire.mark(own, share, listed)


async def jobs_of_crawl(ask: Ask) -> JobIdsOut:
    """A token of one team sees the markers set by such tokens. Other tokens see all markers."""
    crawl, own = mapping.crawl_name(ask.part("crawl"), "crawl"), ask.caller.tenant
    found: dict[str, None] = {}
    if own is None:
        under = mapping.active_scope(crawl).slots
        async for hold in ask.wire.each_hold(under, LISTED_MAX):
            found[mapping.id_of(hold.name.removeprefix(under))] = None
    async for hold in ask.wire.each_hold(mapping.markers_under(crawl, own), LISTED_MAX):
        found[mapping.marked_job(hold.name, crawl)] = None
    return JobIdsOut(jobIds=list(found)[:LISTED_MAX])
