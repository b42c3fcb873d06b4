"""The Firecrawl wire: no team's markers or overdue jobs stand in the way of another's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.service.firecrawl import KINDS, Badges, Bench, badge, benched

from holdfast import limits

FEW = 3
MONTH_MS = 31 * 24 * 3600 * 1000


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    callers = (badge("greedy", "greedy"), badge("modest", "modest"), badge("all", None))
    async with benched(Badges(*callers), kind=request.param) as found:
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


# -- markers of crawls -----------------------------------------------------------------------------


async def test_a_team_that_sets_many_crawl_markers_fills_its_own_share_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: a marker counts against the team whose token sets it."""
    monkeypatch.setattr(limits, "SLOTS_MAX", FEW)
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
    monkeypatch.setattr(limits, "SLOTS_MAX", FEW)
    for number in range(2 * FEW):
        await _push(bench, "greedy", f"j{number}", f"crawl-{number}")

    statuses = [await _mark(bench, who, "c", f"of {who}") for who in ("modest", "all")]

    assert statuses == [200, 200]
    assert await _marked(bench, "all") == ["of all", "of modest"]


async def test_a_removed_crawl_marker_gives_its_place_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the list that tokens for all teams see; renewing takes no second place."""
    monkeypatch.setattr(limits, "SLOTS_MAX", 1)
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
