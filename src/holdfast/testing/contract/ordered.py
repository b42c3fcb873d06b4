"""Ordered groups: one job at a time, in the order of first enqueue; a retry keeps its place."""

from __future__ import annotations

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.job import Abandoned, Completed, Failed, Outcome, Released, Snoozed
from holdfast.core.scope import GroupRules
from holdfast.store import Act, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    AUDIO,
    GLOBEX,
    HOUR,
    MAIL,
    RETRY_S,
    changing,
    group_of,
    ids,
    queue_of,
    rules,
)
from holdfast.testing.contract.inside import crawl
from holdfast.testing.contract.wait import asleep


async def in_order(bench: Bench, *names: str, **options: object) -> None:
    """An ordered group with these jobs."""
    await bench.configure(group_of(), ordered=True)
    await crawl(bench, *names, **options)


async def drained(bench: Bench) -> list[str]:
    """Runs one after the other until nothing is left; never two at a time."""
    order = []
    while leases := await bench.claim(10):
        assert len(leases) == 1
        order += ids(leases)
        await bench.end(leases[0], Completed())
    return order


async def test_an_ordered_group_runs_one_at_a_time(bench: Bench) -> None:
    """P13: the next one starts when the one before has ended."""
    await in_order(bench, "a", "b", "c")

    lease = await bench.one()
    assert lease.job.id == "a"
    assert await bench.claim(10) == []

    await bench.end(lease, Completed())
    assert ids(await bench.claim(10)) == ["b"]


async def test_the_order_is_that_of_the_first_enqueue(bench: Bench) -> None:
    """P9: priorities do not break the order of an ordered group."""
    await in_order(bench, "a")
    await crawl(bench, "b", priority=9)
    await crawl(bench, "c", priority=-9)
    await crawl(bench, "d", priority=5)

    assert await drained(bench) == ["a", "b", "c", "d"]


async def test_an_ordered_group_goes_over_queues(bench: Bench) -> None:
    """P9: one order for the group, wherever its jobs stand."""
    await in_order(bench, "a", queue=AUDIO)
    await crawl(bench, "b", queue=MAIL)
    await crawl(bench, "c", queue=AUDIO)

    assert await bench.claim(10, queues=(MAIL,)) == []
    assert await drained(bench) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "outcome",
    [Failed("boom"), Released(delay_us=RETRY_S * SECOND), Snoozed(delay_us=RETRY_S * SECOND)],
    ids=["retry", "release", "snooze"],
)
async def test_a_head_that_comes_later_keeps_its_place(bench: Bench, outcome: Outcome) -> None:
    """P9: nobody overtakes a retrying or postponed head."""
    await in_order(bench, "a", "b")

    await bench.end(await bench.one(), outcome)
    assert await bench.claim(10) == []
    bench.clock.advance(RETRY_S)

    assert await drained(bench) == ["a", "b"]


@pytest.mark.parametrize(
    "outcome", [Released(), Abandoned(), Failed("boom", after_us=0)], ids=["r", "s", "f"]
)
async def test_a_head_given_back_comes_again_first(bench: Bench, outcome: Outcome) -> None:
    """P9: at once, before those behind it."""
    await in_order(bench, "a", "b")

    await bench.end(await bench.one(), outcome)

    assert await drained(bench) == ["a", "b"]


async def test_a_scheduled_head_keeps_its_place(bench: Bench) -> None:
    """P9: the first enqueued is the first to run, whenever it is due."""
    await in_order(bench, "a", delay_us=30 * SECOND)
    await crawl(bench, "b")
    assert await bench.claim(10) == []

    bench.clock.advance(30)

    assert await drained(bench) == ["a", "b"]


async def test_a_lapsed_head_runs_again_first(bench: Bench) -> None:
    """P10: a dead worker's job is the head still."""
    await in_order(bench, "a", "b")
    await bench.one()

    bench.clock.advance(60)

    assert await drained(bench) == ["a", "b"]


@pytest.mark.parametrize("keep_us", [0, HOUR])
@pytest.mark.parametrize("running", [False, True])
async def test_canceling_the_head_lets_the_next_go(
    bench: Bench, running: bool, keep_us: int
) -> None:
    """P5: running, waiting, kept or not."""
    await in_order(bench, "a", "b", "c", rules=rules(keep_us=keep_us))
    if running:
        await bench.one()

    await bench.cancel("a")

    assert await drained(bench) == ["b", "c"]


async def test_canceling_a_scheduled_head_lets_the_next_go(bench: Bench) -> None:
    """P5: the next is ready at once, and who waits for it is woken."""
    await in_order(bench, "a", delay_us=HOUR)
    await crawl(bench, "b")
    assert await bench.claim(1) == []

    async with asleep(bench, Watch(queues=(MAIL,))) as sleeper:
        await bench.cancel("a")

    assert sleeper.done()
    assert ids(await bench.claim(10)) == ["b"]


@pytest.mark.parametrize("end", ["failed", "deleted", "expired"])
async def test_every_end_of_the_head_lets_the_next_go(bench: Bench, end: str) -> None:
    """P6: failed for good, deleted or expired, the head is not there any more."""
    await in_order(bench, "a", ttl_us=5 * SECOND)
    await crawl(bench, "b")
    if end == "failed":
        await bench.end(await bench.one(), Failed("no", retryable=False))
    elif end == "deleted":
        await bench.store.change(changing(Act.DELETE, ids=("a",)))
    else:
        bench.clock.advance(5)
        await bench.upkeep()

    assert await drained(bench) == ["b"]


async def test_canceling_in_the_middle_closes_the_gap(bench: Bench) -> None:
    """P5: those behind keep their order."""
    await in_order(bench, "a", "b", "c", "d")

    await bench.cancel("b")
    await bench.store.change(changing(Act.DELETE, ids=("c",)))

    assert await drained(bench) == ["a", "d"]


async def test_a_rescheduled_head_keeps_its_place(bench: Bench) -> None:
    """P9: a job with a later due time keeps its place in the order."""
    await in_order(bench, "a", "b")

    await bench.store.change(changing(Act.RESCHEDULE, ids=("a",), delay_us=RETRY_S * SECOND))
    assert await bench.claim(10) == []
    bench.clock.advance(RETRY_S)

    assert await drained(bench) == ["a", "b"]


async def test_a_replay_stands_at_the_end(bench: Bench) -> None:
    """P6: a replay is a new job and goes to the end of its group."""
    await in_order(bench, "a", "b", "c")
    await bench.end(await bench.one(), Failed("no", retryable=False))

    await bench.store.change(changing(Act.REPLAY, ids=("a",)))
    order = await drained(bench)

    assert order[:2] == ["b", "c"]
    assert (await bench.get(order[2])).origin == "a"


async def test_a_blocked_ordered_group_hides_no_other_job(bench: Bench) -> None:
    """P9: neither jobs of other groups, nor of none, nor of other tenants."""
    await in_order(bench, "head", delay_us=HOUR, priority=9)
    await crawl(bench, *(f"j{n}" for n in range(300)), priority=9)
    await bench.put("other", group="other")
    await bench.put("free")
    await crawl(bench, "theirs", tenant=GLOBEX)

    assert sorted(ids(await bench.claim(10))) == ["free", "other", "theirs"]


async def test_an_ordered_job_has_its_rank_in_its_line(bench: Bench) -> None:
    """P9: its priority counts against other groups."""
    await in_order(bench, "low", priority=-1)
    await bench.put("free")
    await crawl(bench, "next", priority=9)

    first = await bench.claim(10)
    assert ids(first) == ["free", "low"]
    await bench.put("free2")
    await bench.end(first[1], Completed())

    assert ids(await bench.claim(10)) == ["next", "free2"]


async def test_switching_order_on_counts_at_once(bench: Bench) -> None:
    """P13: what ran together may finish; from then on one at a time, the first first."""
    await crawl(bench, "a", "b")
    await crawl(bench, "c", priority=-5)
    await crawl(bench, "d")
    first, second = await bench.claim(2)

    await bench.configure(group_of(), ordered=True)

    await bench.end(second, Completed())
    assert await bench.claim(10) == []
    await bench.end(first, Completed())
    assert await drained(bench) == ["c", "d"]


async def test_switching_order_off_counts_at_once(bench: Bench) -> None:
    """P9: what waited for its turn is free, by priority."""
    await in_order(bench, "head", delay_us=HOUR)
    await crawl(bench, "a", "b")
    await crawl(bench, "top", priority=1)
    assert await bench.claim(10) == []

    await bench.configure(group_of())

    assert ids(await bench.claim(10)) == ["top", "a", "b"]


async def test_a_queue_may_order_all_its_groups(bench: Bench) -> None:
    """P13: each group by itself; a group may say otherwise."""
    await bench.configure(queue_of(), groups=GroupRules(ordered=True))
    await bench.configure(group_of("loose"), ordered=False)
    for group in ("x", "y", "loose"):
        await bench.put(*(f"{group}{n}" for n in range(2)), group=group)
    await bench.put("free0", "free1")

    got = ids(await bench.claim(10))

    assert sorted(got) == ["free0", "free1", "loose0", "loose1", "x0", "y0"]
