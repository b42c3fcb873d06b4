"""Wait: a caller is woken by what it watches. It may wake for nothing, but never too late.

Sleepers get a long time-out and a bound on the test, so a lost wake-up fails, and nothing sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.core.job import Completed, Failed, Released
from holdfast.store import Ref, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, MAIL

BOUND_S = 20.0
"""Far more than any wake-up needs, less than the sleepers' own time-out."""
SLEEP_S = 50.0
TURNS = 25
"""Turns of the event loop that let a sleeper lie down."""


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def asleep(bench: Bench, watch: Watch) -> AsyncIterator[asyncio.Task[None]]:
    """A task that waits; it must have woken when the block ends."""
    async with asyncio.timeout(BOUND_S):
        task = asyncio.create_task(bench.store.wait(watch, SLEEP_S))
        await turns()
        yield task
        await task


async def test_an_enqueue_wakes_who_watches_its_line(bench: Bench) -> None:
    """P10: a new job is heard of without waiting for the next poll."""
    async with asleep(bench, Watch(tenants=(ACME,), queues=(MAIL,))) as sleeper:
        assert not sleeper.done()
        await bench.put("a")

    assert sleeper.done()


async def test_an_enqueue_wakes_who_watches_everything(bench: Bench) -> None:
    """P10: no filter means every tenant and queue."""
    async with asleep(bench, Watch()) as sleeper:
        assert not sleeper.done()
        await bench.put("a", tenant=GLOBEX, queue=AUDIO)

    assert sleeper.done()


async def test_work_that_is_already_there_ends_the_wait_at_once(bench: Bench) -> None:
    """P10: a job that came between the claim and the wait is not slept over."""
    await bench.put("a")

    async with asyncio.timeout(BOUND_S):
        await bench.store.wait(Watch(), SLEEP_S)

    assert len(await bench.claim(1)) == 1


async def test_a_job_that_became_due_ends_the_wait_at_once(bench: Bench) -> None:
    """P10: due is ready, whether or not anybody has moved the job."""
    await bench.put("a", delay_us=5_000_000)
    bench.clock.advance(5)

    async with asyncio.timeout(BOUND_S):
        await bench.store.wait(Watch(), SLEEP_S)

    assert len(await bench.claim(1)) == 1


async def test_a_lapsed_lease_ends_the_wait_at_once(bench: Bench) -> None:
    """P10: so is a job whose worker died."""
    await bench.held("a")
    bench.clock.advance(60)

    async with asyncio.timeout(BOUND_S):
        await bench.store.wait(Watch(), SLEEP_S)

    assert len(await bench.claim(1)) == 1


async def test_a_release_wakes_who_watches_its_line(bench: Bench) -> None:
    """P10: a job given back is work for somebody else."""
    lease = await bench.held("a")

    async with asleep(bench, Watch()) as sleeper:
        assert not sleeper.done()
        await bench.end(lease, Released())

    assert sleeper.done()


@pytest.mark.parametrize("end", ["completed", "failed", "canceled"])
async def test_the_end_of_a_job_wakes_who_waits_for_it(bench: Bench, end: str) -> None:
    """P6: every end is heard."""
    lease = await bench.held("a")

    async with asleep(bench, Watch(job=Ref(ACME, "a"))) as sleeper:
        assert not sleeper.done()
        if end == "completed":
            await bench.end(lease, Completed())
        elif end == "failed":
            await bench.end(lease, Failed("no", retryable=False))
        else:
            await bench.cancel("a")

    assert sleeper.done()


async def test_a_job_that_has_ended_is_not_waited_for(bench: Bench) -> None:
    """P6: nor is one that was never there."""
    lease = await bench.held("a")
    await bench.end(lease, Completed())

    async with asyncio.timeout(BOUND_S):
        await bench.store.wait(Watch(job=Ref(ACME, "a")), SLEEP_S)
        await bench.store.wait(Watch(job=Ref(ACME, "nobody")), SLEEP_S)
        await bench.store.wait(Watch(job=Ref(GLOBEX, "a")), SLEEP_S)

    assert (await bench.get("a")).finished_at is not None


async def test_news_of_any_kind_wakes_a_reader_of_events(bench: Bench) -> None:
    """P14: who follows the log is woken by a new job, although it waits for no line."""
    async with asleep(bench, Watch(news=True)) as sleeper:
        assert not sleeper.done()
        await bench.put("a")

    assert sleeper.done()


async def test_a_wait_ends_with_its_time_out(bench: Bench) -> None:
    """P15: a sleeper always comes back, heard or not."""
    async with asyncio.timeout(BOUND_S):
        await bench.store.wait(Watch(), 0.0)
        await bench.store.wait(Watch(job=Ref(ACME, "a")), 0.0)
        await bench.store.wait(Watch(news=True), 0.0)

    assert await bench.claim(1) == []


async def test_closing_the_store_wakes_everybody(bench: Bench) -> None:
    """P15: nothing is left asleep behind a closed store."""
    lease = await bench.held("a")

    async with (
        asleep(bench, Watch(tenants=(ACME,))) as worker,
        asleep(bench, Watch(job=Ref(ACME, lease.job.id))) as caller,
    ):
        assert not worker.done()
        assert not caller.done()
        await bench.store.close()

    assert worker.done()
    assert caller.done()


async def test_a_sleeper_may_be_cancelled(bench: Bench) -> None:
    """P15: giving up a wait leaves the store as it was."""
    task = asyncio.create_task(bench.store.wait(Watch(), SLEEP_S))
    await turns()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await bench.put("a")
    assert len(await bench.claim(1)) == 1


async def test_many_sleepers_are_all_woken(bench: Bench) -> None:
    """P10: one job may wake many; none oversleeps because another woke."""
    async with asyncio.timeout(BOUND_S):
        sleepers = [
            asyncio.create_task(bench.store.wait(Watch(queues=(MAIL,)), SLEEP_S)) for _ in range(20)
        ]
        await turns()
        await bench.put("a")
        await asyncio.gather(*sleepers)

    assert all(sleeper.done() for sleeper in sleepers)
