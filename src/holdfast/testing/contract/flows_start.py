"""The start of a flow: all of its jobs or none, once, whatever is cut off (P12, P15, P17)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from holdfast.core.bounds import START_S
from holdfast.core.errors import FlowRefused, InvalidInput, JobNotFound
from holdfast.core.flow import BEGIN, GUARD, own_id
from holdfast.core.job import State
from holdfast.core.scope import Scope
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME
from holdfast.testing.contract.flowing import Died, Flowing
from holdfast.workflow import plan
from holdfast.workflow.batch import Batch
from holdfast.workflow.flow import Flow
from holdfast.workflow.run import FlowState


def chain(at: Flowing, key: str | None = "k") -> Flow:
    """Two first nodes, one after both, and a last job."""
    flow = Flow("chain", key=key)
    both = [flow.add(at.step("one")), flow.add(at.step("two"))]
    flow.add(at.step("three"), after=both)
    flow.finally_(at.step("last"))
    return flow


async def walk(at: Flowing, times: int = 5) -> None:
    """Runs what is due, and what becomes due later."""
    for _ in range(times):
        await at.run()
        at.bench.clock.advance(START_S + 1)
    await at.run()


def small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on flows of more than one node are made in several calls."""
    monkeypatch.setattr(plan, "CALL_MAX", 1)
    monkeypatch.setattr("holdfast.workflow.start.BATCH_MAX", 2)


# -- once ------------------------------------------------------------------------------------------


async def test_a_flow_is_started_once_for_its_key(bench: Bench) -> None:
    """P12: also after it has ended, and whoever has built it."""
    at = Flowing(bench)
    first = await at.acme.start(chain(at))
    again = await at.acme.start(chain(at))
    await walk(at)
    late = await at.acme.start(chain(at))
    await walk(at)

    assert (first.created, again.created, late.created) == (True, False, False)
    assert first.id == again.id == late.id
    assert sorted(at.ran) == ["last", "one", "three", "two"]
    assert (await at.acme.start(chain(at, "other"))).id != first.id


async def test_the_same_flow_object_is_started_once(bench: Bench) -> None:
    """P12: a caller that got no answer calls again."""
    at = Flowing(bench)
    flow = chain(at, None)
    first, again = await at.acme.start(flow), await at.acme.start(flow)

    assert first.id == again.id
    assert len(await at.jobs()) == 4


# -- refused ---------------------------------------------------------------------------------------


async def test_a_key_that_another_job_holds_refuses_the_flow(bench: Bench) -> None:
    """P12, P17: an earlier job is no node; nothing is left of the flow."""
    at = Flowing(bench)
    await at.acme.enqueue(at.step("three"), key="taken", delay=3600)
    flow = Flow("keyed")
    one = flow.add(at.step("one"))
    flow.add(at.step("three").with_options(key="taken"), after=one)

    with pytest.raises(FlowRefused, match="step#1: its key 'taken' is held by another job"):
        await at.acme.start(flow)

    assert len(await at.jobs()) == 1
    await at.run()
    assert at.ran == []


async def test_a_tenant_without_room_refuses_the_flow(bench: Bench) -> None:
    """P15: nothing of it is left, so that it can be started when there is room."""
    at = Flowing(bench)
    await bench.configure(Scope(ACME), max_queued=3)

    with pytest.raises(FlowRefused, match=r"step#1.*full|step#0.*full|step#2.*full"):
        await at.acme.start(chain(at))
    assert await at.jobs() == []

    await bench.configure(Scope(ACME), max_queued=4)
    await at.acme.start(chain(at))
    await walk(at)
    assert sorted(at.ran) == ["last", "one", "three", "two"]


async def test_concurrent_starts_do_not_harm_each_other(bench: Bench) -> None:
    """P15: they share calls of the store; one that is refused is alone in that."""
    at = Flowing(bench)
    await at.acme.enqueue(at.step("x"), key="taken", delay=3600)

    def one(number: int) -> Flow:
        flow = Flow("many", key=f"{number // 2}")
        first = flow.add(at.step(f"first {number // 2}"))
        key = "taken" if number == 7 else None
        flow.add(at.step(f"then {number // 2}").with_options(key=key), after=first)
        return flow

    runs = await asyncio.gather(
        *(at.acme.start(one(number)) for number in range(20) if number != 6),
        return_exceptions=True,
    )

    refused = [run for run in runs if isinstance(run, BaseException)]
    assert [type(each) for each in refused] == [FlowRefused]
    started = [run for run in runs if not isinstance(run, BaseException)]
    assert sum(run.created for run in started) == 9
    await at.run()
    wanted = [name for n in range(10) if n != 3 for name in (f"first {n}", f"then {n}")]
    assert sorted(at.ran) == sorted(wanted)
    states = {(await run.status()).state for run in started}
    assert states == {FlowState.COMPLETED}


# -- cut off ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("large", [False, True], ids=["one call", "several calls"])
async def test_a_start_that_is_cut_off_leaves_all_or_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, large: bool, late: bool
) -> None:
    """P15, P17: whichever call its caller died at, no job waits for ever."""
    if large:
        small_calls(monkeypatch)
    for number in range(1, 9):
        at = Flowing(bench, at=number, late=late)
        with suppress(Died):
            await at.acme.start(chain(at, f"{large} {late} {number}"))
        whole = not at.mortal.dead
        at.mortal.revive()
        await walk(at)

        assert sorted(at.ran) in ([], ["last", "one", "three", "two"])
        assert await at.alive() == []
        if whole:
            assert at.ran
            return
    raise AssertionError("the start makes more calls than were tried")


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_a_repeat_finishes_a_start_that_was_cut_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """P12: the same key, from another process."""
    small_calls(monkeypatch)
    for number in range(1, 8):
        at = Flowing(bench, at=number, late=late)
        with suppress(Died):
            await at.acme.start(chain(at, f"{late} {number}"))
        at.mortal.revive()

        run = await at.acme.start(chain(at, f"{late} {number}"))

        await walk(at)
        assert (await run.status()).state is FlowState.COMPLETED
        assert sorted(at.ran) == ["last", "one", "three", "two"]
        assert await at.alive() == []


async def test_a_start_that_comes_too_late_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: the guard has decided; nothing runs, and a later start is a new one."""
    small_calls(monkeypatch)
    dead = Flowing(bench, at=4)
    with pytest.raises(Died):
        await dead.acme.start(chain(dead))
    at = Flowing(bench)
    bench.clock.advance(START_S + 1)
    await at.run(max_jobs=1)
    assert {job.type for job in await at.jobs()} == {GUARD}

    with pytest.raises(FlowRefused, match="was given up"):
        await at.acme.start(chain(at))

    assert {job.type for job in await at.jobs()} == {GUARD}
    await walk(at, 3)
    assert await at.jobs() == []
    assert (await at.acme.start(chain(at))).created
    await walk(at)
    assert sorted(at.ran) == ["last", "one", "three", "two"]


async def test_a_refusal_that_is_cut_off_is_finished(bench: Bench) -> None:
    """P15: the caller of a start that was refused dies before it has removed the rest."""
    holder = Flowing(bench)
    held = await holder.acme.enqueue(holder.step("x"), key="taken", delay=10**7)
    for number in range(1, 9):
        at = Flowing(bench, at=number, late=True)
        flow = Flow("keyed", key=f"{number}")
        flow.add(at.step("last"), after=flow.add(at.step("one").with_options(key="taken")))
        try:
            await at.acme.start(flow)
        except FlowRefused:
            break
        except Died:
            at.mortal.revive()
        await walk(at)
        assert at.ran == []
        assert [(job.id, job.key) for job in await at.alive()] == [(held.id, "taken")]
    else:
        raise AssertionError("the start was never refused")


async def test_a_large_flow_has_a_begin_and_runs_in_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P17: nothing of it runs before its last job is there."""
    small_calls(monkeypatch)
    at = Flowing(bench)
    run = await at.acme.start(chain(at))

    waiting = {job.id for job in await at.jobs() if job.state is State.WAITING}
    assert len(waiting) == 4
    assert (await bench.get(own_id(run.id, BEGIN))).state is State.ENQUEUED
    assert await at.ended(run) is FlowState.COMPLETED
    assert at.ran[2:] == ["three", "last"]


async def test_nodes_that_outlive_their_head_do_not_spoil_a_later_start(bench: Bench) -> None:
    """P12: the key of a flow is free when its head is gone; then all of it is made anew."""
    at = Flowing(bench)

    def kept() -> Flow:
        flow = Flow("kept", key="k")
        flow.add(at.step("after"), after=flow.add(at.step("one").with_options(keep=10**6)))
        return flow

    first = await at.acme.start(kept())
    await at.run()
    bench.clock.advance(7200)
    await bench.store.prune(1000, 0)
    assert [job.id for job in await at.jobs()] == [f"{first.id}-0"]

    again = await at.acme.start(kept())

    assert again.created
    assert await at.ended(again) is FlowState.COMPLETED
    assert at.ran == ["one", "after", "one", "after"]


# -- other tenants, other jobs, bad input ----------------------------------------------------------


async def test_a_flow_of_another_tenant_is_not_found(bench: Bench) -> None:
    """P7."""
    at = Flowing(bench)
    run = await at.acme.start(chain(at))
    theirs = at.app.tenant("globex").flow(run.id)

    for call in (theirs.status, theirs.cancel, theirs.retry, theirs.nodes, theirs.wait):
        with pytest.raises(JobNotFound):
            await call()
    assert (await at.app.tenant("globex").flows()).flows == []
    with pytest.raises(JobNotFound):
        await at.acme.flow((await run.nodes())[0].id).status()


async def test_flows_are_listed_by_name_and_state(bench: Bench) -> None:
    """P14: newest first, in pages."""
    at = Flowing(bench)
    one = await at.acme.start(chain(at, "1"))
    await walk(at, 1)
    batch = Batch("batch")
    batch.add(at.step("a"))
    two = await at.acme.start(batch)
    three = await at.acme.start(chain(at, "3"))

    async def listed(**wanted: Any) -> list[str]:
        return [flow.id for flow in (await at.acme.flows(**wanted)).flows]

    assert await listed() == [three.id, two.id, one.id]
    assert await listed(name="chain") == [three.id, one.id]
    assert await listed(states=["running"]) == [three.id, two.id]
    assert await listed(states=["completed", "failed"]) == [one.id]
    page = await at.acme.flows(limit=2)
    assert await listed(after=page.cursor, limit=2) == [one.id]
    with pytest.raises(InvalidInput, match="Did you mean 'running'"):
        await at.acme.flows(states=["runing"])
