"""The Firecrawl wire: no team's markers or overdue jobs stand in the way of another's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.service.firecrawl import CLAIM_S, Badges, Bench, badge, benched

from holdfast.core import bounds
from holdfast.core.bounds import EXPIRED_MAX, GROUP_MAX, TENANT_MAX
from holdfast.service.firecrawl import mapping, overdue
from holdfast.testing.contract import builders

FEW = 3
MONTH_MS = 31 * 24 * 3600 * 1000


@pytest.fixture
async def bench(kind: str) -> AsyncIterator[Bench]:
    callers = (badge("greedy", "greedy"), badge("modest", "modest"), badge("all", None))
    async with benched(Badges(*callers), kind=kind) as found:
        yield found


async def _ok(bench: Bench, who: str, way: str, body: Any = None) -> Any:
    """What a call that must work gives; `way` is method and path."""
    method, path = way.split()
    answer = await bench.call(method, path, body, badge=who)
    assert answer.status == 200, answer
    return answer.json


async def _mark(bench: Bench, who: str, crawl: str, job: str, timeout: int = 60_000) -> int:
    """The status of the answer."""
    body = {"crawlId": crawl, "jobId": job, "timeout": timeout}
    return (await bench.call("POST", "/active/crawl/push", body, badge=who)).status


async def _marked(bench: Bench, who: str, crawl: str = "c") -> list[str]:
    return sorted((await _ok(bench, who, f"GET /active/crawl/jobs/{crawl}"))["jobIds"])


async def _push(bench: Bench, team: str, id: str, crawl: str | None = None) -> None:
    job = {"id": id, "data": 1, "priority": 0, "listenable": False}
    await _ok(bench, team, "POST /queue/push", {"teamId": team, "job": job, "crawlId": crawl})


async def _pop(bench: Bench, team: str) -> Any:
    return await _ok(bench, team, f"POST /queue/pop/{team}", {"workerId": "w"})


# -- markers of crawls -----------------------------------------------------------------------------


async def test_a_team_that_sets_many_crawl_markers_fills_its_own_share_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: a marker counts against the team whose token sets it."""
    monkeypatch.setattr(bounds, "SLOTS_MAX", FEW)
    greedy = [await _mark(bench, "greedy", f"crawl-{n}", f"j{n}") for n in range(2 * FEW)]

    others = [await _mark(bench, who, "c", f"of {who}") for who in ("modest", "all")]

    assert greedy == [200] * FEW + [409] * FEW
    assert others == [200, 200]
    assert await _marked(bench, "modest") == ["of modest"]
    assert await _marked(bench, "all") == ["of all", "of modest"]
    assert await _marked(bench, "all", "crawl-0") == ["j0"]
    assert await _marked(bench, "all", f"crawl-{FEW}") == []


async def test_a_team_that_pushes_many_crawls_leaves_room_for_markers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: the list of crawls and the markers of service tokens do not share a limit."""
    monkeypatch.setattr(bounds, "SLOTS_MAX", FEW)
    for number in range(2 * FEW):
        await _push(bench, "greedy", f"j{number}", f"crawl-{number}")

    statuses = [await _mark(bench, who, "c", f"of {who}") for who in ("modest", "all")]

    assert statuses == [200, 200]
    assert await _marked(bench, "all") == ["of all", "of modest"]


async def test_a_removed_crawl_marker_gives_its_place_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the list that tokens for all teams see; renewing takes no second place."""
    monkeypatch.setattr(bounds, "SLOTS_MAX", 1)
    for job in ("a", "b"):
        assert [await _mark(bench, "modest", "c", job) for _ in range(2)] == [200, 200]
        assert await _marked(bench, "all") == [job]
        body = {"crawlId": "c", "jobId": job}
        await _ok(bench, "modest", "DELETE /active/crawl/remove", body)
        assert await _marked(bench, "all") == await _marked(bench, "modest") == []


async def test_a_long_crawl_marker_is_seen_by_all_until_its_end(bench: Bench) -> None:
    """Longer than a crawl is listed after a push."""
    await _mark(bench, "modest", "c", "j", MONTH_MS)

    bench.clock.advance(30 * 24 * 3600)
    assert await _marked(bench, "all") == await _marked(bench, "modest") == ["j"]

    bench.clock.advance(24 * 3600)
    assert await _marked(bench, "all") == await _marked(bench, "modest") == []


async def test_a_crawl_with_a_team_s_marker_alone_is_sampled(bench: Bench) -> None:
    """For tokens of all teams, beside those that were pushed to and those they marked."""
    await _mark(bench, "modest", "b", "j")
    await _mark(bench, "all", "a", "j")
    await _push(bench, "greedy", "j", "c")

    sampled = [(await _ok(bench, "all", f"GET /sample/crawls?{q}"))["ids"]
               for q in ("", "limit=2", "after=a", "after=b&limit=1")]  # fmt: skip

    assert sampled == [["a", "b", "c"], ["a", "b"], ["b", "c"], ["c"]]


async def test_a_crawl_marker_takes_no_place_among_the_team_s_own(bench: Bench) -> None:
    """Active jobs of a team and of its crawls are counted and listed apart."""
    await _mark(bench, "modest", "c", "of the crawl")

    assert await _ok(bench, "modest", "GET /active/count/modest") == {"count": 0}
    assert await _ok(bench, "all", "GET /active/jobs/modest") == {"jobIds": []}


@pytest.mark.parametrize("letter", ["x", "😀"])
async def test_the_longest_ids_can_be_marked_and_claimed(kind: str, letter: str) -> None:
    """Their holds have names that a store takes, whoever sets them."""
    team, crawl, job = letter * TENANT_MAX, letter * GROUP_MAX, letter * mapping.JOB_MAX
    async with benched(Badges(badge("own", team), badge("all", None)), kind=kind) as bench:
        assert [await _mark(bench, who, crawl, job) for who in ("own", "all")] == [200, 200]
        path = f"/active/crawl/jobs/{quote(crawl)}"
        for who in ("own", "all"):
            assert await _ok(bench, who, f"GET {path}") == {"jobIds": [job]}
        pushed = {"id": job, "data": 1, "priority": 0, "listenable": False}
        body = {"teamId": team, "job": pushed, "crawlId": crawl}
        await _ok(bench, "own", "POST /queue/push", body)
        for _ in range(2):
            found = await _ok(bench, "own", f"POST /queue/pop/{quote(team)}", {"workerId": "w"})
            assert found["job"]["id"] == job
            await _ok(bench, "all", "POST /queue/release", {"jobId": job})


# -- claims ----------------------------------------------------------------------------------------


async def _overdue_mail(bench: Bench) -> None:
    """Jobs that are nobody's of the wire, and will be overdue first."""
    mail = [builders.job(f"{n}", queue="mail", ttl_us=500_000) for n in range(EXPIRED_MAX)]
    await bench.store.enqueue(mail)


async def test_overdue_jobs_of_others_do_not_hide_claims_past_their_time(bench: Bench) -> None:
    """However many stand before, and whoever asks; a claim that holds stays."""
    await _overdue_mail(bench)
    for team, number in (("greedy", 1), ("modest", 3)):
        for n in range(number + 1):
            await _push(bench, team, f"{n}")
        for _ in range(number):
            await _pop(bench, team)
    bench.clock.advance(CLAIM_S / 2)
    held = await _pop(bench, "modest")
    bench.clock.advance(CLAIM_S / 2)

    cleaned = [
        (await _ok(bench, who, "POST /cleanup/orphaned-claims", b""))["cleaned"]
        for who in ("modest", "modest", "all", "all")
    ]

    assert cleaned == [3, 0, 1, 0]
    assert len(await bench.store.expired(EXPIRED_MAX)) == EXPIRED_MAX
    done = await _ok(bench, "modest", "POST /queue/complete", {"queueKey": held["queueKey"]})
    assert done == {"success": True}


async def test_many_claims_are_searched_in_bounded_steps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call goes on where the one before stopped, and looks at no more jobs than it may."""
    monkeypatch.setattr(overdue, "WALK_MAX", 2)
    await _overdue_mail(bench)
    for number in range(5):
        await _push(bench, "modest", f"{number}")
        await _pop(bench, "modest")
    for number in range(4):  # They come before the last, and are claimed anew.
        await _ok(bench, "modest", "POST /queue/release", {"jobId": f"{number}"})
    bench.clock.advance(CLAIM_S / 2)
    for _ in range(4):
        await _pop(bench, "modest")
    bench.clock.advance(CLAIM_S / 2)

    cleaned = [
        (await _ok(bench, "modest", "POST /cleanup/orphaned-claims", b""))["cleaned"]
        for _ in range(4)
    ]

    assert cleaned == [0, 0, 1, 0]
