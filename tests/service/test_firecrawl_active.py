"""The Firecrawl wire: active markers, and what its janitor asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from typing import Any, cast
from urllib.parse import quote

import msgspec
import pytest
from tests.service.firecrawl import CLAIM_S, KINDS, Badges, Bench, badge, benched

from holdfast.core.bounds import EXPIRED_MAX, HOLD_S_MAX
from holdfast.core.errors import StoreUnavailable
from holdfast.core.job import State
from holdfast.core.scope import Scope, ScopeKind, slot_scope_of
from holdfast.dispatch import inner_of
from holdfast.scopes import ScopeHandle
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.firecrawl import mapping, overdue
from holdfast.service.firecrawl.wire import OWNER
from holdfast.store import Find, Ref, Selection, Take
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.contract import builders

MINUTE = 60_000


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with benched(kind=request.param) as found:
        yield found


async def _mark(bench: Bench, job: str, timeout: int = MINUTE, team: str = "team") -> None:
    body = {"teamId": team, "jobId": job, "timeout": timeout}
    assert await bench.ok("POST", "/active/push", body) == {"success": True}


async def _mark_crawl(bench: Bench, job: str, timeout: int = MINUTE, crawl: str = "c") -> None:
    body = {"crawlId": crawl, "jobId": job, "timeout": timeout}
    assert await bench.ok("POST", "/active/crawl/push", body) == {"success": True}


# -- markers ---------------------------------------------------------------------------------------


async def test_a_team_s_markers_are_counted_and_listed_until_their_end(bench: Bench) -> None:
    """Count and list agree at every instant."""
    await _mark(bench, "a/b")
    await _mark(bench, "é ", 2 * MINUTE)
    await _mark(bench, "other", team="other")

    assert await bench.count("/active/count/team") == 2
    assert sorted(await bench.ids("/active/jobs/team")) == ["a/b", "é "]
    bench.clock.advance(61)
    assert await bench.ids("/active/jobs/team") == ["é "]
    assert await bench.count("/active/count/team") == 1
    assert await bench.count("/active/count/nobody") == 0


async def test_pushing_again_renews_and_counts_once(bench: Bench) -> None:
    """The marker is a member of a set."""
    for _ in range(3):
        await _mark(bench, "j")
        bench.clock.advance(40)

    assert await bench.count("/active/count/team") == 1
    bench.clock.advance(21)
    assert await bench.count("/active/count/team") == 0


async def test_a_marker_can_be_removed_by_a_body_on_delete(bench: Bench) -> None:
    """Also one that is not there; the count is never negative."""
    await _mark(bench, "j")
    for id in ("j", "j", "never", "x" * 2000):
        body = {"teamId": "team", "jobId": id}
        assert await bench.ok("DELETE", "/active/remove", body) == {"success": True}
        assert await bench.count("/active/count/team") == 0


@pytest.mark.parametrize("timeout", [0, -5, -(2**63)])
async def test_a_marker_whose_end_is_not_in_the_future_is_none(bench: Bench, timeout: int) -> None:
    """It ends one that stands, as a renewal to the past does."""
    await _mark(bench, "j")
    await _mark(bench, "j", timeout)

    assert await bench.ids("/active/jobs/team") == []


async def test_a_marker_lasts_for_a_month_at_most(bench: Bench) -> None:
    """P15: the largest number of 64 bits is a length too, and is cut to HOLD_S_MAX."""
    await _mark(bench, "j", 2**63 - 1)
    bench.clock.advance(HOLD_S_MAX - 1)
    assert await bench.ids("/active/jobs/team") == ["j"]

    bench.clock.advance(2)

    assert await bench.ids("/active/jobs/team") == []


async def test_a_crawl_s_markers_are_its_own(bench: Bench) -> None:
    """Apart from the teams', and from what says which teams it has."""
    await bench.push("queued", crawl="c")
    await _mark_crawl(bench, "j/1")
    await _mark_crawl(bench, "j/2", 2 * MINUTE)
    await _mark_crawl(bench, "k", crawl="d/e")

    assert sorted(await bench.ids("/active/crawl/jobs/c")) == ["j/1", "j/2"]
    assert await bench.ids("/active/crawl/jobs/d%2Fe") == ["k"]
    assert await bench.ids("/active/crawl/jobs/none") == []
    body = {"crawlId": "c", "jobId": "j/1"}
    assert await bench.ok("DELETE", "/active/crawl/remove", body) == {"success": True}
    assert await bench.ok("DELETE", "/active/crawl/remove", body) == {"success": True}
    assert await bench.ids("/active/crawl/jobs/c") == ["j/2"]
    bench.clock.advance(121)
    assert await bench.ids("/active/crawl/jobs/c") == []


async def test_markers_are_slots_that_limits_can_count(bench: Bench) -> None:
    """A team's markers are its tenant's slots."""
    await _mark(bench, "j")

    [slot] = await ScopeHandle(bench.store, Scope("team")).slots()
    assert slot.id == "j"


# -- cleanup ---------------------------------------------------------------------------------------


async def test_expired_jobs_are_cleaned_a_thousand_at_a_time(bench: Bench) -> None:
    """Of the wire alone; others' are upkeep's."""
    for number in range(1005):
        await bench.push(f"{number}", timeout=1000)
    await bench.push("fresh")
    bench.clock.advance(2)

    assert [await bench.cleaned("expired-jobs") for _ in range(3)] == [1000, 5, 0]
    assert await bench.count("/queue/count/team/team") == 1


async def test_overdue_jobs_of_others_do_not_hide_those_of_the_wire(bench: Bench) -> None:
    """However many stand before, and whoever asks; they are left for upkeep."""
    for tenant, queue in (("other", "mail"), ("team", "mail"), ("other", mapping.QUEUE)):
        first = 0 if queue == "mail" else 5000
        await bench.store.enqueue(
            [
                builders.job(f"{n}", tenant=tenant, queue=queue, ttl_us=500_000)
                for n in range(first, first + EXPIRED_MAX)
            ]
        )
    for number in range(5):
        await bench.push(f"{number}", timeout=1000)
    await bench.push("fresh")
    bench.clock.advance(2)

    own = Badges(badge("team", "team"))
    bench.service._auth = own
    answer = await bench.call("POST", "/cleanup/expired-jobs", b"", badge="team")

    assert answer.json == {"cleaned": 5}
    bench.service._auth = NoAuth()
    assert await bench.count("/queue/count/team/team") == 1
    assert await bench.cleaned("expired-jobs") == EXPIRED_MAX
    left = await bench.store.expired(EXPIRED_MAX)
    assert {one.job.queue for one in left} == {"mail"}


async def test_a_long_queue_is_searched_in_bounded_steps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call goes on where the one before stopped."""
    monkeypatch.setattr(overdue, "WALK_MAX", 10)
    others = [builders.job(f"{n}", queue="mail", ttl_us=500_000) for n in range(EXPIRED_MAX)]
    await bench.store.enqueue(others)
    for number in range(25):
        await bench.push(f"{number}")
    await bench.push("late", timeout=1000)
    bench.clock.advance(2)

    cleaned = [await bench.cleaned("expired-jobs") for _ in range(4)]

    assert cleaned == [0, 0, 1, 0]


async def test_expired_claims_are_freed_and_counted(bench: Bench) -> None:
    """A claim that holds stays."""
    await bench.push("a", crawl="c")
    await bench.push("b")
    await bench.pop()
    bench.clock.advance(CLAIM_S / 2)
    await bench.pop()
    assert await bench.cleaned("orphaned-claims") == 0
    bench.clock.advance(CLAIM_S / 2)

    assert [await bench.cleaned("orphaned-claims") for _ in range(2)] == [1, 0]
    assert await bench.count("/queue/count/crawl/c") == 1
    assert await bench.popped() == "a"


async def test_expired_markers_are_counted_once(bench: Bench) -> None:
    """Of teams and of crawls; not those that were removed or renewed."""
    for job in ("ended", "removed", "renewed"):
        await _mark(bench, job)
    await _mark_crawl(bench, "ended")
    await bench.ok("DELETE", "/active/remove", {"teamId": "team", "jobId": "removed"})
    bench.clock.advance(30)
    await _mark(bench, "renewed")
    bench.clock.advance(31)

    assert [await bench.cleaned("expired-active-jobs") for _ in range(2)] == [2, 0]
    assert await bench.ids("/active/jobs/team") == ["renewed"]


async def test_there_are_no_stale_counters(bench: Bench) -> None:
    """Counts change with what they count; the body may also be missing altogether."""
    assert await bench.cleaned("stale-counters") == 0
    assert (await bench.client.post("/cleanup/stale-counters")).json == {"cleaned": 0}


# -- reconcile -------------------------------------------------------------------------------------


async def test_reconcile_finds_nothing_to_correct(bench: Bench) -> None:
    """Also in unknown teams and crawls."""
    for number in range(70):
        await bench.push(f"{number}", crawl=f"{number % 2}")
    await bench.pop()
    await _mark(bench, "a")
    await _mark_crawl(bench, "a", crawl="0")

    for what in ("team/queue/team", "team/active/team", "crawl/queue/0", "crawl/active/0"):
        assert await bench.correction(what) == 0
        assert await bench.correction(f"{what}-unknown") == 0


RECONCILES = ("team/queue/team", "team/active/team", "crawl/queue/c", "crawl/active/c")


@pytest.mark.parametrize("what", RECONCILES)
async def test_reconcile_under_load_corrects_nothing(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs and markers that come and go while it looks are no drift."""
    async with benched() as bench:
        await bench.push("first", crawl="c")
        store, numbers = bench.store, count()

        async def busy(look: Any, *args: Any, **kwargs: Any) -> Any:
            """One more of everything for as long as somebody looks."""
            name = f"more{next(numbers)}"
            slots = [Take(mapping.team_scope("team").slot(name), name, 10**9)]
            slots += [Take(mapping.active_scope("c").slot(name), OWNER, 10**9)]
            more = msgspec.structs.replace(
                builders.job(name, tenant="team", queue=mapping.QUEUE), group="c"
            )
            await store.enqueue([more])
            await hold(slots)
            try:
                return await look(*args, **kwargs)
            finally:
                await store.cancel([Ref("team", name)])
                await hold([msgspec.structs.replace(one, length_us=0) for one in slots])

        hold = store.hold
        monkeypatch.setattr(store, "find", partial(busy, store.find))
        monkeypatch.setattr(store, "hold", partial(busy, hold))
        assert [await bench.correction(what) for _ in range(3)] == [0, 0, 0]


async def test_reconcile_tells_what_the_store_corrected() -> None:
    """Once: then it is mended."""
    async with benched() as bench:
        await bench.push("j")
        damaged = cast(MemoryStore, inner_of(bench.store))._tables.counts["team", mapping.QUEUE]
        damaged[State.PROCESSING] += 3

        assert await bench.correction("team/queue/team") == 3
        assert await bench.count("/queue/count/team/team") == 1
        assert await bench.correction("team/queue/team") == 0


async def test_reconcile_counts_everything_at_most_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P19: it costs all teams; the janitor asks for each, and a team's own token for none."""
    async with benched(Badges(badge("all", None), badge("one", "team"))) as bench:
        recounts, real = list[bool](), bench.store.count

        async def count(*args: Any, **kwargs: Any) -> Any:
            recounts.append(kwargs.get("recount", False))
            return await real(*args, **kwargs)

        monkeypatch.setattr(bench.store, "count", count)
        for what in RECONCILES:
            await bench.call("POST", f"/reconcile/{what}", b"", badge="one")
        assert sum(recounts) == 0
        for what in RECONCILES:
            await bench.call("POST", f"/reconcile/{what}", b"", badge="all")
        assert sum(recounts) == 1


async def test_reconcile_lists_a_crawl_for_as_long_as_it_has_jobs(bench: Bench) -> None:
    """The next sample has it, or has it no more."""
    await bench.push("j", crawl="c")
    for _ in range(3):
        bench.clock.advance(20 * 3600)
        assert await bench.correction("crawl/queue/c") == 0
    assert await bench.ids("/sample/crawls") == ["c"]

    assert await bench.complete((await bench.pop())["queueKey"])
    await bench.correction("crawl/queue/c")

    assert await bench.ids("/sample/crawls") == []


# -- samples ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["teams", "crawls"])
async def test_samples_go_on_after_the_last_id(bench: Bench, what: str) -> None:
    """A short page is the last; each id comes once, also when the last one is gone meanwhile."""
    names = {f"n/{number:03}" for number in range(120)} | {" odd ", "%"}
    for name in names:
        await bench.push("j", team=name, crawl=name)

    seen: list[str] = []
    after = ""
    while True:
        page = await bench.ids(f"/sample/{what}?limit=25{after}")
        seen += page
        if len(page) < 25:
            break
        after = "&after=" + quote(page[-1], safe="")

    assert sorted(seen) == sorted(names)
    assert len(await bench.ids(f"/sample/{what}")) == 50
    assert await bench.ids(f"/sample/{what}?after=zzz&limit=10") == []
    gone = await bench.ids(f"/sample/{what}?after=n%2F050x&limit=1")
    assert gone == ["n/051"]


async def test_a_team_with_markers_alone_is_sampled(bench: Bench) -> None:
    """Its markers are to be reconciled too."""
    await _mark(bench, "j", team="marked")
    await _mark_crawl(bench, "j", crawl="marked")

    assert await bench.ids("/sample/teams") == ["marked"]
    assert await bench.ids("/sample/crawls") == ["marked"]


# -- health ----------------------------------------------------------------------------------------


async def test_health_says_whether_the_store_answers(bench: Bench) -> None:
    """With 200 in both cases: the client reads the body."""
    assert await bench.ok("GET", "/health") == {"status": "ok", "fdbConnected": True}

    await bench.store.close()

    assert await bench.ok("GET", "/health") == {"status": "degraded", "fdbConnected": False}
    with pytest.raises(StoreUnavailable):
        await bench.store.find(Find(select=Selection(tenant=None)))
    refused = await bench.call("GET", "/queue/count/team/team")
    assert (refused.status, refused.json["code"]) == (503, "STORE_UNAVAILABLE")


def test_no_team_can_have_the_name_of_a_crawls_tenant() -> None:
    """What belongs to crawls is out of every team's reach, its own share of markers too."""
    share = slot_scope_of(mapping.marker_share("team", "c", "j"))
    scopes = [mapping.crawl_scope("c"), mapping.active_scope("c"), share]
    for tenant in [scope.tenant for scope in scopes if scope is not None]:
        assert mapping.team_name(tenant) != tenant
    assert mapping.crawl_scope("c") == Scope(mapping.CRAWLS, ScopeKind.GROUP, "c")
    assert len({scope.tenant for scope in scopes if scope is not None}) == len(scopes)
