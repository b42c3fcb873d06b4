"""A flow whose workers and callers die at every call of the store goes on to the same end."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from holdfast import Batch, Flow, State
from holdfast.core.job import Completed, Lease
from holdfast.core.lifecycle import decide
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.flowing import Died, Flowing
from holdfast.workflow.run import FlowRun, FlowState


def trip(at: Flowing) -> Flow:
    """A map, a failure, two compensations and a last job: every kind of job that a flow makes."""
    at.broken = {"car"}
    flow = Flow("trip")
    hotel = flow.add(at.split("p", 2))
    visits = flow.map(at.step, over=hotel)
    plane = flow.add(at.total("plane", parts=visits.results()))
    flow.add(at.step("car"), after=plane)
    flow.undo(hotel, at.undone(what="the hotel"))
    flow.undo(plane, at.undone(what="the plane"))
    flow.finally_(at.step("last"))
    return flow


async def revive(at: Flowing, rounds: int = 3) -> None:
    """What other workers do: leases expire, and everything that is due runs."""
    at.mortal.revive()
    for _ in range(rounds):
        at.bench.clock.advance(61)
        await at.bench.upkeep()
        await at.run()


async def check(at: Flowing, run: FlowRun) -> None:
    """Each job of the flow was made once, and the flow has ended as it should."""
    assert (await run.status()).state is FlowState.FAILED
    made = Counter(job.type for job in await at.jobs())
    assert made == {
        "split": 1,
        "holdfast.map": 1,
        "step": 2 + 1 + 1,
        "total": 1,
        "undone": 2,
        "holdfast.flow": 1,
    }
    assert await at.alive() == []
    ends = [name for name in at.ran if name.startswith(("undo", "last"))]
    assert list(dict.fromkeys(ends)) == ["undo the plane", "undo the hotel", "last"]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_a_worker_may_die_at_every_call(bench: Bench, late: bool) -> None:
    """P17: the join counts once, and compensations and last jobs are made once."""
    number, deaths = 0, 0
    while True:
        number += 1
        at = Flowing(bench, late=late)
        run = await at.acme.start(trip(at))
        at.mortal.left = number
        with suppress(Died, IndexError):  # An answer that a dead worker did not get.
            async with asyncio.timeout(10):
                await at.run()
        if not at.mortal.dead:
            break
        deaths += 1
        await revive(at)
        await check(at, run)
        bench.clock.advance(7200 + 24 * 3600)
        await bench.store.prune(5000, 0)
        assert await at.jobs() == []
    assert deaths > 40


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_a_retry_may_be_cut_off_at_every_call(bench: Bench, late: bool) -> None:
    """P6: a repeat finishes it, or its guard removes it; there is never a second run."""
    for number in range(1, 12):
        at = Flowing(bench, late=late)
        first = await at.acme.start(trip(at))
        await at.run()
        at.broken.clear()
        at.mortal.left = number
        with suppress(Died):
            await first.retry()
        died = at.mortal.dead
        at.mortal.revive()

        again = await first.retry()
        await revive(at)

        assert (await again.status()).state is FlowState.COMPLETED
        assert await at.alive() == []
        if not died:
            return
    raise AssertionError("the retry makes more calls than were tried")


# -- wide ------------------------------------------------------------------------------------------

WIDE = 9_999


async def test_a_wide_join_calls_back_once(bench: Bench) -> None:
    """P17: with duplicates of acks, cancels and lost workers among 10,000 jobs."""
    at = Flowing(bench)
    batch = Batch("wide")
    batch.add_many(at.step(str(number)) for number in range(WIDE))
    batch.then(at.step("callback"))
    run = await at.acme.start(batch)
    await at.run(queues=["holdfast.flows"])

    held: list[Lease] = []
    while leases := await bench.claim(1000, queues=("work",)):
        held += leases
    assert len(held) == WIDE
    assert len({lease.job.id for lease in held}) == WIDE
    lost, canceled, done = held[:100], held[100:200], held[200:]
    changes = [decide(Completed(), lease.job, lease.token, 0.0) for lease in done]
    doubled = [
        change for number, change in enumerate(changes) for _ in range(1 + number % 20 // 19)
    ]
    for first in range(0, len(doubled), 1000):
        await bench.store.ack(doubled[first : first + 1000])
        await bench.store.ack(doubled[first : first + 50])
    for lease in canceled:
        await bench.cancel(lease.job.id)
        await bench.cancel(lease.job.id)
    assert (await run.status()).left == 101
    assert "callback" not in at.ran
    bench.clock.advance(61)
    await bench.upkeep()
    await at.run()

    status = await run.status()
    assert at.ran.count("callback") == 1
    assert len(at.ran) == len(lost) + 1
    assert (status.state, status.left, status.failed) == (FlowState.FAILED, 0, 100)
    assert (await bench.get(run.id)).state is State.FAILED
