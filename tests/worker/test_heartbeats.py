"""Leases are kept while handlers run, whatever they do; what is lost is told to them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import Context, JobCanceled, State, StopReason
from holdfast.core.errors import StoreUnavailable
from holdfast.core.job import EventKind
from holdfast.store import Claim
from holdfast.worker.lease import ActiveJob
from holdfast.worker.pool import Threads
from holdfast.worker.run import Runner

if TYPE_CHECKING:
    from tests.worker.conftest import MakeYard, Yard

BEAT_S = 0.04


async def test_cancel_reaches_a_running_coroutine_with_the_next_heartbeat(yard: Yard) -> None:
    """It is cancelled, cleans up, and the job stays canceled."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.canceled
            cancelled.set()

    id = await yard.put(work())
    worker = yard.start(heartbeat_s=BEAT_S)
    async with asyncio.timeout(5):
        await started.wait()
        assert await yard.acme.cancel(id)
        await cancelled.wait()

    await yard.stop(worker)
    assert (await yard.job(id)).state is State.CANCELED
    assert len(worker.active_jobs) == 0


async def test_cancel_reaches_a_running_thread_by_its_context(yard: Yard) -> None:
    """`ctx.canceled` turns true and `ctx.check()` raises."""
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    raised = threading.Event()

    @yard.app.job()
    def work(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                ctx.check()
            except JobCanceled:
                raised.set()
                raise

    id = await yard.put(work())
    worker = yard.start(heartbeat_s=BEAT_S)
    async with asyncio.timeout(5):
        await started.wait()
    await yard.acme.cancel(id)

    assert await asyncio.to_thread(raised.wait, 5)
    await yard.stop(worker)
    assert (await yard.job(id)).state is State.CANCELED


async def test_a_canceled_job_that_waits_in_the_worker_never_starts(yard: Yard) -> None:
    """Heartbeats cover the buffer, too."""
    started: list[str] = []
    gate = asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        started.append(ctx.job_id)
        await gate.wait()

    await yard.put(work(), id="runs")
    await yard.put(work(), id="waits")
    worker = yard.start(concurrency=1, prefetch=1, heartbeat_s=BEAT_S)
    async with asyncio.timeout(5):
        await yard.faults.arrived("extend", 1)
        await yard.acme.cancel("waits")
        await yard.faults.arrived("extend", 4)
    assert len(worker.active_jobs) == 2
    gate.set()
    assert (await yard.fact()).job.id == "runs"
    await yard.stop(worker)

    assert started == ["runs"]


async def test_a_run_that_was_ended_before_it_began_is_dropped(yard: Yard) -> None:
    """A task cancelled before its first step would neither run nor settle."""

    @yard.app.job()
    async def work(ctx: Context) -> str:
        return "ran"

    await yard.put(work())
    claim = Claim(worker="w", nonce="n", limit=1, lease_us=60_000_000)
    [lease] = await yard.app.store.claim(claim)
    active = ActiveJob(lease, time.monotonic() + 60)
    runner = Runner(yard.app, Threads(1))
    task: asyncio.Task[Any] = asyncio.create_task(runner.run(active))
    active.task = task

    active.end(StopReason.LEASE_LOST)

    assert await task is None


async def test_heartbeats_go_on_while_a_handler_blocks_the_loop(make_yard: MakeYard) -> None:
    """The lease is not lost and nobody else runs the job, though rescue and a rival try."""
    yard = make_yard(clock=None, upkeep=True, rescue_every_s=0.02)
    beat_s, lease_s = 0.15, 0.6
    stop, stolen = threading.Event(), []

    @yard.app.job()
    async def block(ctx: Context) -> str:
        thread.start()
        time.sleep(6 * beat_s)  # noqa: ASYNC251  The fault that is injected.
        return f"fence {ctx.job.fence}"

    def rival() -> None:
        claim = Claim(worker="rival", nonce="r", limit=1, lease_us=1_000_000)
        while not stop.wait(0.01):
            stolen.extend(asyncio.run(yard.faults.real.claim(claim)))

    thread = threading.Thread(target=rival)
    async with yard.app:
        id = await yard.put(block())
        yard.start(lease_s=lease_s, heartbeat_s=beat_s)
        result = await yard.result(id)
        stop.set()
        await asyncio.to_thread(thread.join)
        job, kinds = await yard.job(id), await yard.kinds(id)

    assert result == "fence 1"
    assert (job.attempt, job.lapses, stolen) == (1, 0, [])
    assert kinds.count(EventKind.EXTENDED) >= 3


async def test_a_lost_lease_ends_the_run_and_its_outcome_is_dropped(yard: Yard) -> None:
    """Another worker has it: what this run still does must not count."""
    started, ended = asyncio.Event(), asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        if ctx.job.fence > 1:
            return
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    id = await yard.put(work())
    first = yard.start(heartbeat_s=BEAT_S, concurrency=1, prefetch=0)
    async with asyncio.timeout(5):
        await started.wait()
        yard.clock.advance(61)
        rival = yard.start(name="rival", concurrency=1, prefetch=0)
        await ended.wait()

    await yard.result(id)
    assert (await yard.fact()).job.worker == "rival"
    await yard.stop(first)
    await yard.stop(rival)
    job = await yard.job(id)
    assert (job.attempt, job.lapses, job.state) == (2, 1, State.COMPLETED)


async def test_progress_is_stored_with_a_heartbeat_also_after_one_that_failed(yard: Yard) -> None:
    """What was not stored is sent again; what was stored is not."""
    gate = asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        ctx.progress(3, 10, "rows")
        yard.faults.fail("extend", times=2)
        await gate.wait()

    id = await yard.put(work())
    yard.start(heartbeat_s=BEAT_S)
    async with asyncio.timeout(5):
        await yard.faults.arrived("extend", 5)
    job = await yard.job(id)
    gate.set()

    assert msgspec.json.decode(job.progress or "") == {"done": 3, "total": 10, "note": "rows"}
    sent = [extensions[0].progress for extensions, *_ in yard.faults.calls["extend"][:5]]
    assert [progress is not None for progress in sent] == [True, True, True, False, False]


@pytest.mark.parametrize("error", [StoreUnavailable(store="x", why="away"), ValueError("odd")])
async def test_a_heartbeat_that_fails_is_not_the_last(yard: Yard, error: Exception) -> None:
    """Neither an outage nor a fault of the store ends the heartbeats."""
    gate = asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> str:
        await gate.wait()
        return "done"

    id = await yard.put(work())
    yard.faults.fail("extend", times=2, error=error)
    yard.start(heartbeat_s=BEAT_S)
    async with asyncio.timeout(5):
        await yard.faults.arrived("extend", 4)
    assert EventKind.EXTENDED in await yard.kinds(id)
    gate.set()

    assert await yard.result(id) == "done"
