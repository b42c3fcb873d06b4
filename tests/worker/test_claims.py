"""What a worker takes: as much as it can run, a little more, never beyond; the best first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast import App, Context, InvalidInput, State
from holdfast.worker import Worker

if TYPE_CHECKING:
    from tests.worker.conftest import MakeYard, Yard


async def test_leases_never_exceed_the_slots_and_the_buffer(yard: Yard) -> None:
    """However many jobs wait; the store counts."""
    most = 0

    @yard.app.job()
    async def work(ctx: Context, length: int) -> None:
        nonlocal most
        for _ in range(length):  # Ends at many different moments, so that claims come in between.
            await asyncio.sleep(0)
        assert worker.running + len(worker._buffer) <= 4 + 3
        [tally] = await yard.acme.counts()
        most = max(most, tally.counts[State.PROCESSING])

    await yard.acme.enqueue_many(work(length=n * 7 % 23) for n in range(200))
    worker = yard.start(concurrency=4, prefetch=3)
    facts = await yard.facts(200)
    await yard.stop(worker)

    assert {fact.state for fact in facts} == {State.COMPLETED}
    # Settled jobs count until their ack is answered, so a full set may be on its way.
    assert 4 <= most <= 2 * (4 + 3)
    assert all(1 <= args[0].limit <= 4 + 3 for args in yard.faults.calls["claim"])


async def test_no_more_handlers_run_at_once_than_the_concurrency(yard: Yard) -> None:
    """Slots are a promise to the machine."""
    running, most = 0, 0

    @yard.app.job()
    async def work(ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await yard.acme.enqueue_many(work() for _ in range(50))
    yard.start(concurrency=3)
    await yard.facts(50)

    assert most == 3


async def test_higher_priorities_run_first_then_in_order(yard: Yard) -> None:
    """For a single claimer of a queue (P9)."""
    ran: list[str] = []

    @yard.app.job()
    async def work(ctx: Context) -> None:
        ran.append(ctx.job_id)

    for id, priority in [("c", 0), ("e", -1), ("a", 9), ("d", 0), ("b", 9)]:
        await yard.put(work(), id=id, priority=priority)
    yard.start(concurrency=1, prefetch=0)
    await yard.facts(5)

    assert ran == ["a", "b", "c", "d", "e"]


async def test_an_idle_worker_is_woken_by_an_enqueue(make_yard: MakeYard) -> None:
    """At once, not at the next poll."""
    yard = make_yard(clock=None, poll_s=60.0)

    @yard.app.job()
    async def work(ctx: Context) -> str:
        return "done"

    async with yard.app:
        yard.start()
        async with asyncio.timeout(5):
            await yard.faults.arrived("wait", 1)
            for _ in range(20):
                assert await yard.result(await yard.put(work())) == "done"


async def test_a_job_that_becomes_due_is_run_without_a_poll(make_yard: MakeYard) -> None:
    """The sleeper knows when the next one is due."""
    yard = make_yard(clock=None, poll_s=60.0)

    @yard.app.job()
    async def work(ctx: Context) -> str:
        return "done"

    async with yard.app:
        yard.start()
        id = await yard.put(work(), delay=0.05)
        async with asyncio.timeout(5):
            assert await yard.result(id) == "done"


async def test_a_worker_takes_only_its_tenants_and_queues(yard: Yard) -> None:
    """The rest is for others."""

    @yard.app.job()
    async def work(ctx: Context) -> str:
        return "done"

    for tenant in ("acme", "globex"):
        for queue in ("default", "other"):
            await yard.app.tenant(tenant).enqueue(work(), id=f"{tenant}.{queue}", queue=queue)
    worker = yard.start(tenants=["acme"], queues=["other"])
    assert await yard.result("acme.other") == "done"
    await yard.stop(worker)

    assert (await yard.job("acme.default")).state is State.ENQUEUED
    for id in ("globex.default", "globex.other"):
        assert (await yard.app.tenant("globex").get(id)).state is State.ENQUEUED


@pytest.mark.parametrize(
    ("field", "named"),
    [("tenants", {"tenants": [""]}), ("queues", {"queues": ["a\n"]}), ("worker", {"name": "x "})],
)
def test_wrong_names_are_refused_when_a_worker_is_made(
    field: str, named: dict[str, list[str]]
) -> None:
    """Not in the middle of the night."""
    with pytest.raises(InvalidInput) as raised:
        Worker(App("memory://"), **named)  # type: ignore[arg-type]

    assert raised.value.field == field


async def test_an_outage_of_claims_is_outlived(yard: Yard) -> None:
    """Logged, paused after, and tried again."""

    @yard.app.job()
    async def work(ctx: Context) -> str:
        return "done"

    yard.faults.fail("claim", times=2)
    yard.faults.fail("wait", times=1)
    id = await yard.put(work())
    yard.start()

    assert (await yard.fact()).job.id == id


async def test_several_workers_share_the_work_and_each_job_runs_once(
    make_yard: MakeYard,
) -> None:
    """Also on a store with real transactions."""
    yard = make_yard("sqlite", clock=None)
    ran: list[str] = []

    @yard.app.job()
    async def work(ctx: Context) -> None:
        ran.append(ctx.job_id)

    async with yard.app:
        await yard.acme.enqueue_many(work() for _ in range(300))
        for name in ("w1", "w2", "w3"):
            yard.start(name=name, concurrency=5)
        await yard.facts(300)
        [tally] = await yard.acme.counts()
        await yard.stop_all()

    assert len(ran) == len(set(ran)) == 300
    assert tally.counts == {State.COMPLETED: 300}
