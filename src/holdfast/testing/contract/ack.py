"""Ack: each transition with a valid lease is applied once; each has its own answer."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import BATCH_MAX, ERROR_CHARS_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import (
    InvalidInput,
    InvalidLeaseToken,
    JobAlreadyTerminal,
    JobCanceled,
    JobNotFound,
    Refused,
)
from holdfast.core.job import (
    Abandoned,
    Completed,
    EventKind,
    Failed,
    Outcome,
    Released,
    Snoozed,
    State,
)
from holdfast.core.lifecycle import Transition, decide
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, RETRY, ids


async def test_completion_keeps_the_result(bench: Bench) -> None:
    """P4: the handler's result is stored with the transition."""
    lease = await bench.held("a")
    bench.clock.advance(3)

    answer = await bench.end(lease, Completed(b'{"ok": true}'))

    assert (answer.id, answer.state, answer.error) == ("a", State.COMPLETED, None)
    found = await bench.get("a")
    assert (found.state, found.result) == (State.COMPLETED, b'{"ok": true}')
    assert found.finished_at == found.updated_at == bench.clock.now()
    assert (found.lease_until, found.worker, found.attempt) == (None, None, 1)


async def test_completion_without_a_result_has_none(bench: Bench) -> None:
    """P4: a handler that returns nothing has no result, not an empty one."""
    lease = await bench.held("a")
    await bench.end(lease, Completed())

    assert (await bench.get("a")).result is None


async def test_a_retry_waits_as_long_as_its_policy_says(bench: Bench) -> None:
    """P8: the delay is counted by the store's clock, from the ack."""
    lease = await bench.held("a")
    bench.clock.advance(7)

    answer = await bench.end(lease, Failed("boom"))

    assert answer.state is State.RETRYING
    found = await bench.get("a")
    assert (found.state, found.error, found.attempt) == (State.RETRYING, "boom", 1)
    assert found.run_at == bench.clock.now() + RETRY
    assert found.finished_at is None


async def test_a_handlers_own_delay_replaces_the_policys(bench: Bench) -> None:
    """P8: a delay that the handler asks for is a duration too."""
    lease = await bench.held("a")

    await bench.end(lease, Failed("later", after_us=77 * SECOND))

    assert (await bench.get("a")).run_at == bench.clock.now() + 77 * SECOND


async def test_a_retry_instant_is_kept_exactly(bench: Bench) -> None:
    """P10: a transition with an instant of its own is due then, and at no other time."""
    lease = await bench.held("a")
    at = bench.clock.now() + 123 * SECOND
    wish = Transition(tenant=ACME, id="a", token=lease.token, to=State.RETRYING, run_at=at)

    assert (await bench.ack(wish)).state is State.RETRYING

    assert (await bench.get("a")).run_at == at
    bench.clock.set(at - bench.store.capabilities.time_precision_us)
    assert await bench.claim(1) == []
    bench.clock.set(at)
    assert ids(await bench.claim(1)) == ["a"]


async def test_a_release_is_ready_at_once(bench: Bench) -> None:
    """P11: a released job that did not run is ready for the next claim."""
    lease = await bench.held("a")

    assert (await bench.end(lease, Released())).state is State.ENQUEUED

    assert await bench.state("a") is State.ENQUEUED
    assert ids(await bench.claim(1)) == ["a"]


@pytest.mark.parametrize("outcome", [Released(20 * SECOND), Snoozed(20 * SECOND)])
async def test_a_delayed_giving_back_is_scheduled(bench: Bench, outcome: Outcome) -> None:
    """P8: a snooze or a delayed release is due by the store's clock."""
    lease = await bench.held("a")
    bench.clock.advance(5)

    assert (await bench.end(lease, outcome)).state is State.SCHEDULED

    found = await bench.get("a")
    assert (found.state, found.run_at) == (State.SCHEDULED, bench.clock.now() + 20 * SECOND)
    assert await bench.claim(1) == []
    bench.clock.advance(20)
    assert ids(await bench.claim(1)) == ["a"]


async def test_an_abandoned_job_goes_to_the_next_worker(bench: Bench) -> None:
    """P11: a job released by a shutdown is claimable at once."""
    lease = await bench.held("a")

    assert (await bench.end(lease, Abandoned())).state is State.ENQUEUED

    again = await bench.one(worker="w2")
    assert (again.job.id, again.job.attempt, again.job.fence) == ("a", 1, 2)


@pytest.mark.parametrize(
    "outcome",
    [Completed(), Failed("x"), Failed("x", retryable=False), Released(), Snoozed(SECOND)],
)
async def test_a_lease_settles_its_job_once(bench: Bench, outcome: Outcome) -> None:
    """P4: a state transition happens at most once per lease; a repeat is refused."""
    lease = await bench.held("a")
    assert (await bench.end(lease, outcome)).error is None
    settled = await bench.get("a")
    told = await bench.kinds("a")

    again = await bench.end(lease, outcome)

    assert again.state is None
    assert isinstance(again.error, Refused)
    assert await bench.get("a") == settled
    assert await bench.kinds("a") == told


async def test_the_same_job_twice_in_a_batch_is_settled_once(bench: Bench) -> None:
    """P4: items of one batch see each other; the first one wins."""
    lease = await bench.held("a")

    done, late = await bench.store.ack(
        [
            decide(Completed(b"1"), lease.job, lease.token, 0.0),
            decide(Failed("boom", retryable=False), lease.job, lease.token, 0.0),
        ]
    )

    assert done.state is State.COMPLETED
    assert isinstance(late.error, JobAlreadyTerminal)
    assert (await bench.get("a")).result == b"1"


async def test_one_bad_ack_does_not_spoil_the_others(bench: Bench) -> None:
    """P15: each transition of a batch has its own answer, in its own place."""
    await bench.put("a", "b", "c", "d")
    a, b, c, d = await bench.claim(4)
    await bench.cancel("c")
    gone = decide(Completed(), a.job, a.token, 0.0)

    answers = await bench.store.ack(
        [
            decide(Completed(), a.job, a.token, 0.0),
            Transition(tenant=ACME, id="nobody", token=a.token, to=State.COMPLETED),
            decide(Completed(), c.job, c.token, 0.0),
            decide(Completed(), b.job, a.token, 0.0),
            gone,
            decide(Failed("boom"), d.job, d.token, 0.0),
        ]
    )

    kinds = [None, JobNotFound, JobCanceled, InvalidLeaseToken, JobAlreadyTerminal, None]
    assert [answer.error and type(answer.error) for answer in answers] == kinds
    assert [answer.id for answer in answers] == ["a", "nobody", "c", "b", "a", "d"]
    assert [answer.state for answer in answers] == [
        State.COMPLETED,
        None,
        None,
        None,
        None,
        State.RETRYING,
    ]
    assert await bench.state("b") is State.PROCESSING


async def test_a_batch_of_acks_over_the_limit_is_refused_whole(bench: Bench) -> None:
    """P15: InvalidInput names the field, and nothing is applied."""
    lease = await bench.held("a")
    done = decide(Completed(), lease.job, lease.token, 0.0)

    with pytest.raises(InvalidInput) as caught:
        await bench.store.ack([done] * (BATCH_MAX + 1))

    assert caught.value.facts["field"] == "transitions"
    assert await bench.state("a") is State.PROCESSING
    assert await bench.store.ack([]) == []


async def test_a_refused_ack_changes_nothing(bench: Bench) -> None:
    """P3: acts with another token are refused, and leave no trace."""
    lease = await bench.held("a")
    before = await bench.get("a")

    answer = await bench.ack(decide(Completed(b"evil"), lease.job, "stolen", 0.0))

    assert isinstance(answer.error, InvalidLeaseToken)
    assert await bench.get("a") == before
    assert await bench.kinds("a") == [EventKind.ENQUEUED, EventKind.LEASED]


async def test_a_full_batch_is_settled_in_one_call(bench: Bench) -> None:
    """P15: the named limit is allowed."""
    await bench.put(*(f"j{n}" for n in range(BATCH_MAX)))
    leases = await bench.claim(BATCH_MAX)
    assert len(leases) == BATCH_MAX

    answers = await bench.store.ack(
        [decide(Completed(), lease.job, lease.token, 0.0) for lease in leases]
    )

    assert {answer.state for answer in answers} == {State.COMPLETED}
    [tally] = await bench.store.count(ACME)
    assert tally.counts == {State.COMPLETED: BATCH_MAX}


async def test_an_overlong_error_never_fails_an_ack(bench: Bench) -> None:
    """P15: error texts are cut, keeping head and tail; the failure is stored all the same."""
    lease = await bench.held("a")

    answer = await bench.end(lease, Failed("head " + "x" * 99_999 + " tail", retryable=False))

    assert answer.state is State.FAILED
    error = (await bench.get("a")).error
    assert error is not None
    assert len(error) <= ERROR_CHARS_MAX
    assert error.startswith("head ")
    assert error.endswith(" tail")


async def test_the_error_of_the_last_failure_stays_with_the_job(bench: Bench) -> None:
    """P11: an error is kept over later attempts, so that its cause can be found."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("first cause"))
    bench.clock.advance(10)

    lease = await bench.one()
    assert lease.job.error == "first cause"

    await bench.end(lease, Released())

    assert (await bench.get("a")).error == "first cause"
