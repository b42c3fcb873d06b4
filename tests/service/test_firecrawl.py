"""The Firecrawl wire: the queue of a team, from push to complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import msgspec
import pytest
from tests.service.firecrawl import CLAIM_S, KINDS, Bench, benched

from holdfast.core.job import Envelope, NewJob, Rules
from holdfast.core.lifecycle import lapse
from holdfast.service.firecrawl.wire import Settings
from holdfast.store import Find, Selection

TEAM = "/queue/count/team/team"
CRAWL = "/queue/count/crawl/crawl"


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with benched(kind=request.param) as found:
        yield found


# -- push and pop ----------------------------------------------------------------------------------


async def test_a_job_comes_back_as_it_was_pushed(bench: Bench) -> None:
    """All fields; what was not given is left out."""
    await bench.push("j1", data={"url": "x"}, priority=7, listenable=True, timeout=None)
    await bench.push(
        "j2", priority=8, crawl="c", listenChannelId="channel", timeout=5, data=[None, 1.5]
    )
    now = bench.clock.now() // 1000

    one, two = await bench.pop(), await bench.pop()

    assert one["job"] == {
        "id": "j1", "data": {"url": "x"}, "priority": 7, "listenable": True, "createdAt": now,
        "teamId": "team",
    }  # fmt: skip
    assert two["job"] == {
        "id": "j2", "data": [None, 1.5], "priority": 8, "listenable": False, "createdAt": now,
        "listenChannelId": "channel", "crawlId": "c", "teamId": "team",
    }  # fmt: skip


async def test_an_empty_queue_pops_a_literal_null(bench: Bench) -> None:
    """The client parses every answer as JSON."""
    answer = await bench.call("POST", "/queue/pop/nobody", {"workerId": "w", "blockedCrawlIds": []})

    assert (answer.status, answer.body) == (200, b"null")


@pytest.mark.parametrize(
    "data",
    [
        b"null", b"-0", b"-0.0", b"1e400", b"123456789012345678901234567890", b"1.10",
        b'{"b":1,"a":2,"b":3}', b'"\\u0041\\u00e9\\/ \xc3\xa9 \\ud83d\\ude00"', b'{ "a" : [ ] }',
        b'"\\ud800"', b'{"a":"\\uDC00 \\\\ud800 \\ud83d\\ude00 \\ud83d"}', b'""', b"[[],{}]",
    ],
)  # fmt: skip
async def test_data_comes_back_letter_by_letter(bench: Bench, data: bytes) -> None:
    """Numbers that no parser keeps, keys given twice, escapes, half of a surrogate pair."""
    body = b'{"teamId":"team","timeout":0,"job":{"id":"j","data":%b,' % data
    body += b'"priority":1,"listenable":false,"listenChannelId":null}}'
    pushed = await bench.call("POST", "/queue/push", body)
    assert pushed.json == {"success": True}

    answer = await bench.call("POST", "/queue/pop/team", {"workerId": "w", "blockedCrawlIds": []})

    assert b'"data":%b,"priority":1' % data in answer.body


async def test_a_body_of_two_mebibytes_is_taken_and_one_byte_more_is_not(bench: Bench) -> None:
    """The original's limit, above that of our own payloads."""
    frame = b'{"teamId":"team","job":{"id":"big","data":"%b","priority":0,"listenable":false}}'
    text = b"x" * (2 * 1024 * 1024 - len(frame) + 2)

    taken = await bench.call("POST", "/queue/push", frame % text)
    refused = await bench.call("POST", "/queue/push", frame % (text + b"x"))

    assert (taken.status, refused.status) == (200, 413)
    found = await bench.pop()
    assert found["job"]["data"] == text.decode()
    assert await bench.pop() is None


async def test_lower_priorities_come_first_and_equals_in_order(bench: Bench) -> None:
    """Negative ones too, to the ends of 32 bits."""
    lowest, highest = -(2**31), 2**31 - 1
    for id, priority in (
        ("a", 5), ("b", highest), ("c", -1), ("d", 5), ("e", lowest), ("f", 0), ("g", -1),
    ):  # fmt: skip
        await bench.push(id, priority=priority)

    listed = await bench.ids("/queue/jobs/team/team")
    found = [(await bench.pop())["job"] for _ in range(7)]

    assert [job["id"] for job in found] == listed == ["e", "c", "g", "f", "a", "d", "b"]
    assert [found[0]["priority"], found[-1]["priority"]] == [lowest, highest]


async def test_ids_keep_slashes_spaces_and_unicode(bench: Bench) -> None:
    """As one segment of a path, percent-encoded; other teams are other teams."""
    strange = ["a/b", "a%2Fb", " a b ", "日本/é", "%", "%25", "a\tb", "..%2f", "x" * 128]
    for number, team in enumerate(strange):
        await bench.push(f"job {number}/ü", team=team, crawl=f"{team}!")

    for number, team in enumerate(strange):
        path = quote(team, safe="")
        assert await bench.count(f"/queue/count/team/{path}") == 1
        assert await bench.count(f"/queue/count/crawl/{path}%21") == 1
        found = (await bench.pop(path))["job"]
        assert (found["id"], found["teamId"]) == (f"job {number}/ü", team)
        assert found["crawlId"] == f"{team}!"
    assert sorted(await bench.ids("/sample/teams")) == sorted(strange)
    assert len(await bench.ids("/sample/crawls")) == len(strange)


async def test_the_same_id_pushed_twice_is_two_jobs(bench: Bench) -> None:
    """There is no deduplication: over-limit jobs are pushed again under their id."""
    await bench.push("twin", data=1, crawl="crawl")
    await bench.push("twin", data=2, crawl="crawl")

    assert (await bench.count(TEAM), await bench.count(CRAWL)) == (2, 2)
    found = [await bench.pop() for _ in range(2)]
    assert [one["job"]["data"] for one in found] == [1, 2]
    assert [await bench.complete(one["queueKey"]) for one in found] == [True, True]
    assert (await bench.count(TEAM), await bench.count(CRAWL)) == (0, 0)


async def test_blocked_crawls_are_passed_over(bench: Bench) -> None:
    """However many of their jobs come first."""
    for number in range(150):
        await bench.push(f"{number}", crawl="busy")
    await bench.push("free", crawl="other")
    await bench.push("lone")

    assert await bench.popped("team", "busy", "unknown", "busy") == "free"
    assert await bench.popped("team", "busy") == "lone"
    assert await bench.popped("team", "busy") is None
    assert await bench.popped("team") == "0"


async def test_concurrent_pops_of_one_worker_get_different_jobs(bench: Bench) -> None:
    """A claim belongs to a request, not to a workerId."""
    for number in range(20):
        await bench.push(f"{number}")

    found = await asyncio.gather(*(bench.pop() for _ in range(25)))

    ids = [one["job"]["id"] for one in found if one is not None]
    assert sorted(ids, key=int) == [str(number) for number in range(20)]
    assert len({one["queueKey"] for one in found if one is not None}) == 20


async def test_a_client_of_the_first_generation_gets_the_bare_job_and_it_is_gone(
    bench: Bench,
) -> None:
    """No workerId: pop removes."""
    await bench.push("old", crawl="crawl")

    job = await bench.ok("POST", "/queue/pop/team", {"blockedCrawlIds": []})

    assert (job["id"], "queueKey" in job) == ("old", False)
    assert (await bench.count(TEAM), await bench.count(CRAWL)) == (0, 0)
    assert await bench.ok("POST", "/queue/pop/team", {"blockedCrawlIds": ["c"]}) is None


async def test_what_somebody_else_put_into_the_queue_does_not_block_it(bench: Bench) -> None:
    """It goes to the dead letters; the next job is popped."""
    nameless = b'{"data_bytes":1,"id":"","listenable":true,"data":1}'
    for number, body in enumerate((b"{}", b'{"data_bytes":99,"id":"x"}', b"\xff", nameless)):
        envelope = Envelope("firecrawl", "json", 1, body)
        stranger = NewJob(
            tenant="team", id=f"s{number}", queue="firecrawl", envelope=envelope, rules=Rules()
        )
        await bench.store.enqueue([stranger])
    await bench.push("ours")

    assert await bench.ids("/queue/jobs/team/team") == ["ours"]
    assert await bench.popped() == "ours"
    page = await bench.store.find(Find(select=Selection(tenant="team")))
    assert [job.reason for job in page.jobs if job.id.startswith("s")] == ["DECODE"] * 4


# -- time-outs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 0, -1, -1e300])
async def test_no_timeout_is_for_ever(bench: Bench, timeout: float | None) -> None:
    """Infinity arrives as null, and none is told as 0."""
    await bench.push("j", timeout=timeout)
    bench.clock.advance(365 * 24 * 3600)

    assert "timesOutAt" not in (await bench.pop())["job"]


async def test_a_timeout_is_ignored_with_a_crawl(bench: Bench) -> None:
    """A crawl's jobs wait for as long as it takes."""
    await bench.push("j", crawl="crawl", timeout=1)
    bench.clock.advance(3600)

    assert await bench.cleaned("expired-jobs") == 0
    assert await bench.count(CRAWL) == 1
    assert "timesOutAt" not in (await bench.pop())["job"]


async def test_an_expired_job_is_passed_over_and_removed(bench: Bench) -> None:
    """By a pop that finds nothing else, or by the cleanup."""
    await bench.push("late", timeout=60_000)
    await bench.push("later", timeout=90_000)
    assert (await bench.ids("/queue/jobs/team/team")) == ["late", "later"]
    bench.clock.advance(61)

    found = (await bench.pop())["job"]
    assert found["id"] == "later"
    assert found["timesOutAt"] == found["createdAt"] + 90_000
    assert await bench.count(TEAM) == 2
    assert await bench.pop() is None
    assert await bench.count(TEAM) == 1


@pytest.mark.parametrize("timeout", [0.4, 1.5, 1e300, 2**53])
async def test_any_length_of_a_timeout_is_taken(bench: Bench, timeout: float) -> None:
    """Fractions and what is longer than a life."""
    await bench.push("j", timeout=timeout)

    job = (await bench.pop())["job"]
    assert job["timesOutAt"] > job["createdAt"]


# -- claims ----------------------------------------------------------------------------------------


async def test_a_claimed_job_counts_until_it_is_completed(bench: Bench) -> None:
    """In counts and lists alike: the janitor takes 0 for a finished crawl."""
    await bench.push("j", crawl="crawl")
    found = await bench.pop()

    assert await bench.ids("/queue/jobs/team/team") == ["j"]
    assert (await bench.count(TEAM), await bench.count(CRAWL)) == (1, 1)
    assert await bench.complete(found["queueKey"])
    assert (await bench.count(TEAM), await bench.count(CRAWL)) == (0, 0)
    assert not await bench.complete(found["queueKey"])
    assert await bench.ids("/queue/jobs/team/team") == []


async def test_of_racing_completes_one_succeeds(bench: Bench) -> None:
    """And counts go down by one."""
    await bench.push("a", crawl="crawl")
    await bench.push("b", crawl="crawl")
    key = (await bench.pop())["queueKey"]

    found = await asyncio.gather(*(bench.complete(key) for _ in range(10)))

    assert sum(found) == 1
    assert (await bench.count(TEAM), await bench.count(CRAWL)) == (1, 1)


async def test_a_vanished_client_s_job_comes_back(bench: Bench) -> None:
    """Once its claim's time is over; whoever claims it then is its only holder."""
    await bench.push("j")
    first = await bench.pop()
    bench.clock.advance(CLAIM_S - 1)
    assert await bench.pop() is None
    bench.clock.advance(2)

    second = await bench.pop()

    assert second["job"] == first["job"]
    assert not await bench.complete(first["queueKey"])
    assert await bench.complete(second["queueKey"])


@pytest.mark.parametrize("rescued", [False, True])
async def test_a_late_complete_counts_if_nobody_claimed_again(bench: Bench, rescued: bool) -> None:
    """Whether or not upkeep has freed the job meanwhile."""
    await bench.push("j", crawl="crawl")
    key = (await bench.pop())["queueKey"]
    bench.clock.advance(CLAIM_S + 1)
    if rescued:
        [one] = await bench.store.expired(10)
        await bench.store.ack([lapse(one.job, one.token)])

    assert await bench.complete(key)
    assert not await bench.complete(key)
    assert (await bench.count(TEAM), await bench.count(CRAWL)) == (0, 0)
    assert await bench.pop() is None


async def test_a_late_complete_does_not_count_after_another_claim_lapsed_too(bench: Bench) -> None:
    """The second claim's holder has the last word, late as well."""
    await bench.push("j")
    first = (await bench.pop())["queueKey"]
    bench.clock.advance(CLAIM_S + 1)
    second = (await bench.pop())["queueKey"]
    bench.clock.advance(CLAIM_S + 1)

    assert not await bench.complete(first)
    assert await bench.complete(second)


async def test_release_gives_a_claimed_job_back_in_its_place(bench: Bench) -> None:
    """As often as one likes, without wearing it out."""
    await bench.push("a/ü", crawl="busy")
    await bench.push("b")
    for _ in range(30):
        assert await bench.popped() == "a/ü"
        await bench.release("a/ü")

    assert await bench.popped("team", "busy") == "b"
    assert await bench.popped() == "a/ü"


async def test_release_acts_only_on_claimed_jobs(bench: Bench) -> None:
    """Unknown, waiting and completed ones: true, and nothing happens."""
    await bench.push("waiting")
    for id in ("unknown", "waiting", "", "x" * 5000, "a\x00b"):
        await bench.release(id)
    key = (await bench.pop())["queueKey"]
    assert await bench.complete(key)
    await bench.release("waiting")

    assert await bench.pop() is None
    assert await bench.count(TEAM) == 0


async def test_a_released_claim_cannot_complete(bench: Bench) -> None:
    """Its right went with it."""
    await bench.push("j")
    key = (await bench.pop())["queueKey"]
    await bench.release("j")

    assert not await bench.complete(key)
    assert await bench.count(TEAM) == 1


async def test_the_record_of_a_completed_job_is_kept_for_operators(bench: Bench) -> None:
    """And hidden from the wire; without keeping it is gone at once."""
    async with benched(settings=Settings(keep_s=0)) as forgetful:
        for one, records in ((bench, 1), (forgetful, 0)):
            await one.push("j")
            assert await one.complete((await one.pop())["queueKey"])
            page = await one.store.find(Find(select=Selection(tenant="team")))
            assert len(page.jobs) == records
            assert await one.ids("/queue/jobs/team/team") == []


# -- counts ----------------------------------------------------------------------------------------


async def test_a_crawl_is_counted_over_teams(bench: Bench) -> None:
    """Its routes name no team."""
    for team in ("one", "two", "three"):
        await bench.push("j", team=team, crawl="crawl")
    await bench.push("j", team="one", crawl="other")

    assert await bench.count(CRAWL) == 3
    assert await bench.count("/queue/count/crawl/none") == 0
    assert await bench.count("/queue/count/team/none") == 0
    assert await bench.complete((await bench.pop("two"))["queueKey"])
    assert await bench.count(CRAWL) == 2


async def test_a_crawl_that_is_listed_no_more_still_counts(bench: Bench) -> None:
    """The list of a crawl's teams is a hint: only the counts may say 0."""
    await bench.push("j", crawl="crawl")
    bench.clock.advance(30 * 24 * 3600)

    assert await bench.ids("/sample/crawls") == []
    assert await bench.count(CRAWL) == 1


async def test_a_list_of_jobs_has_a_limit(bench: Bench) -> None:
    """The first in the order of pops."""
    for number in range(120):
        await bench.push(f"{number}", priority=-number)

    assert await bench.ids("/queue/jobs/team/team?limit=2") == ["119", "118"]
    assert await bench.ids("/queue/jobs/team/team?limit=0") == []
    assert len(await bench.ids("/queue/jobs/team/team?limit=99999999999")) == 120
    assert len(await bench.ids("/queue/jobs/team/team")) == 120


async def test_payloads_can_be_read_by_operators(bench: Bench) -> None:
    """They are JSON, unless half of a surrogate pair is in them."""
    await bench.push("j", data={"a": 1}, listenChannelId="c")
    page = await bench.store.find(Find(select=Selection(tenant="team")))

    [job] = page.jobs
    assert msgspec.json.decode(job.envelope.body) == {
        "data_bytes": 7, "id": "j", "listenable": False, "listenChannelId": "c", "data": {"a": 1},
    }  # fmt: skip
