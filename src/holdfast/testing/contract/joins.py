"""Joins: jobs that await the end of others, decided in the step that ends them (P17)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.bounds import EDGES_MAX, ID_MAX, PARENTS_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import (
    Completed,
    EventKind,
    Failed,
    NewJob,
    Reason,
    State,
    check_new,
)
from holdfast.core.journal import Edge, EntryKind, Join, OnFailure, await_join, join_of, new_join
from holdfast.core.scope import BlockerKind
from holdfast.store import Act, Find, Ref, Selection, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    MAIL,
    changing,
    ids,
    job,
)
from holdfast.testing.contract.wait import asleep

FAIL, RUN, SKIP = OnFailure.FAIL, OnFailure.RUN, OnFailure.SKIP


async def flow(bench: Bench, *jobs: NewJob) -> None:
    """Enqueues jobs with their edges in one call."""
    bench.needs("steps")
    assert all(answer.created for answer in await bench.add(*jobs))


def node(id: str, *targets: str, after: int = 0, how: OnFailure = FAIL, **options: Any) -> NewJob:
    """A job whose end these targets await, and which itself awaits so many parents."""
    edges = tuple(Edge(target, "", how) for target in targets)
    return job(id, edges=edges, parents=after, **options)


async def run(bench: Bench, id: str) -> None:
    """Claims and completes a job, which must be the only one that can be claimed."""
    [lease] = await bench.claim(10)
    assert lease.job.id == id
    assert (await bench.end(lease, Completed())).state is State.COMPLETED


async def join(bench: Bench, id: str, name: str = "") -> Join:
    """How far a join of a job is."""
    find = Find(select=Selection(tenant=ACME, ids=(id,)), journals=True)
    entries = (await bench.store.find(find)).journals[Ref(ACME, id)].entries
    return next(
        join_of(each) for each in entries if (each.kind, each.name) == (EntryKind.JOIN, name)
    )


# -- waiting for parents ---------------------------------------------------------------------------


async def test_a_child_is_claimable_exactly_when_its_parents_have_ended(bench: Bench) -> None:
    """P17: not before the last one, and in the very step that ends it."""
    await flow(bench, node("a", "c"), node("b", "c"), node("c", after=2))
    first, second = await bench.claim(10)
    assert {first.job.id, second.job.id} == {"a", "b"}
    assert await bench.state("c") is State.WAITING

    await bench.end(first, Completed())
    assert await bench.claim(1) == []
    assert await join(bench, "c") == Join(2, 1)
    await bench.end(second, Completed())

    assert (await bench.one()).job.id == "c"


async def test_a_diamond_runs_in_its_order(bench: Bench) -> None:
    """P17."""
    await flow(
        bench,
        node("top", "left", "right"),
        node("left", "end", after=1),
        node("right", "end", after=1),
        node("end", after=2),
    )

    await run(bench, "top")
    left, right = await bench.claim(10)
    for lease in (right, left):
        assert await bench.state("end") is State.WAITING
        await bench.end(lease, Completed())
    await run(bench, "end")


async def test_a_waiting_job_shows_what_it_awaits(bench: Bench) -> None:
    """P14: to readers and to explain; it counts as waiting, and time does not make it due."""
    await flow(bench, node("a", "b"), node("b", after=1))

    found = await bench.get("b")
    assert (found.state, found.awaits, found.attempt) == (State.WAITING, await_join(""), 0)
    assert set(await bench.gates("b")) == {BlockerKind.AWAITS}
    bench.clock.advance(366 * 24 * 3600)
    assert ids(await bench.claim(10)) == ["a"]


async def test_the_edges_of_a_job_are_read_with_its_journal(bench: Bench) -> None:
    """P14."""
    bench.needs("steps")
    edges = (Edge("b", "", SKIP), Edge("c", "pages", RUN))
    await bench.add(job("a", edges=edges))

    find = Find(select=Selection(tenant=ACME, ids=("a",)), journals=True)

    assert tuple((await bench.store.find(find)).journals[Ref(ACME, "a")].edges) == edges


async def test_a_released_child_keeps_its_delay_and_priority(bench: Bench) -> None:
    """P9: what was asked at its enqueue still holds."""
    await flow(
        bench,
        node("a", "b", "c", "d"),
        node("b", after=1, priority=1),
        node("c", after=1, priority=5),
        node("d", after=1, run_at=bench.clock.now() + 30 * SECOND),
    )
    await run(bench, "a")

    assert ids(await bench.claim(10)) == ["c", "b"]
    assert await bench.state("d") is State.SCHEDULED
    bench.clock.advance(30)
    assert ids(await bench.claim(10)) == ["d"]


async def test_the_release_of_a_child_is_an_event(bench: Bench) -> None:
    """P14."""
    await flow(bench, node("a", "b"), node("b", after=1))
    await run(bench, "a")

    assert await bench.kinds("b") == [EventKind.ENQUEUED, EventKind.READY]


async def test_a_released_child_wakes_an_idle_worker(bench: Bench) -> None:
    """P10."""
    await flow(bench, node("a", "b"), node("b", after=1, queue="other"))
    [lease] = await bench.claim(1)

    async with asleep(bench, Watch(tenants=(ACME,), queues=("other",))) as sleeper:
        assert not sleeper.done()
        await bench.end(lease, Completed())

    assert sleeper.done()


# -- acts on waiting jobs --------------------------------------------------------------------------


async def test_nothing_but_its_parents_makes_a_waiting_job_ready(bench: Bench) -> None:
    """P17: neither a reschedule nor a signal; a new instant holds once it is released."""
    await flow(bench, node("a", "b"), node("b", after=1))
    await bench.store.change(changing(Act.RESCHEDULE, ids=("b",), delay_us=0))
    await bench.send("b", "go")
    assert ids(await bench.claim(10)) == ["a"]
    assert await bench.state("b") is State.WAITING


async def test_a_waiting_job_expires_at_its_time_to_live(bench: Bench) -> None:
    """P17: and so tells its own children."""
    await flow(bench, node("a", "b"), node("b", "c", after=1, ttl_us=SECOND), node("c", after=1))
    bench.clock.advance(2)

    await bench.upkeep()

    assert (await bench.get("b")).reason is Reason.EXPIRED
    assert (await bench.get("c")).reason is Reason.PARENT_FAILED


async def test_a_waiting_job_can_be_deleted(bench: Bench) -> None:
    """P17: its children are told, its parents do not miss it."""
    await flow(bench, node("a", "b"), node("b", "c", after=1, how=RUN), node("c", after=1))
    await bench.store.change(changing(Act.DELETE, ids=("b",)))

    assert set(ids(await bench.claim(10))) == {"a", "c"}


# -- joins of a run --------------------------------------------------------------------------------


async def fan_out(bench: Bench, number: int, how: OnFailure = RUN) -> None:
    """A job "p" that has parked to await so many children."""
    bench.needs("steps")
    lease = await bench.held("p")
    assert (await bench.extend(lease, entries=(new_join("lines", number),))).error is None
    edge = Edge("p", "lines", how)
    children = [job(f"c{n}", edges=(edge,)) for n in range(number)]
    assert all(answer.created for answer in await bench.add(*children))
    await bench.park(lease, await_join("lines"))


async def test_a_parked_job_wakes_when_its_last_child_has_ended(bench: Bench) -> None:
    """P17: whether they completed or not."""
    await fan_out(bench, 3)
    first, second, third = await bench.claim(10)
    await bench.end(first, Completed())
    await bench.end(second, Failed("no", retryable=False))
    assert await bench.claim(1) == []

    await bench.cancel(third.job.id)

    lease = await bench.one()
    assert lease.job.id == "p"
    assert [join_of(entry) for entry in lease.journal] == [Join(3, 0, 2)]


async def test_children_may_end_before_their_parent_parks(bench: Bench) -> None:
    """P17: then parking makes it ready at once."""
    bench.needs("steps")
    lease = await bench.held("p")
    await bench.extend(lease, entries=(new_join("lines", 1),))
    await bench.add(job("c", edges=(Edge("p", "lines", RUN),)))
    await run(bench, "c")

    answer = await bench.park(lease, await_join("lines"))

    assert answer.state is State.ENQUEUED
    assert (await bench.one()).job.id == "p"


async def test_a_failed_child_does_not_end_a_parent_that_has_parked(bench: Bench) -> None:
    """P17: what a parent does about it is its own decision, when it runs again."""
    await fan_out(bench, 1, FAIL)

    await bench.end(await bench.one(), Failed("no", retryable=False))

    assert (await bench.one()).job.id == "p"


async def test_an_edge_into_another_join_wakes_nothing(bench: Bench) -> None:
    """P17: nor does one more end than the join awaits."""
    await fan_out(bench, 1)
    await bench.add(job("x", edges=(Edge("p", "other", RUN), Edge("nobody", "", RUN))))
    one, two = await bench.claim(10)
    await bench.end(two if one.job.id == "c0" else one, Completed())
    assert await join(bench, "p", "lines") == Join(1, 1)
    await bench.end(one if one.job.id == "c0" else two, Completed())
    await bench.add(job("late", edges=(Edge("p", "lines", RUN),)))

    assert set(ids(await bench.claim(10))) == {"p", "late"}


async def test_edges_do_not_reach_other_tenants(bench: Bench) -> None:
    """P7: an edge names a job of its own tenant, whatever others have of that id."""
    await flow(bench, node("a", "b", tenant=GLOBEX), node("b", after=1))

    [lease] = await bench.claim(10)
    await bench.end(lease, Completed())

    assert await bench.state("b") is State.WAITING


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (job("a", edges=(Edge(""),)), "target"),
        (job("a", edges=(Edge("x" * (ID_MAX + 1)),)), "target"),
        (job("a", edges=(Edge("b", "a\nb"),)), "join"),
        (job("a", edges=(Edge("b"),) * (EDGES_MAX + 1)), "edges"),
        (job("a", parents=-1), "parents"),
        (job("a", parents=PARENTS_MAX + 1), "parents"),
    ],
)
def test_edges_that_cannot_be_stored_are_refused(wrong: NewJob, field: str) -> None:
    """P15: with the name of the field."""
    with pytest.raises(InvalidInput) as refused:
        check_new(wrong)

    assert refused.value.field == field


async def test_waiting_jobs_are_counted(bench: Bench) -> None:
    """P13: as waiting, until they are released."""
    await flow(bench, node("a", "b"), node("b", after=1))
    [tally] = await bench.store.count(ACME, part=MAIL)
    assert (tally.counts.get(State.WAITING), tally.counts.get(State.ENQUEUED)) == (1, 1)

    await run(bench, "a")

    [tally] = await bench.store.count(ACME, part=MAIL)
    assert (tally.counts.get(State.WAITING, 0), tally.counts.get(State.ENQUEUED)) == (0, 1)
