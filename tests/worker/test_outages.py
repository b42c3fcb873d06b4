"""When the store is away: outcomes wait for it, leases lapse at worst, nothing is done twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast import Context, State
from holdfast.worker import Worker

if TYPE_CHECKING:
    from tests.worker.conftest import MakeYard, Yard


async def test_an_ack_that_meets_an_outage_is_sent_until_it_is_stored(yard: Yard) -> None:
    """The handler runs once."""
    runs = 0

    @yard.app.job()
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        return "kept"

    yard.faults.fail("ack", times=3)
    id = await yard.put(work())
    yard.start()

    assert await yard.result(id) == "kept"
    assert (runs, yard.faults.count("ack")) == (1, 4)


async def test_an_outage_longer_than_the_lease_runs_the_job_again(make_yard: MakeYard) -> None:
    """At least once: the deadline rescues what could not be settled."""
    yard = make_yard(clock=None, lease_s=0.5, heartbeat_s=0.1)

    @yard.app.job()
    async def work(ctx: Context) -> int:
        if ctx.attempt == 2:
            yard.faults.heal()
        return ctx.attempt

    async with yard.app:
        yard.faults.fail("ack", times=10_000)
        yard.faults.fail("extend", times=10_000)
        id = await yard.put(work())
        worker = yard.start()
        assert await yard.result(id) == 2
        await yard.stop(worker)
        job = await yard.job(id)

    assert (job.state, job.lapses) == (State.COMPLETED, 1)
    assert len(worker.active_jobs) == 0


async def test_a_poison_outcome_does_not_hold_up_the_others(yard: Yard) -> None:
    """The store cannot take one of a batch: the rest is stored, the one lapses."""

    @yard.app.job()
    async def work(ctx: Context) -> str:
        return "fine"

    yard.faults.fail_if(
        "ack", lambda changes: any(change.id == "bad" for change in changes), TypeError("odd")
    )
    for id in ("a", "bad", "b"):
        await yard.put(work(), id=id)
    worker = yard.start()

    assert {fact.job.id for fact in await yard.facts(2)} == {"a", "b"}
    await yard.stop(worker)
    assert (await yard.job("bad")).state is State.PROCESSING
    assert len(worker.active_jobs) == 0


async def test_presence_outlives_an_outage(yard: Yard) -> None:
    """A worker that could not say that it is there is not gone."""

    @yard.app.job()
    async def work(ctx: Context) -> str:
        return "fine"

    yard.faults.fail("hold", times=2)
    id = await yard.put(work())
    yard.start(heartbeat_s=0.03)
    await yard.faults.arrived("hold", 4)

    assert await yard.result(id) == "fine"
    assert len(await yard.app.store.hold(under="worker/")) == 1


async def test_a_worker_is_ready_while_its_store_answers(make_yard: MakeYard) -> None:
    """Not before its first claim, not during an outage, not while it drains."""
    yard = make_yard(clock=None)

    async def two_more_claims() -> None:
        """The first of them was answered when the second comes."""
        await yard.faults.arrived("claim", yard.faults.count("claim") + 2)

    async with yard.app:
        worker = Worker(yard.app, poll_s=0.02)
        assert not worker.ready
        working = asyncio.create_task(worker.run())
        await two_more_claims()
        assert worker.ready
        yard.faults.fail("claim", times=10_000)
        await two_more_claims()
        assert not worker.ready
        yard.faults.heal()
        await two_more_claims()
        assert worker.ready
        worker.stop()
        assert not worker.ready
        await working
