"""Keeping and prune: how long a finished job, a timed key and an event stay."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import PRUNE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput, JobNotFound
from holdfast.core.job import Completed, EventKind, Failed, State
from holdfast.store import Enqueued
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import HOUR, finding, ids, job, rules

DAY = 24 * HOUR


async def test_a_completed_job_is_kept_for_its_time(bench: Bench) -> None:
    """P6: a record outlives its end by keep_us, then prune takes it."""
    lease = await bench.held("a", rules=rules(keep_us=10 * SECOND))
    await bench.end(lease, Completed(b"1"))

    bench.clock.set(bench.clock.now() + 10 * SECOND - 1)
    assert (await bench.store.prune(100, DAY)).jobs == 0
    assert (await bench.get("a")).result == b"1"

    bench.clock.set(bench.clock.now() + 1)
    assert (await bench.store.prune(100, DAY)).jobs == 1
    assert await bench.peek("a") is None


async def test_a_failed_job_is_kept_for_a_time_of_its_own(bench: Bench) -> None:
    """P11: dead letters stay longer, by keep_failed_us."""
    kept = rules(keep_us=10 * SECOND, keep_failed_us=100 * SECOND)
    lease = await bench.held("a", rules=kept)
    await bench.end(lease, Failed("no", retryable=False))

    bench.clock.advance(99)
    assert (await bench.store.prune(100, DAY)).jobs == 0
    assert await bench.state("a") is State.FAILED

    bench.clock.advance(1)
    assert (await bench.store.prune(100, DAY)).jobs == 1


async def test_a_canceled_job_is_kept_like_a_completed_one(bench: Bench) -> None:
    """P5: a canceled job can be read for keep_us."""
    await bench.put("a", rules=rules(keep_us=10 * SECOND, keep_failed_us=0))
    await bench.cancel("a")

    bench.clock.advance(9)
    assert (await bench.store.prune(100, DAY)).jobs == 0
    bench.clock.advance(1)
    assert (await bench.store.prune(100, DAY)).jobs == 1


async def test_keeping_counts_from_the_end_not_from_the_start(bench: Bench) -> None:
    """P8: a long run does not shorten the keeping."""
    lease = await bench.held("a", rules=rules(keep_us=10 * SECOND))
    bench.clock.advance(50)
    await bench.end(lease, Completed())

    bench.clock.advance(9)

    assert (await bench.store.prune(100, DAY)).jobs == 0


async def test_a_job_that_is_not_kept_goes_with_its_end(bench: Bench) -> None:
    """P6: keep 0 deletes at once, without prune; the answer is the same, its events stay."""
    lease = await bench.held("a", rules=rules(keep_us=0))

    answer = await bench.end(lease, Completed())

    assert (answer.state, answer.error) == (State.COMPLETED, None)
    assert await bench.peek("a") is None
    assert await bench.store.count(None) == []
    assert isinstance((await bench.end(lease, Completed())).error, JobNotFound)
    assert (await bench.kinds("a"))[-1] is EventKind.COMPLETED


async def test_a_failure_that_is_not_kept_goes_with_its_end(bench: Bench) -> None:
    """P11: keep_failed_us 0 deletes failed jobs, and only those, at once."""
    gone = rules(keep_failed_us=0)
    await bench.put("a", "b", rules=gone)
    a, b = await bench.claim(2)

    await bench.end(a, Failed("no", retryable=False))
    await bench.end(b, Completed())

    assert await bench.peek("a") is None
    assert await bench.state("b") is State.COMPLETED


async def test_a_job_that_is_not_kept_goes_when_it_lapses_for_good(bench: Bench) -> None:
    """P11: an end by upkeep is an end like any other."""
    await bench.held("a", rules=rules(max_attempts=1, keep_failed_us=0))
    bench.clock.advance(60)

    [answer] = await bench.upkeep()

    assert answer.state is State.FAILED
    assert await bench.peek("a") is None


async def test_what_is_not_finished_is_never_pruned(bench: Bench) -> None:
    """P1: however old a waiting, running, lapsed or retrying job is."""
    gone = rules(keep_us=0, keep_failed_us=0)
    await bench.put("held", "retry", rules=gone)
    _, retry = await bench.claim(2)
    await bench.end(retry, Failed("boom"))
    await bench.put("free", rules=gone)
    await bench.put("later", rules=gone, delay_us=100 * DAY)

    bench.clock.advance(10 * 86_400)

    assert (await bench.store.prune(100, DAY)).jobs == 0
    assert len((await bench.store.find(finding())).jobs) == 4


async def test_a_prune_is_bounded_and_says_whether_there_is_more(bench: Bench) -> None:
    """P15: many small steps do what one large one would."""
    await bench.put(*(f"j{n}" for n in range(7)), rules=rules(keep_us=SECOND))
    for n in range(7):
        await bench.cancel(f"j{n}")
    bench.clock.advance(1)

    first = await bench.store.prune(5, DAY)
    second = await bench.store.prune(5, DAY)
    third = await bench.store.prune(5, DAY)

    assert (first.jobs, first.more) == (5, True)
    assert (second.jobs, second.more) == (2, False)
    assert (third.jobs, third.events, third.more) == (0, 0, False)
    assert (await bench.store.find(finding())).jobs == []


async def test_a_pruned_id_can_be_used_again(bench: Bench) -> None:
    """P12: an id is remembered as long as its record."""
    lease = await bench.held("a", rules=rules(keep_us=SECOND))
    await bench.end(lease, Completed())
    bench.clock.advance(1)
    await bench.store.prune(100, DAY)

    assert await bench.add(job("a", type="other")) == [Enqueued("a", True)]
    assert (await bench.one()).job.type == "other"


async def test_an_old_token_is_useless_on_a_new_job_of_the_same_id(bench: Bench) -> None:
    """P3: a token names one lease, not whatever has the id later."""
    lease = await bench.held("a", rules=rules(keep_us=0))
    await bench.end(lease, Completed())
    again = await bench.held("a")

    answer = await bench.end(lease, Completed(b"stale"))

    assert answer.error is not None
    assert await bench.state("a") is State.PROCESSING
    assert again.token != lease.token


async def test_prune_takes_events_past_their_keeping(bench: Bench) -> None:
    """P14: events are kept for the time that upkeep gives, jobs or no jobs."""
    bench.needs("event_log")
    await bench.put("old")
    bench.clock.advance(100)
    await bench.put("new")

    pruned = await bench.store.prune(100, 50 * SECOND)

    assert (pruned.jobs, pruned.events) == (0, 1)
    page = await bench.store.events(None, 0, 100)
    assert [event.job_id for event in page.events] == ["new"]
    assert ids((await bench.store.find(finding(newest_first=False))).jobs) == ["old", "new"]


async def test_a_pruned_record_leaves_its_events(bench: Bench) -> None:
    """P14: the log outlives the record."""
    lease = await bench.held("a", rules=rules(keep_us=SECOND))
    await bench.end(lease, Completed())
    bench.clock.advance(1)

    await bench.store.prune(100, DAY)

    assert await bench.kinds("a") == [
        EventKind.ENQUEUED,
        EventKind.LEASED,
        EventKind.COMPLETED,
    ]


@pytest.mark.parametrize("limit", [-1, PRUNE_MAX + 1])
async def test_a_prune_out_of_bounds_is_refused(bench: Bench, limit: int) -> None:
    """P15: InvalidInput names the field."""
    with pytest.raises(InvalidInput) as caught:
        await bench.store.prune(limit, DAY)

    assert caught.value.facts["field"] == "limit"
