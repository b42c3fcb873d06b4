"""A handler is told why it has to stop: a cancel, a lost lease, a time-out or a deploy."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Context, JobCanceled, Reason, State, StopReason
from holdfast.core.errors import HoldfastError, LeaseExpired, Timeout, WorkerShutdown
from holdfast.testing import drain

if TYPE_CHECKING:
    from tests.worker.conftest import MakeYard, Yard

    from holdfast.worker import Worker

BEAT_S = 0.04
STYLES = ["loop", "thread"]
ERRORS: dict[StopReason, type[HoldfastError]] = {
    StopReason.CANCELED: JobCanceled,
    StopReason.LEASE_LOST: LeaseExpired,
    StopReason.SHUTDOWN: WorkerShutdown,
    StopReason.TIMEOUT: Timeout,
}


class Told:
    """A job type that waits until it is to stop, and what its handler saw then."""

    def __init__(self, yard: Yard, style: str, **options: Any) -> None:
        self.started, self.stopped = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.seen: tuple[StopReason | None, bool] = (None, False)
        self.raised: HoldfastError | None = None

        async def on_loop(ctx: Context) -> None:
            if ctx.job.fence > 1:
                return
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self._look(ctx)

        def in_thread(ctx: Context) -> None:
            if ctx.job.fence > 1:
                return
            self._loop.call_soon_threadsafe(self.started.set)
            nap = threading.Event()
            for _ in range(1000):
                if ctx.stopping is not None:
                    break
                nap.wait(0.005)
            self._look(ctx)

        target: Any = on_loop if style == "loop" else in_thread
        self.make = yard.app.job(name="told", **options)(target)

    def _look(self, ctx: Context) -> None:
        self.seen = (ctx.stopping, ctx.canceled)
        try:
            ctx.check()
        except HoldfastError as error:
            self.raised = error
        self._loop.call_soon_threadsafe(self.stopped.set)

    async def saw(self, reason: StopReason) -> None:
        """Waits for the end of the handler and checks what it was told."""
        async with asyncio.timeout(5):
            await self.stopped.wait()
        assert self.seen == (reason, reason is StopReason.CANCELED)
        assert type(self.raised) is ERRORS[reason]


async def begun(yard: Yard, told: Told, **settings: Any) -> tuple[str, Worker]:
    id = await yard.put(told.make())
    worker = yard.start(heartbeat_s=BEAT_S, concurrency=1, prefetch=0, **settings)
    async with asyncio.timeout(5):
        await told.started.wait()
    return id, worker


@pytest.mark.parametrize("style", STYLES)
async def test_a_cancel_is_told_as_a_cancel(yard: Yard, style: str) -> None:
    """P5: the only reason for which a handler may undo its work."""
    told = Told(yard, style)
    id, _ = await begun(yard, told)

    await yard.acme.cancel(id)

    await told.saw(StopReason.CANCELED)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_cancel_that_deletes_the_record_is_told_as_a_cancel(
    make_yard: MakeYard, store: str
) -> None:
    """P5: with `keep=0` nothing is left that could say so."""
    yard = make_yard(store, keep_s=0.0)
    async with yard.app:
        told = Told(yard, "loop")
        id, worker = await begun(yard, told)

        await yard.acme.cancel(id)

        await told.saw(StopReason.CANCELED)
        await yard.stop(worker)


@pytest.mark.parametrize("style", STYLES)
async def test_a_deploy_is_not_told_as_a_cancel(yard: Yard, style: str) -> None:
    """P11: the job runs again elsewhere, so its work must not be undone."""
    told = Told(yard, style)
    id, worker = await begun(yard, told, drain_s=0.0)

    await yard.stop(worker)

    await told.saw(StopReason.SHUTDOWN)
    assert (await yard.job(id)).state is State.ENQUEUED


@pytest.mark.parametrize("style", STYLES)
async def test_a_lost_lease_is_not_told_as_a_cancel(yard: Yard, style: str) -> None:
    """P2: another worker has the job, so its work must not be undone."""
    told = Told(yard, style)
    await begun(yard, told)

    yard.clock.advance(61)

    await told.saw(StopReason.LEASE_LOST)


@pytest.mark.parametrize("style", STYLES)
async def test_a_timeout_is_not_told_as_a_cancel(yard: Yard, style: str) -> None:
    """The attempt failed; the next one may go on with what is there."""
    told = Told(yard, style, timeout=0.05, max_attempts=1)
    id, _ = await begun(yard, told)

    await told.saw(StopReason.TIMEOUT)

    assert (await yard.fact()).state is State.FAILED
    assert (await yard.job(id)).reason is Reason.TIMEOUT


async def test_a_run_that_goes_on_has_no_reason_to_stop(yard: Yard) -> None:
    """`check` passes."""

    @yard.app.job()
    async def work(ctx: Context) -> bool:
        ctx.check()
        return ctx.stopping is None and not ctx.canceled

    await yard.put(work(), id="j")
    await drain(yard.app)

    assert await yard.result("j") is True


async def checks_when_cancelled(ctx: Context) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ctx.check()


async def test_a_handler_that_leaves_by_check_on_a_deploy_loses_no_attempt(yard: Yard) -> None:
    """P11: WorkerShutdown is no failure of the job."""
    started = asyncio.Event()

    @yard.app.job(max_attempts=1)
    async def work(ctx: Context) -> None:
        started.set()
        await checks_when_cancelled(ctx)

    id = await yard.put(work())
    worker = yard.start(drain_s=0.0)
    async with asyncio.timeout(5):
        await started.wait()
    await yard.stop(worker)

    job = await yard.job(id)
    assert (job.state, job.attempt) == (State.ENQUEUED, 0)


async def test_a_handler_that_leaves_by_check_on_a_timeout_has_timed_out(yard: Yard) -> None:
    """The reason code is that of any other time-out."""

    @yard.app.job(max_attempts=1, timeout=0.02)
    async def work(ctx: Context) -> None:
        await checks_when_cancelled(ctx)

    id = await yard.put(work())
    await drain(yard.app)

    job = await yard.job(id)
    assert (job.reason, job.error) == (Reason.TIMEOUT, "not finished within 0.02 s")


async def test_a_handler_that_swallows_its_timeout_leaves_no_cancel_behind(yard: Yard) -> None:
    """What it returns is its result, and whoever runs after it is not cancelled for it."""

    @yard.app.job(max_attempts=1, timeout=0.02)
    async def stubborn(ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    await yard.put(stubborn(), id="j")
    await drain(yard.app)

    assert await yard.result("j") == "done all the same"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
