"""Groups: a group at its limit blocks no other job; each has counts; a drained one is an event."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.bounds import EXCLUDE_MAX, PAGE_MAX, REPAIR_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed, Event, EventKind, Failed, State
from holdfast.core.scope import ScopeKind
from holdfast.store import Act, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    CRAWL,
    GLOBEX,
    HOUR,
    MAIL,
    changing,
    finding,
    group_of,
    ids,
    job,
    rules,
)
from holdfast.testing.contract.inside import crawl
from holdfast.testing.contract.wait import asleep


async def test_a_group_at_its_limit_hides_no_other_job(bench: Bench) -> None:
    """P9: no scan window, however many stand blocked in front."""
    await bench.configure(group_of(), max_running=1)
    blocked = [job(f"g{n}", group=CRAWL, priority=5) for n in range(3 * REPAIR_MAX)]
    await bench.add(*blocked)
    await bench.put("other", group="other")
    await bench.put("free")

    assert ids(await bench.claim(10)) == ["g0", "other", "free"]
    assert await bench.claim(10) == []


async def test_two_full_groups_hide_nothing(bench: Bench) -> None:
    """P9: blocked by different groups in turn, the eligible ones come in their order."""
    for group in ("x", "y"):
        await bench.configure(group_of(group), max_running=1)
    for n in range(4):
        await bench.put(f"x{n}", group="x", priority=3)
        await bench.put(f"y{n}", group="y", priority=2)
        await bench.put(f"free{n}", priority=1)

    assert ids(await bench.claim(4)) == ["x0", "y0", "free0", "free1"]
    assert ids(await bench.claim(4)) == ["free2", "free3"]


async def test_a_higher_priority_comes_first_inside_a_full_group(bench: Bench) -> None:
    """P9: the place goes to the first in rank, not to the first that came."""
    await bench.configure(group_of(), max_running=1)
    await crawl(bench, "low", "mid")
    await crawl(bench, "high", priority=5)

    first = await bench.one()
    await crawl(bench, "top", priority=9)
    await bench.end(first, Completed())
    second = await bench.one()
    await bench.end(second, Completed())

    assert (first.job.id, second.job.id) == ("high", "top")
    assert ids(await bench.claim(10)) == ["low"]


async def test_a_later_higher_priority_takes_the_only_place(bench: Bench) -> None:
    """P9: who stood ready under the limit steps back for who ranks before, and is not lost."""
    await bench.configure(group_of(), max_running=2)
    await crawl(bench, "a", "b", "c")
    await crawl(bench, "x", "y", "z", priority=1)

    order = []
    for _ in range(3):
        leases = await bench.claim(10)
        order += ids(leases)
        for lease in leases:
            await bench.end(lease, Completed())

    assert order == ["x", "y", "z", "a", "b", "c"]


async def test_a_new_priority_counts_inside_a_full_group(bench: Bench) -> None:
    """P9: raised or lowered while it waits for a place, or while it stands ready."""
    await bench.configure(group_of(), max_running=1)
    await crawl(bench, "a", "b", "c")

    await bench.store.change(changing(Act.REPRIORITISE, ids=("a",), priority=-1))
    await bench.store.change(changing(Act.REPRIORITISE, ids=("c",), priority=1))

    order = []
    for _ in range(3):
        lease = await bench.one()
        order.append(lease.job.id)
        await bench.end(lease, Completed())
    assert order == ["c", "b", "a"]


async def test_a_full_group_wakes_nobody_until_it_has_a_place(bench: Bench) -> None:
    """P10: an end in the group wakes the watcher of the queue where the next one stands."""
    await bench.configure(group_of(), max_running=1)
    await crawl(bench, "a", queue=AUDIO)
    await crawl(bench, "b")
    lease = await bench.one(queues=(AUDIO,))
    assert await bench.claim(1, queues=(MAIL,)) == []

    async with asleep(bench, Watch(queues=(MAIL,))) as sleeper:
        await bench.cancel(lease.job.id)

    assert sleeper.done()
    assert ids(await bench.claim(10)) == ["b"]


# -- exclude_groups --------------------------------------------------------------------------------


async def test_excluded_groups_are_left_out_of_a_claim(bench: Bench) -> None:
    """P9: the others come in their order, and the next claim may have them all."""
    bench.needs("scopes")
    await bench.put("x0", "x1", group="x", priority=2)
    await bench.put("y0", group="y", priority=1)
    await bench.put("free")

    assert ids(await bench.claim(10, exclude_groups=("x", "none"))) == ["y0", "free"]
    assert await bench.claim(10, exclude_groups=("x",)) == []
    assert ids(await bench.claim(10)) == ["x0", "x1"]


async def test_excluding_takes_no_place(bench: Bench) -> None:
    """P13: a group that was left out has all its places, in every tenant."""
    await bench.configure(group_of(), max_running=1)
    await crawl(bench, "a", "b")
    await crawl(bench, "g", tenant=GLOBEX)

    assert await bench.claim(10, exclude_groups=(CRAWL,)) == []

    assert sorted(ids(await bench.claim(10))) == ["a", "g"]


async def test_too_many_excluded_groups_are_refused(bench: Bench) -> None:
    """P15: InvalidInput names the field, nothing is leased."""
    bench.needs("scopes")
    await bench.put("a")

    with pytest.raises(InvalidInput) as caught:
        await bench.claim(1, exclude_groups=tuple(f"g{n}" for n in range(EXCLUDE_MAX + 1)))

    assert caught.value.facts["field"] == "exclude_groups"
    assert await bench.state("a") is State.ENQUEUED


# -- sight -----------------------------------------------------------------------------------------


async def test_groups_are_counted_by_state(bench: Bench) -> None:
    """P13: over all queues of the tenant, and of that tenant only."""
    bench.needs("scopes")
    await crawl(bench, "a", "b", "c")
    await crawl(bench, "d", queue=AUDIO)
    await crawl(bench, "later", delay_us=HOUR)
    await crawl(bench, "theirs", tenant=GLOBEX)
    await bench.put("alone")
    first, second = await bench.claim(2, tenants=(ACME,), queues=(MAIL,))
    await bench.end(first, Completed())
    await bench.end(second, Failed("boom"))

    [tally] = await bench.store.count(ACME, by=ScopeKind.GROUP)

    assert (tally.tenant, tally.queue, tally.oldest_at) == (ACME, CRAWL, None)
    assert {state: n for state, n in tally.counts.items() if n} == {
        State.COMPLETED: 1,
        State.RETRYING: 1,
        State.ENQUEUED: 2,
        State.SCHEDULED: 1,
    }


async def test_the_jobs_of_a_group_are_found(bench: Bench) -> None:
    """P15: a page of a group, in every queue."""
    bench.needs("scopes")
    await crawl(bench, "a", "b")
    await crawl(bench, "c", queue=AUDIO)
    await bench.put("other", group="other")

    page = await bench.store.find(finding(groups=(CRAWL,), newest_first=False))

    assert ids(page.jobs) == ["a", "b", "c"]


async def test_a_group_without_jobs_is_not_listed(bench: Bench) -> None:
    """P15: what was deleted or pruned leaves no empty group behind."""
    bench.needs("scopes")
    await crawl(bench, "a", rules=rules(keep_us=0))
    await bench.put("b", group="other")
    await bench.cancel("a")
    await bench.store.change(changing(Act.DELETE, ids=("b",)))

    assert await bench.store.count(ACME, by=ScopeKind.GROUP) == []


# -- drained ---------------------------------------------------------------------------------------


async def drains(bench: Bench) -> list[Event]:
    bench.needs("event_log")
    page = await bench.store.events(None, 0, PAGE_MAX)
    return [event for event in page.events if event.kind is EventKind.DRAINED]


@pytest.mark.parametrize("keep_us", [0, HOUR])
async def test_the_last_end_of_a_group_is_an_event(bench: Bench, keep_us: int) -> None:
    """P14: once, after the end of its last job, with the group's name."""
    bench.needs("scopes")
    await crawl(bench, "a", "b", "c", rules=rules(keep_us=keep_us, keep_failed_us=keep_us))
    first, second, _ = await bench.claim(3)
    await bench.end(first, Completed())
    await bench.end(second, Failed("no", retryable=False))
    assert await drains(bench) == []

    await bench.cancel("c")

    [event] = await drains(bench)
    assert (event.tenant, event.note, event.at) == (ACME, CRAWL, bench.clock.now())
    canceled = [each for each in await bench.history("c") if each.kind is EventKind.CANCELED]
    assert event.cursor > canceled[0].cursor


async def test_a_waiting_job_keeps_its_group_from_draining(bench: Bench) -> None:
    """P14: scheduled and retrying jobs have not ended, in whatever queue."""
    bench.needs("scopes")
    await crawl(bench, "a")
    await crawl(bench, "later", queue=AUDIO, delay_us=HOUR)
    lease = await bench.one()
    await bench.end(lease, Completed())

    assert await drains(bench) == []


async def test_deleting_the_last_waiting_job_drains_its_group(bench: Bench) -> None:
    """P14: gone is ended too; deleting what had ended before tells nothing new."""
    bench.needs("scopes")
    await crawl(bench, "a", "b")
    await bench.cancel("a")
    await bench.store.change(changing(Act.DELETE, ids=("b",)))
    assert len(await drains(bench)) == 1

    await bench.store.change(changing(Act.DELETE, ids=("a",)))

    assert len(await drains(bench)) == 1


async def test_a_group_that_is_filled_again_drains_again(bench: Bench) -> None:
    """P14: each time it runs empty."""
    bench.needs("scopes")
    for id in ("a", "b"):
        await crawl(bench, id)
        await bench.end(await bench.one(), Completed())
    await bench.store.change(changing(Act.REPLAY, ids=("a",)))
    await bench.end(await bench.one(), Completed())

    assert [event.note for event in await drains(bench)] == [CRAWL] * 3


async def test_upkeep_drains_a_group(bench: Bench) -> None:
    """P14: the end by expiry counts like any other."""
    bench.needs("scopes")
    await crawl(bench, "a", ttl_us=SECOND)
    bench.clock.advance(1)
    await bench.upkeep()

    assert len(await drains(bench)) == 1


async def test_jobs_without_a_group_drain_nothing(bench: Bench) -> None:
    """P14: a job without a group causes no such event."""
    bench.needs("scopes")
    await bench.end(await bench.held("a"), Completed())

    assert await drains(bench) == []


async def test_a_group_is_canceled_in_bounded_steps(bench: Bench) -> None:
    """P15: page by page, each cancel frees what waits in the group."""
    await bench.configure(group_of(), max_running=1)
    await bench.add(*(job(f"j{n}", group=CRAWL) for n in range(25)))
    await bench.put("other", group="other")
    await bench.claim(1)

    steps: list[Any] = []
    after: int | None = None
    while True:
        page = await bench.store.find(finding(groups=(CRAWL,), limit=10, after=after))
        steps += [await bench.cancel(each.id) for each in page.jobs]
        after = page.cursor
        if after is None:
            break

    assert len(steps) == 25
    assert await bench.running(group_of()) == 0
    assert ids(await bench.claim(10)) == ["other"]
