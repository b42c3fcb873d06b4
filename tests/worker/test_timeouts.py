"""A handler has its time, and what outlives it keeps its slot."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from holdfast import Context, Reason, State
from holdfast.testing import drain

if TYPE_CHECKING:
    from tests.worker.conftest import Yard


async def test_a_coroutine_past_its_time_is_cancelled_and_fails_as_timeout(yard: Yard) -> None:
    """Its clean-up runs; the reason code is TIMEOUT when no attempts are left."""
    cleaned = asyncio.Event()

    @yard.app.job(timeout=0.02, max_attempts=1)
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    id = await yard.put(slow())
    yard.start()

    assert (await yard.fact()).state is State.FAILED
    job = await yard.job(id)
    assert (job.reason, job.error) == (Reason.TIMEOUT, "not finished within 0.02 s")
    assert cleaned.is_set()


async def test_a_timeout_with_attempts_left_is_a_retry(yard: Yard) -> None:
    """Like any failure."""

    @yard.app.job(timeout=0.01, retry="brisk")
    async def slow(ctx: Context) -> str:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return "done"

    id = await yard.put(slow())
    await drain(yard.app)
    assert (await yard.job(id)).state is State.RETRYING
    yard.clock.advance(1)
    await drain(yard.app)

    assert await yard.result(id) == "done"


async def test_a_timeout_of_the_handlers_own_is_no_timeout_of_the_job(yard: Yard) -> None:
    """A socket that timed out is a plain failure."""

    @yard.app.job(timeout=60, max_attempts=1)
    async def work(ctx: Context) -> None:
        raise TimeoutError("the socket")

    id = await yard.put(work())
    await drain(yard.app)

    job = await yard.job(id)
    assert (job.reason, "the socket" in (job.error or "")) == (Reason.MAX_ATTEMPTS, True)


async def test_a_thread_past_its_time_keeps_its_slot_until_it_ends(yard: Yard) -> None:
    """The job is settled at once; nothing else runs in the slot before the thread is gone."""
    go_on, told = threading.Event(), threading.Event()

    @yard.app.job(timeout=0.02, max_attempts=1)
    def stuck(ctx: Context) -> None:
        go_on.wait(10)
        if ctx.stopping is not None:
            told.set()

    @yard.app.job()
    async def other(ctx: Context) -> bool:
        return go_on.is_set()

    stuck_id = await yard.put(stuck())
    worker = yard.start(concurrency=1, prefetch=0)
    assert (await yard.fact()).state is State.FAILED
    assert (await yard.job(stuck_id)).reason is Reason.TIMEOUT
    other_id = await yard.put(other())
    assert worker.running == 1
    assert (await yard.job(other_id)).state is State.ENQUEUED
    go_on.set()

    assert await yard.result(other_id) is True
    assert await asyncio.to_thread(told.wait, 5)


async def test_an_enqueue_may_set_the_time(yard: Yard) -> None:
    """Beyond what the type says."""

    @yard.app.job(timeout=60, max_attempts=1)
    async def slow(ctx: Context) -> None:
        await asyncio.Event().wait()

    id = await yard.put(slow(), timeout=0.01)
    await drain(yard.app)

    assert (await yard.job(id)).reason is Reason.TIMEOUT
