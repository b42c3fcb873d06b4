"""The end of a flow: compensations, last jobs, cancel and retry (P5, P6, P17)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from holdfast.core.bounds import START_S
from holdfast.core.errors import InvalidInput, JobCanceled, NotChangeable
from holdfast.core.flow import CANCEL, QUEUE, own_id
from holdfast.core.job import Completed, State
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, changing
from holdfast.testing.contract.flowing import Died, Flowing
from holdfast.workflow.flow import Flow
from holdfast.workflow.run import FlowRun, FlowState

DONE, BAD, OUT = State.COMPLETED, State.FAILED, State.CANCELED


def booking(at: Flowing, *broken: str) -> Flow:
    """Three steps in a row, of which two can be undone, and a last job."""
    at.broken = set(broken)
    flow = Flow("booking")
    hotel = flow.add(at.step("hotel"))
    plane = flow.add(at.step("plane"), after=hotel)
    flow.add(at.step("car"), after=plane)
    flow.undo(hotel, at.undone)
    flow.undo(plane, at.undone(what="the plane"))
    flow.finally_(at.step("last"))
    return flow


# -- compensations and last jobs -------------------------------------------------------------------


async def test_a_flow_that_completes_undoes_nothing_and_ends_with_its_last_job(
    bench: Bench,
) -> None:
    """P17."""
    at = Flowing(bench)
    run = await at.acme.start(booking(at))

    assert await at.ended(run) is FlowState.COMPLETED
    assert at.ran == ["hotel", "plane", "car", "last"]


async def test_completed_nodes_are_undone_in_reverse_order(bench: Bench) -> None:
    """P17: one after the other, then the last job, each once."""
    at = Flowing(bench)
    flow = booking(at, "car")
    run = await at.acme.start(flow)
    await at.run(max_jobs=1)
    bench.clock.advance(1)

    assert await at.ended(run) is FlowState.FAILED
    assert at.ran == ["hotel", "plane", "undo the plane", "undo hotel", "last"]


async def test_what_did_not_complete_is_not_undone(bench: Bench) -> None:
    """P17."""
    at = Flowing(bench)
    run = await at.acme.start(booking(at, "plane"))

    assert await at.ended(run) is FlowState.FAILED
    assert at.ran == ["hotel", "undo hotel", "last"]


async def test_a_compensation_that_fails_does_not_stop_the_others(bench: Bench) -> None:
    """P17: the flow's error names it."""
    at = Flowing(bench)
    flow = booking(at, "car", "undo the plane", "last")
    run = await at.acme.start(flow)

    assert await at.ended(run) is FlowState.FAILED
    assert at.ran == ["hotel", "plane", "undo hotel"]
    error = (await run.status()).error or ""
    for part in ("1 of 3 nodes failed", "undo the plane is broken", "finally: step"):
        assert part in error


async def rescued(bench: Bench, id: str) -> None:
    """Its worker dies at its last attempt."""
    for _ in range(3):
        await bench.one(queues=("work",))
        bench.clock.advance(61)
        await bench.upkeep()
        bench.clock.advance(3600)


async def canceled(bench: Bench, id: str) -> None:
    assert (await bench.cancel(id)).canceled


async def deleted(bench: Bench, id: str) -> None:
    await bench.store.change(changing(Act.DELETE, ids=(id,)))


async def expired(bench: Bench, id: str) -> None:
    bench.clock.advance(11)
    await bench.upkeep()


@pytest.mark.parametrize("end", [rescued, canceled, deleted, expired], ids=lambda end: end.__name__)
async def test_the_callback_runs_once_whatever_ended_the_last_node(bench: Bench, end: Any) -> None:
    """P17: a rescue, a cancel, a deletion and a time to live count as an ack does."""
    at = Flowing(bench)
    flow = Flow("ends")
    flow.add(at.step("first"))
    flow.add(at.step("last").with_options(priority=-1, ttl=10.0 if end is expired else 10**6))
    flow.finally_(at.step("callback"))
    run = await at.acme.start(flow)
    await at.run(max_jobs=1)

    await end(bench, (await run.nodes())[1].id)
    await at.run()
    await at.run()

    assert at.ran == ["first", "callback"]
    assert (await run.status()).state is FlowState.FAILED


# -- cancel ----------------------------------------------------------------------------------------


async def test_a_canceled_flow_is_undone_and_ends_with_its_last_job(bench: Bench) -> None:
    """P5, P17: no node runs any more, waiting ones included."""
    at = Flowing(bench)
    run = await at.acme.start(booking(at))
    await at.run(max_jobs=1)

    assert await run.cancel()

    assert await at.states(run) == [DONE, OUT, OUT]
    assert await at.ended(run) is FlowState.CANCELED
    assert at.ran == ["hotel", "undo hotel", "last"]
    with pytest.raises(JobCanceled):
        await run.wait()
    assert await run.cancel()
    assert await at.alive() == []


async def test_a_flow_that_has_ended_is_not_canceled(bench: Bench) -> None:
    """P5."""
    at = Flowing(bench)
    run = await at.acme.start(booking(at))
    await at.run()

    assert not await run.cancel()
    assert (await run.status()).state is FlowState.COMPLETED


async def test_a_cancel_reaches_the_jobs_of_a_map(bench: Bench) -> None:
    """P5, P17: and a helper looks once more, because a map may have been making some."""
    at = Flowing(bench)
    flow = Flow("map")
    flow.map(at.step, over=flow.add(at.split("p", 5)))
    run = await at.acme.start(flow)
    await at.run(max_jobs=2)
    assert len(await at.alive()) == 7

    await run.cancel()

    assert await at.ended(run) is FlowState.CANCELED
    assert at.ran == ["p"]
    bench.clock.advance(60)
    await at.run()
    bench.clock.advance(60)
    await at.run()
    assert await at.alive() == []


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_a_cancel_that_is_cut_off_is_finished(bench: Bench, late: bool) -> None:
    """P5, P17: once it has left its mark, wherever its caller died, a worker finishes it."""
    for at_call in range(2, 8):
        at = Flowing(bench, late=late)
        run = await at.acme.start(booking(at))
        await at.run(max_jobs=1)
        before = len(at.mortal.calls)
        at.mortal.left = at_call
        with suppress(Died):
            await run.cancel()
        if len(at.mortal.calls) - before < at_call:
            break
        at.mortal.revive()
        helped = await bench.peek(own_id(run.id, CANCEL), ACME) is not None
        bench.clock.advance(11)
        await at.run(queues=[QUEUE])
        state = await at.ended(run)
        marked = helped or state is FlowState.CANCELED
        assert state is (FlowState.CANCELED if marked else FlowState.COMPLETED)
        if marked:
            assert at.ran == ["hotel", "undo hotel", "last"]
        assert await at.alive() == []


# -- retry -----------------------------------------------------------------------------------------


async def graph(at: Flowing, *broken: str) -> FlowRun:
    """bad -> after (fails), bad -> always (runs); good -> use (its result)."""
    at.broken = set(broken)
    flow = Flow("graph")
    bad = flow.add(at.step("bad"))
    good = flow.add(at.step("good"))
    flow.add(at.step("always"), after=bad, on_failure="run")
    flow.add(at.total("use", parts=flow.results([bad, good])), after=[bad, good])
    run = await at.acme.start(flow)
    await at.run()
    at.ran.clear()
    return run


@pytest.mark.parametrize(
    ("mode", "ran"),
    [
        ("all", ["bad", "good", "always", "use"]),
        ("failed_only", ["bad", "use"]),
        ("failed_and_downstream", ["bad", "always", "use"]),
    ],
)
async def test_a_retry_makes_nodes_again_and_takes_over_the_others(
    bench: Bench, mode: str, ran: list[str]
) -> None:
    """P6, P17: with the results of the ones it takes over; it names its origin."""
    at = Flowing(bench)
    first = await graph(at, "bad")
    at.broken.clear()

    again = await first.retry(mode)

    assert again.created
    assert await at.ended(again) is FlowState.COMPLETED
    assert sorted(at.ran) == sorted(ran)
    status = await again.status()
    assert (status.origin, status.total, status.taken) == (first.id, len(ran), 4 - len(ran))
    nodes = await again.nodes()
    assert [node.state for node in nodes] == [DONE] * 4
    assert await at.acme.wait(nodes[3].id) == "bad+good"
    assert (await first.status()).state is FlowState.FAILED


async def test_a_flow_is_retried_once_and_its_retry_can_be_retried(bench: Bench) -> None:
    """P6."""
    at = Flowing(bench)
    first = await graph(at, "bad")
    second = await first.retry()
    assert (await first.retry("all")).id == second.id
    with pytest.raises(NotChangeable):
        await second.retry()
    await at.run()
    at.broken.clear()
    at.ran.clear()

    third = await second.retry("failed_only")

    assert await at.ended(third) is FlowState.COMPLETED
    assert sorted(at.ran) == ["bad", "use"]
    assert (await third.status()).origin == second.id
    with pytest.raises(InvalidInput, match="every node has completed"):
        await third.retry()


async def test_a_node_that_was_undone_is_made_again(bench: Bench) -> None:
    """P6: what it did is no longer there."""
    at = Flowing(bench)
    first = await at.acme.start(booking(at, "car"))
    await at.run()
    at.broken.clear()
    at.ran.clear()

    assert await at.ended(await first.retry("failed_only")) is FlowState.COMPLETED
    assert at.ran == ["hotel", "plane", "car", "last"]


async def test_a_retried_map_makes_its_jobs_again(bench: Bench) -> None:
    """P6, P17: from the list of the node that is taken over."""
    at = Flowing(bench)
    at.broken = {"p1"}
    flow = Flow("map")
    parsed = flow.map(at.step, over=flow.add(at.split("p", 2)))
    flow.add(at.total("sum", parts=parsed.results()))
    first = await at.acme.start(flow)
    await at.run()
    at.broken.clear()

    again = await first.retry()

    assert await at.ended(again) is FlowState.COMPLETED
    assert at.ran == ["p", "p0", "p0", "p1", "sum"]


# -- the head --------------------------------------------------------------------------------------


async def test_a_head_cannot_be_replayed_as_a_job(bench: Bench) -> None:
    """P6: it has no nodes then, and says what to do instead."""
    at = Flowing(bench)
    run = await at.acme.start(booking(at, "car"))
    await at.run()
    at.ran.clear()

    copy = await at.acme.replay(run.id)
    await at.run()

    assert at.ran == []
    assert "retry the flow instead" in ((await at.acme.get(copy)).error or "")


async def test_no_job_is_left_when_a_flow_has_ended(bench: Bench) -> None:
    """P17: neither a guard nor a helper."""
    at = Flowing(bench)
    run = await at.acme.start(booking(at))
    outcomes = await at.run()

    assert all(
        not isinstance(one.outcome, Completed) or one.answer.error is None for one in outcomes
    )
    assert await at.alive() == []
    bench.clock.advance(START_S * 3)
    assert await at.run() == []
    assert (await at.acme.flows()).flows[0].id == run.id
