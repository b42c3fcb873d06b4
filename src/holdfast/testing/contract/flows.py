"""Flows: order, results of parents, failures, maps, the end of a flow, batches (P17)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.context import Context
from holdfast.core.errors import JobFailed
from holdfast.core.job import Reason, State
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.flowing import Flowing
from holdfast.workflow.batch import Batch
from holdfast.workflow.flow import Flow
from holdfast.workflow.run import FlowState

DONE, BAD, OUT = State.COMPLETED, State.FAILED, State.CANCELED

# -- order and results -----------------------------------------------------------------------------


async def test_a_diamond_runs_in_order_with_the_results_of_its_parents(bench: Bench) -> None:
    """P17: each child after its parents, with their results as typed arguments."""
    at = Flowing(bench)
    flow = Flow("diamond")
    top = flow.add(at.step("top"))
    left, right = (flow.add(at.step(name), after=top) for name in ("left", "right"))
    flow.add(at.total("end", parts=flow.results([left, right])))
    run = await at.acme.start(flow)

    assert {job.state for job in await at.alive()} == {State.WAITING, State.ENQUEUED}
    assert await at.ended(run) is FlowState.COMPLETED

    assert at.ran[0] == "top"
    assert set(at.ran[1:3]) == {"left", "right"}
    assert at.ran[3] == "end"
    end = (await run.nodes())[3]
    assert await at.acme.wait(end.id) == "left+right"


async def test_the_status_of_a_flow_counts_its_nodes(bench: Bench) -> None:
    """P13: it is kept with each end; no job is read for it."""
    at = Flowing(bench)
    flow = Flow("chain")
    first = flow.add(at.step("one"))
    flow.add(at.step("two"), after=first)
    run = await at.acme.start(flow)

    status = await run.status()
    assert (status.state, status.total, status.left) == (FlowState.RUNNING, 2, 2)
    await at.run(max_jobs=1)
    assert (await run.status()).left == 1
    await at.run(max_jobs=1)
    status = await run.wait()
    assert (status.state, status.left, status.failed) == (FlowState.COMPLETED, 0, 0)


async def test_a_flow_with_last_jobs_is_finishing_while_these_run(bench: Bench) -> None:
    """P17: its nodes have ended, it has not."""
    at = Flowing(bench)
    flow = Flow("chain")
    flow.add(at.step("one"))
    flow.finally_(at.step("last"))
    run = await at.acme.start(flow)

    await at.run(max_jobs=1)

    assert (await run.status()).state is FlowState.FINISHING
    assert await at.ended(run) is FlowState.COMPLETED
    assert at.ran == ["one", "last"]


async def test_an_argument_that_does_not_fit_fails_the_child_alone(bench: Bench) -> None:
    """P16: with a text that names the argument and the job that its value comes from."""
    at = Flowing(bench)
    flow = Flow("wrong")
    parts: Any = flow.add(at.step("one")).result()
    flow.add(at.total("sum", parts=parts))
    run = await at.acme.start(flow)

    assert await at.ended(run) is FlowState.FAILED

    one, wrong = await run.nodes()
    found = await bench.get(wrong.id)
    assert (found.reason, found.attempt) == (Reason.DECODE, 1)
    assert f"argument 'parts', the result of job {one.id}, does not fit" in (found.error or "")


async def test_results_are_kept_until_the_flow_has_ended(bench: Bench) -> None:
    """P17: also those of jobs that are not kept at all otherwise."""
    at = Flowing(bench)
    flow = Flow("kept")
    one = flow.add(at.step("one").with_options(keep=0))
    slow = flow.add(at.step("slow").with_options(delay=7200))
    flow.add(at.total("sum", parts=flow.results([one])), after=slow)
    run = await at.acme.start(flow)
    await at.run()
    bench.clock.advance(7200)
    await bench.store.prune(1000, 1)

    assert await at.ended(run) is FlowState.COMPLETED
    assert at.ran == ["one", "slow", "sum"]


# -- failures --------------------------------------------------------------------------------------


async def test_a_failed_node_fails_runs_or_skips_the_ones_after_it(bench: Bench) -> None:
    """P17: as each of them says; the flow fails and names what failed."""
    at = Flowing(bench)
    at.broken = {"bad"}
    flow = Flow("failing")
    bad = flow.add(at.step("bad"))
    flow.add(at.step("fails"), after=bad)
    flow.add(at.step("runs"), after=bad, on_failure="run")
    flow.add(at.step("skipped"), after=bad, on_failure="skip")
    run = await at.acme.start(flow)

    assert await at.ended(run) is FlowState.FAILED

    assert at.ran == ["runs"]
    assert await at.states(run) == [BAD, BAD, DONE, OUT]
    with pytest.raises(JobFailed, match=r"3 of 4 nodes failed: step \(flow-.*-0\): bad is broken"):
        await run.wait()


async def test_a_missing_result_is_none_where_the_child_runs_all_the_same(bench: Bench) -> None:
    """P16, P17."""
    at = Flowing(bench)
    at.broken = {"bad"}
    seen: list[str | None] = []

    @at.app.job(queue="work")
    async def lenient(ctx: Context, got: str | None) -> None:
        seen.append(got)

    flow = Flow("lenient")
    bad = flow.add(at.step("bad"))
    flow.add(lenient(got=bad.result()), on_failure="run")
    flow.add(at.undone(what=bad.result()), on_failure="run")
    run = await at.acme.start(flow)
    await at.run()

    assert seen == [None]
    error = (await run.nodes())[2].error or ""
    assert "argument 'what', the result of job" in error
    assert "which is failed" in error


# -- maps ------------------------------------------------------------------------------------------


async def test_a_map_makes_a_job_of_each_item(bench: Bench) -> None:
    """P17: when the list is there; their results reach the next node in order."""
    at = Flowing(bench)
    flow = Flow("map")
    pages = flow.add(at.split("p", 3))
    parsed = flow.map(at.step, over=pages, most=3)
    flow.add(at.total("sum", parts=parsed.results()))
    run = await at.acme.start(flow)

    assert await at.ended(run) is FlowState.COMPLETED

    assert at.ran[0] == "p"
    assert sorted(at.ran[1:4]) == ["p0", "p1", "p2"]
    assert await at.acme.wait((await run.nodes())[2].id) == "p0+p1+p2"


async def test_a_map_over_a_map_and_over_nothing(bench: Bench) -> None:
    """P17."""
    at = Flowing(bench)
    flow = Flow("maps")
    parsed = flow.map(at.step, over=flow.add(at.split("p", 2)))
    again = flow.map(at.step, over=parsed)
    flow.add(at.total("sum", parts=again.results()))
    none = flow.map(at.step, over=flow.add(at.split("none", 0)))
    flow.add(at.total("empty", parts=none.results()))
    run = await at.acme.start(flow)

    assert await at.ended(run) is FlowState.COMPLETED
    nodes = await run.nodes()
    assert await at.acme.wait(nodes[3].id) == "p0+p1"
    assert await at.acme.wait(nodes[6].id) == ""


async def test_a_map_that_is_too_large_or_no_list_fails(bench: Bench) -> None:
    """P16: before it makes a job, with a text that says why."""
    at = Flowing(bench)
    flow = Flow("wrong")
    flow.map(at.step, over=flow.add(at.split("p", 4)), most=3)
    flow.map(at.step, over=flow.add(at.step("text")))
    run = await at.acme.start(flow)

    assert await at.ended(run) is FlowState.FAILED
    errors = [node.error or "" for node in await run.nodes()]
    assert "the list to map over has 4 items, at most 3" in errors[1]
    assert "the result to map over is no list but str" in errors[3]
    assert len(at.ran) == 2


async def test_a_failed_item_fails_the_map_and_the_rest_can_be_used(bench: Bench) -> None:
    """P17: by a node that runs all the same."""
    at = Flowing(bench)
    at.broken = {"p1"}
    flow = Flow("partial")
    parsed = flow.map(at.step, over=flow.add(at.split("p", 3)))
    flow.add(at.total("sum", parts=parsed.results()), on_failure="run")
    run = await at.acme.start(flow)

    assert await at.ended(run) is FlowState.FAILED
    nodes = await run.nodes()
    assert "1 of 3 jobs failed" in (nodes[1].error or "")
    assert "p1 is broken" in (nodes[1].error or "")
    assert await at.acme.wait(nodes[2].id) == "p0+p2"


# -- batches and flows in flows --------------------------------------------------------------------


async def test_a_batch_calls_back_once_with_the_results(bench: Bench) -> None:
    """P17: when all have ended, however."""
    at = Flowing(bench)
    at.broken = {"b"}
    batch = Batch("import")
    batch.add_many(at.step(name) for name in "abc")
    batch.then(at.total("done", parts=batch.results()))
    run = await at.acme.start(batch)
    await at.run()

    assert at.ran.count("done") == 1
    assert await at.acme.wait((await run.nodes())[3].id) == "a+c"


async def test_an_empty_batch_calls_back_at_once(bench: Bench) -> None:
    """P17: zero jobs have all ended."""
    at = Flowing(bench)
    batch = Batch("empty")
    batch.then(at.total("done", parts=batch.results()))
    run = await at.acme.start(batch)

    assert await at.ended(run) is FlowState.COMPLETED
    assert at.ran == ["done"]


async def test_a_flow_in_a_flow_is_copied_into_it(bench: Bench) -> None:
    """P17: its first nodes come after what it was added after, its last ones before the next."""
    at = Flowing(bench)
    inner = Flow("inner")
    first = inner.add(at.step("in 1"))
    inner.add(at.total("in 2", parts=inner.results([first])), after=first)
    outer = Flow("outer")
    begin = outer.add(at.step("begin"))
    middle = outer.add(inner, after=begin)
    outer.add(at.undone(what=first.result()), after=middle)
    run = await at.acme.start(outer)

    assert await at.ended(run) is FlowState.COMPLETED
    assert at.ran == ["begin", "in 1", "in 2", "undo in 1"]
