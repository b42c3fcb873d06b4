"""Stopping: what runs may finish, the rest goes back, and no attempt is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from holdfast import Context, State
from holdfast.core.job import EventKind

if TYPE_CHECKING:
    from tests.worker.conftest import MakeYard, Yard


async def test_stop_lets_running_jobs_finish(yard: Yard) -> None:
    """Their results are stored before `run` returns; nothing new is claimed."""
    started, gate = asyncio.Event(), asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> str:
        started.set()
        await gate.wait()
        return "finished"

    id = await yard.put(work())
    worker = yard.start()
    await started.wait()
    worker.stop()
    late = await yard.put(work())
    gate.set()
    await yard.join(worker)

    assert (await yard.job(id)).result == "finished"
    assert (await yard.job(late)).state is State.ENQUEUED
    assert len(worker.active_jobs) == 0


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_past_the_drain_deadline_the_lease_goes_back_with_its_attempt(
    make_yard: MakeYard, store: str
) -> None:
    """The coroutine is cancelled; the job is as if it had never started."""
    yard = make_yard(store)
    started = asyncio.Event()

    @yard.app.job(max_attempts=1)
    async def work(ctx: Context) -> None:
        started.set()
        await asyncio.Event().wait()

    async with yard.app:
        id = await yard.put(work())
        worker = yard.start(drain_s=0.02)
        await started.wait()
        await yard.stop(worker)
        job = await yard.job(id)
        kinds = await yard.kinds(id)

    assert (job.state, job.attempt, job.lapses) == (State.ENQUEUED, 0, 0)
    assert kinds[-1] is EventKind.RELEASED


async def test_a_thread_is_told_of_the_deadline(yard: Yard) -> None:
    """Its lease is back before it ends."""
    started, told = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @yard.app.job()
    def work(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        while ctx.stopping is None:
            told.wait(0.005)
        told.set()

    id = await yard.put(work())
    worker = yard.start(drain_s=0.02)
    await started.wait()
    await yard.stop(worker)

    assert told.is_set()
    job = await yard.job(id)
    assert (job.state, job.attempt) == (State.ENQUEUED, 0)


@pytest.mark.parametrize("style", ["loop", "thread"])
async def test_a_handler_that_does_not_end_does_not_hold_the_worker(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    """After a grace its lease is given back without it."""
    monkeypatch.setattr("holdfast.worker.worker.GRACE_S", 0.05)
    started, gate, thread_gate = asyncio.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def deaf(ctx: Context) -> None:
        started.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    def stuck(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        thread_gate.wait(10)

    work = yard.app.job(name="work")(deaf if style == "loop" else stuck)
    id = await yard.put(work())
    worker = yard.start(drain_s=0.0)
    await started.wait()
    await yard.stop(worker)

    job = await yard.job(id)
    assert (job.state, job.attempt) == (State.ENQUEUED, 0)
    gate.set()
    thread_gate.set()
    await asyncio.wait(worker._tasks, timeout=5)
    assert (await yard.job(id)).state is State.ENQUEUED


async def test_what_waits_in_the_worker_is_given_back_at_once(yard: Yard) -> None:
    """Others can take it while the running job still finishes."""
    started, gate = asyncio.Event(), asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        started.set()
        await gate.wait()

    await yard.acme.enqueue_many(work().with_options(id=f"j{n}") for n in range(4))
    worker = yard.start(concurrency=1, prefetch=3)
    await started.wait()
    assert len(worker.active_jobs) == 4
    worker.stop()
    facts = await yard.facts(3)

    assert {(fact.job.id, fact.state) for fact in facts} == {
        (f"j{n}", State.ENQUEUED) for n in (1, 2, 3)
    }
    assert [(await yard.job(f"j{n}")).attempt for n in range(4)] == [1, 0, 0, 0]
    gate.set()
    await yard.join(worker)


async def test_a_worker_that_is_cancelled_gives_its_leases_back(yard: Yard) -> None:
    """Control-C in a program that runs a worker itself: no job waits for its lease to lapse."""
    started = asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        started.set()
        await asyncio.Event().wait()

    await yard.acme.enqueue_many(work().with_options(id=f"j{n}") for n in range(3))
    worker = yard.start(concurrency=2, prefetch=1)
    await started.wait()
    task = yard._workers.pop(worker)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    states = [await yard.job(f"j{n}") for n in range(3)]
    assert [(job.state, job.attempt) for job in states] == [(State.ENQUEUED, 0)] * 3


async def test_an_outage_during_the_drain_loses_nothing(yard: Yard) -> None:
    """The last acks are sent again until they are answered."""
    started = asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        started.set()
        await asyncio.Event().wait()

    id = await yard.put(work())
    worker = yard.start(drain_s=0.0)
    await started.wait()
    yard.faults.fail("ack", times=2)
    await yard.stop(worker)

    assert (await yard.job(id)).state is State.ENQUEUED


async def test_a_worker_that_was_stopped_before_it_ran_returns(yard: Yard) -> None:
    """And claims nothing."""

    @yard.app.job()
    async def work(ctx: Context) -> None: ...

    await yard.put(work())
    worker = yard.start()
    await yard.stop(worker)

    assert yard.faults.count("claim") == 0


async def test_rolling_over_a_job_many_times_costs_no_attempt(yard: Yard) -> None:
    """A deploy every minute must not use up a long job's attempts."""
    starts: list[int] = []
    started = asyncio.Event()

    @yard.app.job(max_attempts=2)
    async def work(ctx: Context) -> str:
        starts.append(ctx.attempt)
        started.set()
        if ctx.job.fence <= 4:
            await asyncio.Event().wait()
        return f"fence {ctx.job.fence}"

    id = await yard.put(work())
    for _ in range(4):
        started.clear()
        worker = yard.start(drain_s=0.0)
        await started.wait()
        await yard.stop(worker)
    yard.start()

    assert await yard.result(id) == "fence 5"
    assert starts == [1, 1, 1, 1, 1]
