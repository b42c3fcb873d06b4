"""A job whose every attempt ended with its worker's death gets its last one alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast import Context, State
from holdfast.store import Claim

if TYPE_CHECKING:
    from tests.worker.conftest import Yard


async def lapse(yard: Yard, times: int) -> None:
    """Leases the one job there is and lets the lease run out, so often."""
    for number in range(times):
        claim = Claim(worker="dead", nonce=f"n{number}", limit=1, lease_us=1_000_000)
        assert len(await yard.app.store.claim(claim)) == 1
        yard.clock.advance(1)


async def test_a_suspect_runs_alone(yard: Yard) -> None:
    """If it kills the process, it takes no other job with it; afterwards the others run."""
    company: list[tuple[int, int]] = []
    done: list[str] = []

    @yard.app.job(max_attempts=3)
    async def work(ctx: Context) -> None:
        if ctx.job_id == "suspect":
            for _ in range(10):
                company.append((worker.running, len(worker.active_jobs)))
                await asyncio.sleep(0)
        done.append(ctx.job_id)

    await yard.put(work(), id="suspect")
    await lapse(yard, 2)
    for id in ("a", "b", "c"):
        await yard.put(work(), id=id)
    worker = yard.start(concurrency=5)
    async with asyncio.timeout(5):
        for id in ("suspect", "a", "b", "c"):
            await yard.result(id)

    assert set(company) == {(1, 1)}
    assert sorted(done) == ["a", "b", "c", "suspect"]
    assert [(await yard.job(id)).attempt for id in ("suspect", "a", "b", "c")] == [3, 1, 1, 1]


async def test_a_suspect_waits_for_what_runs_already(yard: Yard) -> None:
    """Nothing is stopped for its sake."""
    started, gate = asyncio.Event(), asyncio.Event()

    @yard.app.job(max_attempts=2)
    async def work(ctx: Context) -> bool:
        if ctx.job_id == "first":
            started.set()
            await gate.wait()
        return gate.is_set()

    await yard.put(work(), id="suspect")
    claim = Claim(worker="dead", nonce="n", limit=1, lease_us=1_000_000)
    assert len(await yard.app.store.claim(claim)) == 1
    await yard.put(work(), id="first")
    worker = yard.start(concurrency=5)
    async with asyncio.timeout(5):
        await started.wait()
        yard.clock.advance(1)
        while len(worker.active_jobs) < 2:
            await yard.faults.arrived("claim", yard.faults.count("claim") + 1)
    assert worker.running == 1
    gate.set()

    assert await yard.result("suspect") is True
    assert await yard.result("first") is True
    await yard.stop(worker)


async def test_a_job_that_merely_failed_is_no_suspect(yard: Yard) -> None:
    """Its last attempt runs beside others."""
    together = asyncio.Barrier(2)

    @yard.app.job(max_attempts=2, retry="brisk")
    async def work(ctx: Context) -> str:
        if ctx.attempt == 1 and ctx.job_id == "fails":
            raise ValueError
        await together.wait()
        return "together"

    await yard.put(work(), id="fails")
    yard.start(concurrency=2)
    assert (await yard.fact()).state is State.RETRYING
    yard.clock.advance(1)
    await yard.put(work(), id="other")

    assert await yard.result("fails") == "together"


async def test_suspects_follow_one_another(yard: Yard) -> None:
    """Each alone, none forgotten."""
    running = 0

    @yard.app.job(max_attempts=2)
    async def work(ctx: Context) -> int:
        nonlocal running
        running += 1
        most = running
        await asyncio.sleep(0)
        running -= 1
        return most

    ids = [f"s{n}" for n in range(4)]
    for id in ids:
        await yard.put(work(), id=id)
    claim = Claim(worker="dead", nonce="n", limit=4, lease_us=1_000_000)
    assert len(await yard.app.store.claim(claim)) == 4
    yard.clock.advance(1)
    yard.start(concurrency=5)

    assert [await yard.result(id) for id in ids] == [1, 1, 1, 1]
