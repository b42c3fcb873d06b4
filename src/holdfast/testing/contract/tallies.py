"""Tallies: counts by tenant, queue and group, updated with every change, page by page."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Abandoned, Completed, Failed, Outcome, Snoozed, State
from holdfast.core.scope import TENANT_KINDS, Scope, ScopeKind
from holdfast.store import Act, Tally
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    CRAWL,
    GLOBEX,
    HOUR,
    RETRY_S,
    SCOPES,
    changing,
    group_of,
    job,
    rules,
)
from holdfast.testing.contract.inside import crawl

each_kind = pytest.mark.parametrize("kind", TENANT_KINDS, ids=lambda kind: kind.value)


async def states(bench: Bench, scope: Scope) -> dict[State, int]:
    counts = (await bench.tally(scope)).counts
    return {state: number for state, number in counts.items() if number}


async def counted(bench: Bench, **expected: int) -> None:
    """All three scopes of a job tell the same, counted as they go and counted anew."""
    wanted = {State(name): number for name, number in expected.items()}
    for scope in SCOPES:
        assert await states(bench, scope) == wanted
    for kind in TENANT_KINDS:
        recounted = await bench.store.count(None, by=kind, recount=True)
        assert [tally.correction for tally in recounted] == [0] * len(recounted)
        assert [_counts(tally) for tally in recounted] == ([wanted] if wanted else [])


def _counts(tally: Tally) -> dict[State, int]:
    return {state: number for state, number in tally.counts.items() if number}


async def test_counts_follow_a_job_that_completes(bench: Bench) -> None:
    """P13: enqueue, claim, heartbeat, complete, prune."""
    bench.needs("scopes")
    await crawl(bench, "a")
    await counted(bench, enqueued=1)
    lease = await bench.one()
    await counted(bench, processing=1)
    await bench.extend(lease)
    await counted(bench, processing=1)
    await bench.end(lease, Completed())
    await counted(bench, completed=1)
    bench.clock.advance(3600)
    await bench.store.prune(10, HOUR)
    await counted(bench)


async def test_counts_follow_a_job_that_fails(bench: Bench) -> None:
    """P13: retry, due, claimed again, failed, replayed, deleted."""
    bench.needs("scopes")
    await crawl(bench, "a", rules=rules(max_attempts=2))
    await bench.end(await bench.one(), Failed("boom"))
    await counted(bench, retrying=1)
    bench.clock.advance(RETRY_S)
    await counted(bench, enqueued=1)
    await bench.end(await bench.one(), Failed("boom"))
    await counted(bench, failed=1)
    await bench.store.change(changing(Act.REPLAY, ids=("a",)))
    await counted(bench, failed=1, enqueued=1)
    await bench.store.change(changing(Act.DELETE, ids=("a",)))
    await counted(bench, enqueued=1)


async def test_counts_follow_a_job_that_is_given_back(bench: Bench) -> None:
    """P13: snoozed, due, abandoned, rescheduled, canceled."""
    bench.needs("scopes")
    await crawl(bench, "a")
    await bench.end(await bench.one(), Snoozed(5 * SECOND))
    await counted(bench, scheduled=1)
    bench.clock.advance(5)
    await bench.end(await bench.one(), Abandoned())
    await counted(bench, enqueued=1)
    await bench.store.change(changing(Act.RESCHEDULE, ids=("a",), delay_us=SECOND))
    await counted(bench, scheduled=1)
    await bench.store.change(changing(Act.REPRIORITISE, ids=("a",), priority=3))
    await counted(bench, scheduled=1)
    await bench.cancel("a")
    await counted(bench, canceled=1)


async def test_counts_follow_a_job_whose_worker_died(bench: Bench) -> None:
    """P13: rescued by a claim, rescued by upkeep, failed by upkeep."""
    bench.needs("scopes")
    await crawl(bench, "a")
    await bench.one()
    bench.clock.advance(60)
    await bench.one()
    await counted(bench, processing=1)
    bench.clock.advance(60)
    await bench.upkeep()
    await counted(bench, enqueued=1)
    await bench.one()
    bench.clock.advance(60)
    await bench.upkeep()
    await counted(bench, failed=1)


async def test_counts_follow_jobs_that_are_not_kept(bench: Bench) -> None:
    """P13: what goes at its end leaves nothing behind."""
    bench.needs("scopes")
    await crawl(bench, "a", "b", "c", rules=rules(keep_us=0, keep_failed_us=0))
    first, second, _ = await bench.claim(3)
    await bench.end(first, Completed())
    await bench.end(second, Failed("no", retryable=False))
    await counted(bench, processing=1)
    await bench.cancel("c")
    await counted(bench)


@each_kind
async def test_tallies_come_in_pages(bench: Bench, kind: ScopeKind) -> None:
    """P15: on from a cursor, in order, each once, whatever the size of a page."""
    bench.needs("scopes")
    names = [(tenant, part) for tenant in (GLOBEX, ACME) for part in ("b", "a", "c/d")]
    await bench.add(*(job(part, tenant=t, queue=part, group=part) for t, part in names))
    expected = sorted({(t, "" if kind is ScopeKind.TENANT else part) for t, part in names})

    for limit in (1, 2, 5, PAGE_MAX):
        got: list[tuple[str, str]] = []
        while True:
            after = got[-1] if got else None
            page = await bench.store.count(None, by=kind, after=after, limit=limit)
            got += [(tally.tenant, tally.queue) for tally in page]
            if len(page) < limit:
                break
        assert got == expected


@each_kind
async def test_pages_of_tallies_keep_to_a_tenant(bench: Bench, kind: ScopeKind) -> None:
    """P7: a cursor does not lead out of the tenant."""
    bench.needs("scopes")
    for tenant in (ACME, GLOBEX):
        await crawl(bench, "a", tenant=tenant)

    assert len(await bench.store.count(ACME, by=kind)) == 1
    assert await bench.store.count(ACME, by=kind, after=(ACME, "zzz")) == []
    assert await bench.store.count("unknown", by=kind) == []


@each_kind
@pytest.mark.parametrize("limit", [-1, PAGE_MAX + 1])
async def test_a_page_of_tallies_out_of_bounds_is_refused(
    bench: Bench, kind: ScopeKind, limit: int
) -> None:
    """P15: InvalidInput names the field."""
    bench.needs("scopes")
    with pytest.raises(InvalidInput) as caught:
        await bench.store.count(None, by=kind, limit=limit)

    assert caught.value.facts["field"] == "limit"


async def test_one_scope_can_be_asked_for(bench: Bench) -> None:
    """P15: by its name, without a list of all others."""
    bench.needs("scopes")
    await crawl(bench, "a", "b")
    await crawl(bench, "c", queue=AUDIO)
    await bench.put("d", group="other")

    [tally] = await bench.store.count(ACME, by=ScopeKind.GROUP, part=CRAWL)
    assert (tally.queue, _counts(tally)) == (CRAWL, {State.ENQUEUED: 3})
    [tally] = await bench.store.count(ACME, by=ScopeKind.QUEUE, part=AUDIO)
    assert _counts(tally) == {State.ENQUEUED: 1}
    assert await bench.store.count(ACME, by=ScopeKind.GROUP, part="none") == []


async def test_a_recount_corrects_nothing_under_limits(bench: Bench) -> None:
    """P13: after work of all kinds under a limit the counts are right, and the limit holds."""
    await bench.configure(group_of(), max_running=2)
    await crawl(bench, *(f"j{n}" for n in range(12)))
    for turn in range(4):
        leases = await bench.claim(10)
        assert len(leases) == 2
        outcomes: tuple[Outcome, ...] = (Completed(), Failed("boom", after_us=turn * SECOND))
        for lease, outcome in zip(leases, outcomes, strict=True):
            await bench.end(lease, outcome)
    await bench.claim(1)
    bench.clock.advance(60)
    await bench.claim(1)

    tallies = await bench.store.count(ACME, by=ScopeKind.GROUP, recount=True)

    assert [tally.correction for tally in tallies] == [0]
    assert await bench.running(group_of()) == 1
    assert len(await bench.claim(10)) == 1
