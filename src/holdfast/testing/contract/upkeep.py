"""Upkeep: expired jobs are read, the rules decide, and the ack is checked like any other."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import EXPIRED_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput, InvalidLeaseToken, JobAlreadyTerminal
from holdfast.core.job import Completed, EventKind, Failed, Reason, State
from holdfast.core.lifecycle import lapse
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, ids, rules


async def test_nothing_is_expired_before_its_deadline(bench: Bench) -> None:
    """P2: a live lease, a job in time and a scheduled job are nobody else's business."""
    lease = await bench.held("held")
    await bench.put("free", ttl_us=60 * SECOND)
    await bench.put("later", delay_us=5 * SECOND)

    bench.clock.set(lease.until - 1)

    assert await bench.store.expired(10) == []


async def test_a_lapsed_lease_is_listed_with_its_token(bench: Bench) -> None:
    """P10: at the instant of the deadline upkeep may act, with what it needs to be checked."""
    lease = await bench.held("a")
    bench.clock.set(lease.until)

    [seen] = await bench.store.expired(10)

    assert (seen.job.id, seen.token, seen.overdue_us) == ("a", lease.token, 0)
    assert (seen.job.attempt, seen.job.state) == (1, State.PROCESSING)
    bench.clock.advance(3)
    [seen] = await bench.store.expired(10)
    assert seen.overdue_us == 3 * SECOND


async def test_a_job_past_its_time_to_live_is_listed_without_a_token(bench: Bench) -> None:
    """P10: nobody holds it, so there is no token."""
    await bench.put("free", ttl_us=10 * SECOND)
    await bench.put("later", ttl_us=10 * SECOND, delay_us=60 * SECOND)
    bench.clock.advance(12)

    seen = await bench.store.expired(10)

    assert sorted(ids(seen)) == ["free", "later"]
    assert {one.token for one in seen} == {None}
    assert {one.overdue_us for one in seen} == {2 * SECOND}


async def test_the_longest_overdue_comes_first(bench: Bench) -> None:
    """P15: a bounded turn takes what waits longest, leases and times to live alike."""
    await bench.put("lease2", "lease9")
    await bench.claim(1, lease_us=8 * SECOND)
    await bench.claim(1, lease_us=1 * SECOND)
    await bench.put("ttl5", ttl_us=5 * SECOND)
    await bench.put("ttl7", ttl_us=3 * SECOND)
    bench.clock.advance(10)

    seen = await bench.store.expired(10)

    assert ids(seen) == ["lease9", "ttl7", "ttl5", "lease2"]
    assert ids(await bench.store.expired(2)) == ["lease9", "ttl7"]


async def test_expired_only_reads(bench: Bench) -> None:
    """P4: looking changes nothing, however often."""
    await bench.held("a")
    await bench.put("b", ttl_us=SECOND)
    bench.clock.advance(60)
    before = [await bench.get("a"), await bench.get("b")]

    first, second = await bench.store.expired(10), await bench.store.expired(10)

    assert len(first) == 2
    assert first == second
    assert [await bench.get("a"), await bench.get("b")] == before


async def test_a_rescued_job_is_ready_with_its_attempt_counted(bench: Bench) -> None:
    """P11: an expiry with attempts left gives the job to the next, and counts."""
    await bench.held("a")
    bench.clock.advance(60)

    [answer] = await bench.upkeep()

    assert (answer.id, answer.state, answer.error) == ("a", State.ENQUEUED, None)
    found = await bench.get("a")
    assert (found.state, found.attempt, found.lapses) == (State.ENQUEUED, 1, 1)
    assert (found.lease_until, found.worker) == (None, None)
    assert (await bench.one()).job.attempt == 2


async def test_an_expired_job_fails_with_its_reason(bench: Bench) -> None:
    """P11: not started in time is in the dead letters as EXPIRED."""
    await bench.put("a", ttl_us=10 * SECOND)
    bench.clock.advance(10)

    [answer] = await bench.upkeep()

    assert answer.state is State.FAILED
    found = await bench.get("a")
    assert (found.reason, found.attempt, found.lapses) == (Reason.EXPIRED, 0, 0)
    assert found.finished_at == bench.clock.now()
    assert found.error


async def test_a_running_job_does_not_expire(bench: Bench) -> None:
    """P2: a time to live is for jobs that wait."""
    await bench.held("a", ttl_us=10 * SECOND)
    bench.clock.advance(30)

    assert await bench.store.expired(10) == []
    assert await bench.state("a") is State.PROCESSING


async def test_upkeep_may_be_repeated(bench: Bench) -> None:
    """P15: a second turn finds nothing left to do, and a repeated ack is refused."""
    await bench.held("a")
    await bench.put("b", ttl_us=SECOND)
    bench.clock.advance(60)
    seen = await bench.store.expired(10)
    changes = [lapse(one.job, one.token) for one in seen]

    first = await bench.store.ack(changes)
    again = await bench.store.ack(changes)

    assert {answer.id: answer.state for answer in first} == {"a": State.ENQUEUED, "b": State.FAILED}
    errors = {answer.id: type(answer.error) for answer in again}
    assert errors == {"a": InvalidLeaseToken, "b": JobAlreadyTerminal}
    assert await bench.upkeep() == []
    assert (await bench.get("a")).lapses == 1


async def test_a_holder_that_acked_in_between_is_not_overwritten(bench: Bench) -> None:
    """P4: the rescue looked, the next holder settled, the rescue's ack is refused."""
    await bench.held("a")
    bench.clock.advance(60)
    [seen] = await bench.store.expired(10)
    await bench.end(await bench.one(), Completed(b"done"))

    answer = await bench.ack(lapse(seen.job, seen.token))

    assert isinstance(answer.error, JobAlreadyTerminal)
    assert (await bench.get("a")).result == b"done"


async def test_a_new_holder_is_not_robbed(bench: Bench) -> None:
    """P2: the rescue looked, another claimed, the rescue's ack is refused."""
    await bench.held("a")
    bench.clock.advance(60)
    [seen] = await bench.store.expired(10)
    lease = await bench.one()

    answer = await bench.ack(lapse(seen.job, seen.token))

    assert isinstance(answer.error, InvalidLeaseToken)
    assert (await bench.extend(lease)).error is None
    assert (await bench.get("a")).lapses == 1


async def test_a_lapse_of_a_live_lease_is_refused(bench: Bench) -> None:
    """P2: a lapse is valid only while the deadline has passed, whoever knows the token."""
    lease = await bench.held("a")

    answer = await bench.ack(lapse(lease.job, lease.token))

    assert isinstance(answer.error, InvalidLeaseToken)
    assert await bench.state("a") is State.PROCESSING


async def test_a_job_that_started_in_time_is_not_expired_by_a_late_look(bench: Bench) -> None:
    """P2: upkeep saw a waiting job; by now it runs, so the time to live is over and done."""
    await bench.put("a", ttl_us=60 * SECOND)
    waiting = await bench.get("a")
    await bench.one(lease_us=600 * SECOND)
    bench.clock.advance(60)

    answer = await bench.ack(lapse(waiting, None))

    assert isinstance(answer.error, InvalidLeaseToken)
    assert await bench.state("a") is State.PROCESSING


async def test_a_job_in_time_is_not_expired(bench: Bench) -> None:
    """P8: the store's clock decides whether a time to live has passed, not the caller."""
    await bench.put("a", ttl_us=60 * SECOND)
    await bench.put("forever")

    for id in ("a", "forever"):
        answer = await bench.ack(lapse(await bench.get(id), None))
        assert isinstance(answer.error, InvalidLeaseToken)
        assert await bench.state(id) is State.ENQUEUED


async def test_lapsed_leases_of_all_tenants_are_listed(bench: Bench) -> None:
    """P10: upkeep is one duty for the whole store."""
    await bench.put("a", tenant=ACME)
    await bench.put("g", tenant=GLOBEX)
    await bench.claim(2)
    bench.clock.advance(60)

    assert {(one.job.tenant, one.job.id) for one in await bench.store.expired(10)} == {
        (ACME, "a"),
        (GLOBEX, "g"),
    }


async def test_a_spent_job_is_still_listed_after_claims_passed_it_by(bench: Bench) -> None:
    """P11: a claim that cannot take a lapsed job does not hide it from upkeep."""
    await bench.held("a", rules=rules(max_attempts=1))
    await bench.put("b", ttl_us=SECOND)
    bench.clock.advance(60)
    assert await bench.claim(10) == []
    assert await bench.claim(10) == []

    seen = await bench.store.expired(10)

    assert sorted(ids(seen)) == ["a", "b"]
    await bench.upkeep()
    assert (await bench.get("a")).reason is Reason.LEASE_EXPIRED
    assert (await bench.get("b")).reason is Reason.EXPIRED


async def test_what_ended_is_not_listed(bench: Bench) -> None:
    """P6: final is final, also for deadlines that pass later."""
    await bench.put("done", "canceled", "failed", ttl_us=90 * SECOND)
    done, _, failed = await bench.claim(3)
    await bench.end(done, Completed())
    await bench.end(failed, Failed("no", retryable=False))
    await bench.cancel("canceled")

    bench.clock.advance(600)

    assert await bench.store.expired(10) == []


async def test_a_rescue_is_told_as_such(bench: Bench) -> None:
    """P14: the log says that the lease lapsed, rescued by upkeep or by a claim."""
    await bench.held("a")
    bench.clock.advance(60)
    await bench.upkeep()
    await bench.one()
    bench.clock.advance(60)
    await bench.one()

    assert await bench.kinds("a") == [
        EventKind.ENQUEUED,
        EventKind.LEASED,
        EventKind.RESCUED,
        EventKind.LEASED,
        EventKind.RESCUED,
        EventKind.LEASED,
    ]


@pytest.mark.parametrize("limit", [-1, EXPIRED_MAX + 1])
async def test_a_look_out_of_bounds_is_refused(bench: Bench, limit: int) -> None:
    """P15: InvalidInput names the field."""
    with pytest.raises(InvalidInput) as caught:
        await bench.store.expired(limit)

    assert caught.value.facts["field"] == "limit"
