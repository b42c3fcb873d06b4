"""Refusals (P3): not found or foreign, then canceled, then terminal, then token, then expiry.

Every act that needs a lease is tried in every situation that refuses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from holdfast.core.errors import (
    HoldfastError,
    InvalidLeaseToken,
    JobAlreadyTerminal,
    JobCanceled,
    JobNotFound,
    LeaseExpired,
)
from holdfast.core.job import (
    Abandoned,
    Completed,
    EventKind,
    Failed,
    Lease,
    Outcome,
    Released,
    Snoozed,
    State,
)
from holdfast.core.lifecycle import Transition, lapse
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, rules

Act = Callable[[Bench, Lease], Awaitable[HoldfastError | None]]
Situation = Callable[[Bench], Awaitable[Lease]]


def acking(outcome: Outcome) -> Act:
    async def act(bench: Bench, lease: Lease) -> HoldfastError | None:
        return (await bench.end(lease, outcome)).error

    return act


async def extending(bench: Bench, lease: Lease) -> HoldfastError | None:
    return (await bench.extend(lease)).error


ACTS = {
    "complete": acking(Completed(b"late")),
    "retry": acking(Failed("late")),
    "fail": acking(Failed("late", retryable=False)),
    "release": acking(Released()),
    "snooze": acking(Snoozed(1)),
    "abandon": acking(Abandoned()),
    "extend": extending,
}


# -- situations: each gives the lease that an act will be tried with ------------------------------


def forged(lease: Lease) -> Lease:
    return Lease(lease.job, "another-token", lease.until)


async def unknown(bench: Bench) -> Lease:
    lease = await bench.held("a")
    return Lease(msgspec.structs.replace(lease.job, id="nobody"), lease.token, lease.until)


async def foreign(bench: Bench) -> Lease:
    lease = await bench.held("a")
    return Lease(msgspec.structs.replace(lease.job, tenant=GLOBEX), lease.token, lease.until)


async def foreign_canceled(bench: Bench) -> Lease:
    lease = await foreign(bench)
    await bench.cancel("a")
    return lease


async def foreign_expired(bench: Bench) -> Lease:
    lease = await foreign(bench)
    bench.clock.advance(60)
    return lease


async def canceled(bench: Bench) -> Lease:
    lease = await bench.held("a")
    await bench.cancel("a")
    return lease


async def canceled_and_forged(bench: Bench) -> Lease:
    return forged(await canceled(bench))


async def canceled_and_expired(bench: Bench) -> Lease:
    lease = await canceled(bench)
    bench.clock.advance(60)
    return lease


async def canceled_after_expiry(bench: Bench) -> Lease:
    lease = await bench.held("a")
    bench.clock.advance(60)
    await bench.cancel("a")
    return lease


async def completed(bench: Bench) -> Lease:
    lease = await bench.held("a")
    await bench.end(lease, Completed(b"first"))
    return lease


async def completed_and_forged(bench: Bench) -> Lease:
    return forged(await completed(bench))


async def completed_and_expired(bench: Bench) -> Lease:
    lease = await completed(bench)
    bench.clock.advance(60)
    return lease


async def failed(bench: Bench) -> Lease:
    lease = await bench.held("a")
    await bench.end(lease, Failed("first", retryable=False))
    return lease


async def failed_and_forged(bench: Bench) -> Lease:
    return forged(await failed(bench))


async def failed_by_upkeep(bench: Bench) -> Lease:
    lease = await bench.held("a", rules=rules(max_attempts=1))
    bench.clock.advance(60)
    await bench.upkeep()
    return lease


async def live_and_forged(bench: Bench) -> Lease:
    return forged(await bench.held("a"))


async def expired_and_forged(bench: Bench) -> Lease:
    lease = forged(await bench.held("a"))
    bench.clock.advance(60)
    return lease


async def leased_again(bench: Bench) -> Lease:
    lease = await bench.held("a")
    bench.clock.advance(60)
    assert (await bench.one(worker="w2")).job.id == "a"
    return lease


async def leased_again_to_the_same_worker(bench: Bench) -> Lease:
    lease = await bench.held("a")
    bench.clock.advance(60)
    assert (await bench.one(worker="w1")).job.id == "a"
    return lease


async def released_and_leased_again(bench: Bench) -> Lease:
    lease = await bench.held("a")
    await bench.end(lease, Released())
    await bench.one()
    return lease


async def never_leased(bench: Bench) -> Lease:
    await bench.put("a")
    return Lease(await bench.get("a"), "a-guess", 0)


async def expired(bench: Bench) -> Lease:
    lease = await bench.held("a")
    bench.clock.set(lease.until)
    return lease


async def expired_and_rescued(bench: Bench) -> Lease:
    lease = await expired(bench)
    await bench.upkeep()
    return lease


async def expired_and_spent(bench: Bench) -> Lease:
    lease = await bench.held("a", rules=rules(max_attempts=1))
    bench.clock.advance(60)
    return lease


EXPECTED: dict[type[HoldfastError], tuple[Situation, ...]] = {
    JobNotFound: (unknown, foreign, foreign_canceled, foreign_expired),
    JobCanceled: (canceled, canceled_and_forged, canceled_and_expired, canceled_after_expiry),
    JobAlreadyTerminal: (
        completed,
        completed_and_forged,
        completed_and_expired,
        failed,
        failed_and_forged,
        failed_by_upkeep,
    ),
    InvalidLeaseToken: (
        live_and_forged,
        expired_and_forged,
        leased_again,
        leased_again_to_the_same_worker,
        released_and_leased_again,
        never_leased,
    ),
    LeaseExpired: (expired, expired_and_rescued, expired_and_spent),
}

CASES = [
    pytest.param(act, situation, error, id=f"{name}-{situation.__name__}")
    for error, situations in EXPECTED.items()
    for situation in situations
    for name, act in ACTS.items()
]


@pytest.mark.parametrize(("act", "situation", "error"), CASES)
async def test_an_act_without_its_lease_is_refused(
    bench: Bench, act: Act, situation: Situation, error: type[HoldfastError]
) -> None:
    """P3: the first reason in the order of checks is the answer, and nothing changes."""
    lease = await situation(bench)
    before, told = await bench.peek("a"), await bench.kinds("a")

    refused = await act(bench, lease)

    assert type(refused) is error
    assert refused.facts["id"] == lease.job.id
    assert await bench.peek("a") == before
    assert await bench.kinds("a") == told


async def test_a_foreign_job_is_refused_in_the_words_of_an_unknown_one(bench: Bench) -> None:
    """P7: an answer by id does not tell that the id exists elsewhere."""
    lease = await bench.held("a")
    here = Transition(tenant=GLOBEX, id="a", token=lease.token, to=State.COMPLETED)
    nowhere = Transition(tenant="unheard-of", id="a", token=lease.token, to=State.COMPLETED)

    foreign_answer, unknown_answer = await bench.store.ack([here, nowhere])

    assert isinstance(foreign_answer.error, JobNotFound)
    assert str(foreign_answer.error) == str(unknown_answer.error)
    assert foreign_answer.error.facts == (unknown_answer.error or JobNotFound()).facts


async def test_no_token_is_not_a_token(bench: Bench) -> None:
    """P3: an act without a token never passes for the holder's, also on a job nobody holds."""
    await bench.put("free", priority=-1)
    await bench.held("a")

    for id in ("a", "free"):
        answer = await bench.ack(Transition(tenant=ACME, id=id, token=None, to=State.COMPLETED))
        assert isinstance(answer.error, InvalidLeaseToken)

    assert await bench.state("free") is State.ENQUEUED
    assert EventKind.COMPLETED not in await bench.kinds("a")


async def test_a_refusal_does_not_repeat_the_token(bench: Bench) -> None:
    """P3: a secret does not travel in an error, which may be logged."""
    lease = await bench.held("a")
    bench.clock.advance(60)

    answer = await bench.end(lease, Completed())

    assert lease.token not in repr(answer)
    assert lease.token not in str(answer.error)
    assert isinstance(answer.error, LeaseExpired)


async def test_a_lapse_needs_the_token_that_lapsed(bench: Bench) -> None:
    """P3: upkeep's acts are checked like anybody's."""
    lease = await bench.held("a")
    bench.clock.advance(60)

    wrong = await bench.ack(lapse(lease.job, "another-token"))
    none = await bench.ack(lapse(lease.job, None))

    assert isinstance(wrong.error, InvalidLeaseToken)
    assert isinstance(none.error, InvalidLeaseToken)
    assert (await bench.upkeep())[0].state is State.ENQUEUED
