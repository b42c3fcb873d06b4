"""Cancel (P5): it overrides every other action, in every state that is not final."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.core.bounds import BATCH_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput, JobCanceled, JobNotFound
from holdfast.core.job import (
    Abandoned,
    Completed,
    EventKind,
    Failed,
    Outcome,
    Reason,
    Released,
    Snoozed,
    State,
)
from holdfast.core.lifecycle import lapse
from holdfast.store import Act, Ref
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, by_id, changing, finding, job, rules


async def scheduled(bench: Bench) -> None:
    await bench.put("a", delay_us=30 * SECOND)


async def enqueued(bench: Bench) -> None:
    await bench.put("a")


async def processing(bench: Bench) -> None:
    await bench.held("a")


async def lapsed(bench: Bench) -> None:
    await bench.held("a")
    bench.clock.advance(60)


async def spent(bench: Bench) -> None:
    await bench.held("a", rules=rules(max_attempts=1))
    bench.clock.advance(60)


async def retrying(bench: Bench) -> None:
    await bench.end(await bench.held("a"), Failed("boom"))


async def released(bench: Bench) -> None:
    await bench.end(await bench.held("a"), Released())


async def expired(bench: Bench) -> None:
    await bench.put("a", ttl_us=SECOND)
    bench.clock.advance(1)


@pytest.mark.parametrize(
    "situation",
    [scheduled, enqueued, processing, lapsed, spent, retrying, released, expired],
    ids=lambda situation: situation.__name__,
)
async def test_cancel_ends_a_job_wherever_it_stands(
    bench: Bench, situation: Callable[[Bench], Awaitable[None]]
) -> None:
    """P5: any job that is not finished can be canceled, and stays so."""
    await situation(bench)

    answer = await bench.cancel("a")

    assert (answer.id, answer.canceled, answer.error) == ("a", True, None)
    found = await bench.get("a")
    assert (found.state, found.finished_at) == (State.CANCELED, bench.clock.now())
    assert (found.lease_until, found.worker) == (None, None)
    assert await bench.upkeep() == []
    bench.clock.advance(600)
    assert await bench.claim(10) == []
    assert await bench.upkeep() == []
    assert await bench.state("a") is State.CANCELED
    assert (await bench.kinds("a"))[-1] is EventKind.CANCELED


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(b"late"),
        Failed("late"),
        Failed("late", retryable=False),
        Released(),
        Snoozed(SECOND),
        Abandoned(),
    ],
)
async def test_cancel_wins_over_every_outcome(bench: Bench, outcome: Outcome) -> None:
    """P5: once cancel returned true no ack changes the job; the holder is told."""
    lease = await bench.held("a")
    assert (await bench.cancel("a")).canceled
    before = await bench.get("a")

    answer = await bench.end(lease, outcome)

    assert isinstance(answer.error, JobCanceled)
    assert await bench.get("a") == before
    assert before.result is None


async def test_cancel_wins_over_a_heartbeat(bench: Bench) -> None:
    """P5: an extension after the cancel is refused and extends nothing."""
    lease = await bench.held("a")
    await bench.cancel("a")

    assert isinstance((await bench.extend(lease)).error, JobCanceled)
    assert (await bench.get("a")).lease_until is None


async def test_cancel_wins_over_a_rescue_that_looked_before(bench: Bench) -> None:
    """P5: upkeep that read a lapsed lease, then acts after the cancel, changes nothing."""
    await bench.held("a")
    bench.clock.advance(60)
    [seen] = await bench.store.expired(10)
    await bench.cancel("a")

    answer = await bench.ack(lapse(seen.job, seen.token))

    assert isinstance(answer.error, JobCanceled)
    assert await bench.state("a") is State.CANCELED


async def test_cancel_wins_over_an_expiry_that_looked_before(bench: Bench) -> None:
    """P5: upkeep that read a job past its time to live changes nothing after the cancel."""
    await bench.put("a", ttl_us=SECOND)
    bench.clock.advance(1)
    [seen] = await bench.store.expired(10)
    await bench.cancel("a")

    answer = await bench.ack(lapse(seen.job, seen.token))

    assert isinstance(answer.error, JobCanceled)
    found = await bench.get("a")
    assert (found.state, found.reason) == (State.CANCELED, None)


async def test_cancel_wins_over_changes(bench: Bench) -> None:
    """P5: a canceled job is neither reprioritised nor rescheduled."""
    await bench.put("a")
    await bench.cancel("a")
    before = await bench.get("a")

    for act in (Act.REPRIORITISE, Act.RESCHEDULE):
        changed = await bench.store.change(changing(act, priority=9, delay_us=SECOND))
        assert by_id(changed) == {}

    assert await bench.get("a") == before


async def test_a_canceled_job_is_no_dead_letter(bench: Bench) -> None:
    """P11: the reason of an earlier failed attempt does not stay with a job that was canceled."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("slow", reason=Reason.TIMEOUT))

    await bench.cancel("a")

    found = await bench.get("a")
    assert (found.state, found.reason, found.error) == (State.CANCELED, None, "slow")
    assert (await bench.store.find(finding(reasons=(Reason.TIMEOUT,)))).jobs == []


async def test_a_cancel_may_be_repeated(bench: Bench) -> None:
    """P15: the same answer each time, and one event."""
    await bench.put("a")

    first, again = await bench.cancel("a"), await bench.cancel("a")

    assert first == again
    assert first.canceled
    assert await bench.kinds("a") == [EventKind.ENQUEUED, EventKind.CANCELED]


@pytest.mark.parametrize("outcome", [Completed(b"1"), Failed("no", retryable=False)])
async def test_a_finished_job_is_not_canceled(bench: Bench, outcome: Outcome) -> None:
    """P6: completed and failed are final; cancel says false and changes nothing."""
    lease = await bench.held("a")
    await bench.end(lease, outcome)
    before = await bench.get("a")

    answer = await bench.cancel("a")

    assert not answer.canceled
    assert await bench.get("a") == before


async def test_an_unknown_job_cannot_be_canceled(bench: Bench) -> None:
    """P7: another tenant's job is not found, as if it had never existed."""
    await bench.put("a")

    unknown = await bench.cancel("nobody")
    foreign = await bench.cancel("a", tenant=GLOBEX)

    assert (unknown.canceled, foreign.canceled) == (False, False)
    assert isinstance(unknown.error, JobNotFound)
    assert isinstance(foreign.error, JobNotFound)
    assert await bench.state("a") is State.ENQUEUED


async def test_one_unknown_job_does_not_spoil_the_batch(bench: Bench) -> None:
    """P15: each ref has its own answer, in its own place."""
    await bench.put("a", "b")
    refs = [Ref(ACME, "b"), Ref(ACME, "nobody"), Ref(GLOBEX, "a"), Ref(ACME, "a"), Ref(ACME, "a")]

    answers = await bench.store.cancel(refs)

    assert [answer.id for answer in answers] == ["b", "nobody", "a", "a", "a"]
    assert [answer.canceled for answer in answers] == [True, False, False, True, True]
    assert [await bench.state(id) for id in ("a", "b")] == [State.CANCELED] * 2


async def test_a_batch_of_cancels_over_the_limit_is_refused_whole(bench: Bench) -> None:
    """P15: InvalidInput names the field, and nothing is canceled."""
    await bench.put("a")

    with pytest.raises(InvalidInput) as caught:
        await bench.store.cancel([Ref(ACME, "a")] * (BATCH_MAX + 1))

    assert caught.value.facts["field"] == "refs"
    assert await bench.state("a") is State.ENQUEUED
    assert await bench.store.cancel([]) == []


async def test_a_canceled_id_is_not_enqueued_again(bench: Bench) -> None:
    """P6: repeating the enqueue of a canceled job does not bring it back."""
    await bench.put("a")
    await bench.cancel("a")

    [answer] = await bench.add(job("a"))

    assert (answer.id, answer.created) == ("a", False)
    assert await bench.state("a") is State.CANCELED
    assert await bench.claim(1) == []


async def test_a_canceled_job_that_is_not_kept_is_gone_at_once(bench: Bench) -> None:
    """P5: with nothing kept the late ack finds no job, and changes nothing."""
    lease = await bench.held("a", rules=rules(keep_us=0))

    assert (await bench.cancel("a")).canceled

    assert await bench.peek("a") is None
    answer = await bench.end(lease, Completed())
    assert isinstance(answer.error, JobNotFound | JobCanceled)
