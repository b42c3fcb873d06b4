"""Attempts (P11): counted when a lease is taken, given back or spent, and final at the maximum."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import MISSES_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import (
    Abandoned,
    Completed,
    Failed,
    Outcome,
    Reason,
    Released,
    Snoozed,
    State,
)
from holdfast.core.lifecycle import Transition
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import RETRY_S, rules


async def test_each_lease_counts_one_attempt(bench: Bench) -> None:
    """P11: attempts are counted when the lease is taken, nowhere else."""
    await bench.put("a")
    assert (await bench.get("a")).attempt == 0

    for attempt in (1, 2, 3):
        lease = await bench.one()
        assert lease.job.attempt == attempt
        await bench.end(lease, Failed("boom"))
        assert (await bench.get("a")).attempt == attempt
        bench.clock.advance(RETRY_S)

    assert await bench.state("a") is State.FAILED


@pytest.mark.parametrize("outcome", [Released(), Released(SECOND), Snoozed(SECOND), Abandoned()])
async def test_what_is_given_back_costs_no_attempt(bench: Bench, outcome: Outcome) -> None:
    """P11: release, snooze and shutdown give the attempt back."""
    lease = await bench.held("a")
    assert lease.job.attempt == 1

    answer = await bench.end(lease, outcome)

    assert answer.error is None
    found = await bench.get("a")
    assert (found.attempt, found.lapses) == (0, 0)
    assert (found.lease_until, found.worker) == (None, None)


async def test_giving_back_forever_never_fails_a_job(bench: Bench) -> None:
    """P11: a job that is postponed more often than it may run is not dead-lettered for it."""
    await bench.put("a", rules=rules(max_attempts=2))
    for _ in range(9):
        assert (await bench.end(await bench.one(), Released())).state is State.ENQUEUED

    lease = await bench.one()
    assert (lease.job.attempt, lease.job.fence) == (1, 10)
    assert (await bench.end(lease, Completed())).state is State.COMPLETED


async def test_an_expiry_keeps_the_attempt(bench: Bench) -> None:
    """P11: a lease that expires does not give its attempt back, by upkeep or by a claim."""
    await bench.held("a")
    bench.clock.advance(60)
    await bench.upkeep()
    assert (await bench.get("a")).attempt == 1

    assert (await bench.one()).job.attempt == 2
    bench.clock.advance(60)
    assert (await bench.one()).job.attempt == 3


async def test_the_fence_grows_with_every_lease(bench: Bench) -> None:
    """P3: a fence only grows, also where the attempt is given back."""
    await bench.put("a", rules=rules(max_attempts=9))
    fences = []
    for outcome in (Released(), Failed("boom"), Snoozed(SECOND), Abandoned()):
        lease = await bench.one()
        fences.append(lease.job.fence)
        await bench.end(lease, outcome)
        assert (await bench.get("a")).fence == lease.job.fence
        bench.clock.advance(RETRY_S)
    lease = await bench.one()
    fences.append(lease.job.fence)
    bench.clock.advance(60)
    fences.append((await bench.one()).job.fence)

    assert fences == [1, 2, 3, 4, 5, 6]


async def test_the_last_failure_is_final(bench: Bench) -> None:
    """P11: at max_attempts the next failure is final, with its reason and its error."""
    lease = await bench.held("a", rules=rules(max_attempts=1))

    answer = await bench.end(lease, Failed("boom"))

    assert answer.state is State.FAILED
    found = await bench.get("a")
    assert (found.state, found.reason, found.error) == (State.FAILED, Reason.MAX_ATTEMPTS, "boom")
    assert found.finished_at == bench.clock.now()
    assert (found.lease_until, found.worker) == (None, None)


async def test_a_last_failure_with_its_own_reason_keeps_it(bench: Bench) -> None:
    """P11: a timeout that was the last attempt is told as a timeout."""
    lease = await bench.held("a", rules=rules(max_attempts=1))

    await bench.end(lease, Failed("too slow", reason=Reason.TIMEOUT))

    assert (await bench.get("a")).reason is Reason.TIMEOUT


async def test_a_permanent_failure_is_final_at_once(bench: Bench) -> None:
    """P11: a failure that no retry can mend uses no more attempts."""
    lease = await bench.held("a")

    await bench.end(lease, Failed("bad address", retryable=False))

    found = await bench.get("a")
    assert (found.state, found.reason, found.attempt) == (State.FAILED, Reason.PERMANENT, 1)


@pytest.mark.parametrize("reason", [Reason.DECODE, Reason.UNKNOWN_TYPE, Reason.PARENT_FAILED])
async def test_a_permanent_failure_says_why(bench: Bench, reason: Reason) -> None:
    """P11: every final failure has a reason code."""
    lease = await bench.held("a")

    await bench.end(lease, Failed("cannot", reason=reason, retryable=False))

    assert (await bench.get("a")).reason is reason


async def test_the_last_expiry_is_final(bench: Bench) -> None:
    """P11: at max_attempts the next expiry is final, so a job that kills its worker ends."""
    await bench.held("a", rules=rules(max_attempts=1))
    bench.clock.advance(60)

    [answer] = await bench.upkeep()

    assert (answer.id, answer.state) == ("a", State.FAILED)
    found = await bench.get("a")
    assert (found.reason, found.attempt, found.lapses) == (Reason.LEASE_EXPIRED, 1, 1)
    assert found.error


async def test_failures_and_expiries_share_one_budget(bench: Bench) -> None:
    """P11: however attempts end, there are max_attempts of them."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("boom"))
    bench.clock.advance(RETRY_S)
    await bench.one()
    bench.clock.advance(60)
    lease = await bench.one()

    assert lease.job.attempt == 3
    assert (await bench.end(lease, Failed("boom"))).state is State.FAILED


async def test_a_retry_beyond_the_budget_is_a_failure(bench: Bench) -> None:
    """P11: the store enforces the budget, whatever transition it is asked for."""
    lease = await bench.held("a", rules=rules(max_attempts=1))
    wish = Transition(
        tenant="acme",
        id="a",
        token=lease.token,
        to=State.RETRYING,
        run_at=bench.clock.now() + SECOND,
        error="again, please",
    )

    answer = await bench.ack(wish)

    assert answer.state is State.FAILED
    found = await bench.get("a")
    assert (found.reason, found.error) == (Reason.MAX_ATTEMPTS, "again, please")
    bench.clock.advance(60)
    assert await bench.claim(1) == []


async def test_a_job_nobody_knows_is_dead_lettered_in_the_end(bench: Bench) -> None:
    """P11: releases for want of a handler are counted, and end as UNKNOWN_TYPE."""
    await bench.put("a")
    for n in range(1, MISSES_MAX):
        await bench.end(await bench.one(), Released(miss=True))
        assert (await bench.get("a")).misses == n

    answer = await bench.end(await bench.one(), Released(miss=True))

    assert answer.state is State.FAILED
    assert (await bench.get("a")).reason is Reason.UNKNOWN_TYPE
