"""The conformance list of dog-queue, by its own numbers: A1 to G2."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidLeaseToken, JobAlreadyTerminal, JobCanceled, LeaseExpired
from holdfast.core.job import Completed, EventKind, Failed, Outcome, State
from holdfast.core.lifecycle import Transition
from holdfast.store import Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    MAIL,
    RETRY_S,
    ids,
    job,
    rules,
)


async def test_a1_dequeue_returns_token_and_future_deadline(bench: Bench) -> None:
    """P2: a lease has a token and a deadline, and the record shows the same deadline and fence."""
    await bench.put("a")

    lease = await bench.one()

    assert lease.token
    assert lease.until > bench.clock.now()
    record = await bench.get("a")
    assert record.state is State.PROCESSING
    assert (record.lease_until, record.fence) == (lease.until, lease.job.fence)


async def test_a2_ack_with_another_token_is_refused(bench: Bench) -> None:
    """P3: InvalidLeaseToken."""
    await bench.held("a")

    answer = await bench.ack(Transition(tenant=ACME, id="a", token="another", to=State.COMPLETED))

    assert isinstance(answer.error, InvalidLeaseToken)


async def test_a3_ack_after_expiry_is_refused(bench: Bench) -> None:
    """P3: LeaseExpired."""
    lease = await bench.held("a")
    bench.clock.set(lease.until)

    assert isinstance((await bench.end(lease, Completed())).error, LeaseExpired)


async def test_a4_a_reaped_job_has_a_new_token_and_one_more_attempt(bench: Bench) -> None:
    """P11: the same job, leased anew; the old token fails."""
    first = await bench.held("a")
    bench.clock.advance(60)
    await bench.upkeep()

    second = await bench.one()

    assert second.job.id == "a"
    assert second.token != first.token
    assert second.job.attempt == first.job.attempt + 1
    assert isinstance((await bench.end(first, Completed())).error, InvalidLeaseToken)
    assert (await bench.end(second, Completed())).state is State.COMPLETED


async def test_b1_a_second_complete_is_refused(bench: Bench) -> None:
    """P4: JobAlreadyTerminal."""
    lease = await bench.held("a")
    assert (await bench.end(lease, Completed())).state is State.COMPLETED

    assert isinstance((await bench.end(lease, Completed())).error, JobAlreadyTerminal)


async def test_b2_a_completed_job_is_neither_canceled_nor_failed(bench: Bench) -> None:
    """P6: cancel returns false, a failure is JobAlreadyTerminal."""
    lease = await bench.held("a")
    await bench.end(lease, Completed())

    assert (await bench.cancel("a")).canceled is False
    assert isinstance((await bench.end(lease, Failed("late"))).error, JobAlreadyTerminal)
    assert await bench.state("a") is State.COMPLETED


async def test_c1_cancel_while_leased_beats_the_complete(bench: Bench) -> None:
    """P5: cancel returns true, the complete is JobCanceled, the state stays."""
    lease = await bench.held("a")

    assert (await bench.cancel("a")).canceled is True
    assert isinstance((await bench.end(lease, Completed())).error, JobCanceled)
    assert await bench.state("a") is State.CANCELED


async def test_c2_after_cancel_heartbeat_and_fail_are_refused(bench: Bench) -> None:
    """P5: JobCanceled for both."""
    lease = await bench.held("a")
    await bench.cancel("a")

    assert isinstance((await bench.extend(lease)).error, JobCanceled)
    assert isinstance((await bench.end(lease, Failed("late"))).error, JobCanceled)
    assert await bench.state("a") is State.CANCELED


async def test_d1_a_retry_waits_for_its_exact_instant(bench: Bench) -> None:
    """P10: Retrying at retry_at; not dequeued before, dequeued after."""
    lease = await bench.held("a")
    retry_at = bench.clock.now() + 42 * SECOND
    await bench.ack(
        Transition(tenant=ACME, id="a", token=lease.token, to=State.RETRYING, run_at=retry_at)
    )

    record = await bench.get("a")
    assert (record.state, record.run_at) == (State.RETRYING, retry_at)
    bench.clock.advance(41)
    assert await bench.claim(1) == []
    bench.clock.advance(1)
    assert ids(await bench.claim(1)) == ["a"]


async def test_d2_a_failure_without_retry_is_final_with_its_text(bench: Bench) -> None:
    """P11: Failed with that error, never eligible again."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("the very text", retryable=False))

    record = await bench.get("a")
    assert (record.state, record.error) == (State.FAILED, "the very text")
    bench.clock.advance(600)
    assert await bench.claim(1) == []


async def test_d3_two_retries_are_three_attempts(bench: Bench) -> None:
    """P11: max_retries 2 gives attempts 1, 2, 3; the third failure is final despite a retry_at."""
    await bench.put("a", rules=rules(max_attempts=3))
    attempts = []
    for _ in range(3):
        lease = await bench.one()
        attempts.append(lease.job.attempt)
        retry_at = bench.clock.now() + SECOND
        answer = await bench.ack(
            Transition(tenant=ACME, id="a", token=lease.token, to=State.RETRYING, run_at=retry_at)
        )
        bench.clock.advance(1)

    assert attempts == [1, 2, 3]
    assert answer.state is State.FAILED
    assert await bench.claim(1) == []


async def test_d4_attempts_start_at_zero_and_count_with_the_dequeue(bench: Bench) -> None:
    """P11: 0 at enqueue, 1 right after the first dequeue."""
    await bench.put("a")
    assert (await bench.get("a")).attempt == 0

    assert (await bench.one()).job.attempt == 1
    assert (await bench.get("a")).attempt == 1


async def test_e1_the_same_key_gives_the_same_id(bench: Bench) -> None:
    """P12: while the first is not terminal."""
    await bench.put("a", key="k")

    [again] = await bench.add(job("b", key="k"))

    assert (again.id, again.created) == ("a", False)


async def test_e2_after_the_end_the_key_gives_a_new_id(bench: Bench) -> None:
    """P12: until_terminal."""
    lease = await bench.held("a", key="k")
    await bench.end(lease, Completed())

    [again] = await bench.add(job("b", key="k"))

    assert (again.id, again.created) == ("b", True)


async def test_e3_other_scopes_give_four_distinct_ids(bench: Bench) -> None:
    """P12: tenant, queue and type are part of the key."""
    answers = await bench.add(
        job("a", key="k"),
        job("b", key="k", tenant=GLOBEX),
        job("c", key="k", queue=AUDIO),
        job("d", key="k", type="other"),
    )

    assert {answer.id for answer in answers if answer.created} == {"a", "b", "c", "d"}


async def test_f1_high_before_low_then_enqueue_order(bench: Bench) -> None:
    """P9: among equals the earlier enqueued comes first."""
    await bench.put("low", priority=1)
    await bench.put("high1", "high2", priority=4)

    assert ids(await bench.claim(3)) == ["high1", "high2", "low"]


async def test_g1_a_subscriber_gets_the_enqueued_event(bench: Bench) -> None:
    """P14: with job, tenant, queue and type, woken rather than polling."""
    bench.needs("event_log")
    place = (await bench.store.events(ACME, 0, 100)).cursor
    sleeper = asyncio.create_task(bench.store.wait(Watch(tenants=(ACME,)), 50.0))
    await asyncio.sleep(0)
    await bench.put("a", type="send")

    async with asyncio.timeout(20.0):
        await sleeper

    [event] = (await bench.store.events(ACME, place, 100)).events
    assert event.kind is EventKind.ENQUEUED
    assert (event.job_id, event.tenant, event.queue, event.type) == ("a", ACME, MAIL, "send")


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Completed(), [EventKind.COMPLETED]),
        (Failed("no", retryable=False), [EventKind.FAILED]),
        (Failed("boom"), [EventKind.RETRYING, EventKind.LEASED]),
        (None, [EventKind.CANCELED]),
    ],
)
async def test_g2_every_step_is_told_in_order(
    bench: Bench, outcome: Outcome | None, told: list[EventKind]
) -> None:
    """P14: leased, then how it went."""
    lease = await bench.held("a")
    if outcome is None:
        await bench.cancel("a")
    else:
        await bench.end(lease, outcome)
    bench.clock.advance(RETRY_S)
    await bench.claim(1)

    assert await bench.kinds("a") == [EventKind.ENQUEUED, EventKind.LEASED, *told]
