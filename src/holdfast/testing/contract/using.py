"""The caller's own transaction: enqueue and completion are done when it commits, or never were."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import msgspec
import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import (
    IdConflict,
    InvalidInput,
    InvalidLeaseToken,
    JobAlreadyTerminal,
    JobCanceled,
    JobNotFound,
    LeaseExpired,
    QueueFull,
)
from holdfast.core.job import Completed, EventKind, Failed, Lease, NewJob, State
from holdfast.core.journal import Edge, OnFailure
from holdfast.core.lifecycle import Transition, completion
from holdfast.dispatch import Dispatcher, dispatched
from holdfast.store import Acked, Enqueued, Ref, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    MAIL,
    group_of,
    ids,
    job,
    queue_of,
    rules,
    tenant_of,
)
from holdfast.testing.contract.wait import asleep


class Undo(Exception):
    """Rolls the caller's transaction back."""


def joined(bench: Bench) -> Dispatcher:
    return dispatched(bench.store)


async def add_using(bench: Bench, connection: Any, *jobs: NewJob) -> list[Enqueued]:
    return await joined(bench).enqueue_using(connection, jobs)


async def end_using(bench: Bench, connection: Any, lease: Lease, **changes: Any) -> Acked:
    """Completes a job in the caller's transaction; `changes` to the transition."""
    change = completion(lease.job.tenant, lease.job.id, lease.token, cast(Any, b"done"))
    change = msgspec.structs.replace(change, **changes)
    return await joined(bench).ack_using(connection, change)


async def complete(bench: Bench, lease: Lease) -> None:
    """Completes a job in a transaction of its own."""
    async with bench.transaction() as connection:
        assert (await end_using(bench, connection, lease)).error is None


# -- enqueue ---------------------------------------------------------------------------------------


async def test_a_job_of_a_transaction_exists_from_its_commit_on(bench: Bench) -> None:
    """P1: nobody sees or claims it before."""
    bench.needs("transactional_enqueue")
    async with bench.transaction() as connection:
        [answer] = await add_using(bench, connection, job("a"))
        assert answer.created
        assert await bench.peek("a") is None

    assert await bench.state("a") is State.ENQUEUED
    assert await bench.kinds("a") == [EventKind.ENQUEUED]
    assert ids(await bench.claim()) == ["a"]


async def test_a_job_of_a_transaction_that_is_rolled_back_never_was(bench: Bench) -> None:
    """P1: neither the job nor its key, count or event."""
    bench.needs("transactional_enqueue")
    with suppress(Undo):
        async with bench.transaction() as connection:
            await add_using(bench, connection, job("a", key="k", group="g"))
            raise Undo

    assert await bench.peek("a") is None
    assert await bench.history("a") == []
    assert (await bench.tally(tenant_of())).counts == {}
    assert (await bench.add(job("b", key="k")))[0].created


async def test_known_ids_and_held_keys_are_told_in_a_transaction(bench: Bench) -> None:
    """P12: with what other calls and the transaction itself have made before."""
    bench.needs("transactional_enqueue")
    await bench.put("a", key="k")

    async with bench.transaction() as connection:
        answers = await add_using(
            bench, connection, job("a"), job("b", key="k"), job("c", key="new"), job("a", queue="x")
        )
        again = await add_using(bench, connection, job("c"), job("d", key="new"), job("e"))

    assert [(one.id, one.created) for one in answers[:3]] == [
        ("a", False), ("a", False), ("c", True),
    ]  # fmt: skip
    assert isinstance(answers[3].error, IdConflict)
    assert [(one.id, one.created) for one in again] == [("c", False), ("c", False), ("e", True)]
    assert ids(await bench.claim(10)) == ["a", "c", "e"]


async def test_a_full_tenant_refuses_a_job_of_a_transaction(bench: Bench) -> None:
    """P19: the cap counts what the transaction has added itself; the other jobs are kept."""
    bench.needs("transactional_enqueue")
    await bench.configure(tenant_of(), max_queued=2)

    async with bench.transaction() as connection:
        answers = [(await add_using(bench, connection, job(id)))[0].error for id in ("a", "b", "c")]

    assert [type(error) for error in answers] == [type(None), type(None), QueueFull]
    assert ids(await bench.claim(10)) == ["a", "b"]


async def test_jobs_of_a_transaction_wait_for_their_group_and_time(bench: Bench) -> None:
    """P13: limits, order and delays are those of any enqueue."""
    bench.needs("transactional_enqueue")
    await bench.configure(group_of(), max_running=1)

    async with bench.transaction() as connection:
        await add_using(bench, connection, job("a", group="crawl"), job("b", group="crawl"))
        await add_using(bench, connection, job("later", delay_us=5 * SECOND), job("c", priority=5))

    assert ids(await bench.claim(10)) == ["c", "a"]
    bench.clock.advance(5)
    assert ids(await bench.claim(10)) == ["later"]
    tally = (await bench.tally(tenant_of())).counts
    assert (tally[State.ENQUEUED], tally[State.PROCESSING]) == (1, 3)


async def test_jobs_of_many_transactions_keep_their_order(bench: Bench) -> None:
    """P9, P14: also among jobs that other calls add in between."""
    bench.needs("transactional_enqueue")
    for number in range(6):
        if number % 2:
            await bench.put(str(number))
            continue
        async with bench.transaction() as connection:
            await add_using(bench, connection, job(str(number)))

    assert ids(await bench.claim(10)) == ["0", "1", "2", "3", "4", "5"]
    page = await bench.store.events(ACME, 0, 100)
    enqueued = [event.job_id for event in page.events if event.kind is EventKind.ENQUEUED]
    assert enqueued == ["0", "1", "2", "3", "4", "5"]


async def test_a_commit_wakes_who_waits_for_work(bench: Bench) -> None:
    """P10: soon after the commit, whoever makes it."""
    bench.needs("transactional_enqueue")
    begun = bench.transaction()
    async with asleep(bench, Watch(tenants=(ACME,), queues=(MAIL,))), begun as connection:
        await add_using(bench, connection, job("a"))


async def test_what_is_no_connection_is_refused(bench: Bench) -> None:
    """The error names the argument, and nothing is stored."""
    bench.needs("transactional_enqueue")
    with pytest.raises(InvalidInput, match="using"):
        await add_using(bench, object(), job("a"))

    assert await bench.peek("a") is None


# -- completion ------------------------------------------------------------------------------------


async def test_a_commit_completes_the_job_and_a_rollback_leaves_it_leased(bench: Bench) -> None:
    """P4: the completion is part of the caller's transaction."""
    bench.needs("transactional_ack")
    lease = await bench.held("a")
    with suppress(Undo):
        async with bench.transaction() as connection:
            answer = await end_using(bench, connection, lease)
            assert (answer.error, answer.state) == (None, State.COMPLETED)
            assert await bench.state("a") is State.PROCESSING
            raise Undo
    assert (await bench.extend(lease)).error is None

    await complete(bench, lease)

    record = await bench.get("a")
    assert (record.state, record.result, record.attempt) == (State.COMPLETED, b"done", 1)
    kinds = [kind for kind in await bench.kinds("a") if kind is not EventKind.EXTENDED]
    assert kinds == [EventKind.ENQUEUED, EventKind.LEASED, EventKind.COMPLETED]
    assert (await bench.tally(tenant_of())).counts == {State.COMPLETED: 1}


async def test_a_lease_completes_its_job_once(bench: Bench) -> None:
    """P4: whoever acks again, by either way, hears that the job has ended."""
    bench.needs("transactional_ack")
    lease = await bench.held("a")
    await complete(bench, lease)

    async with bench.transaction() as connection:
        second = await end_using(bench, connection, lease)
    third = await bench.end(lease, Failed("late"))

    assert [type(one.error) for one in (second, third)] == [JobAlreadyTerminal] * 2
    assert await bench.state("a") is State.COMPLETED


async def test_refusals_in_a_transaction_have_the_order_of_all_others(bench: Bench) -> None:
    """P3, P7: not found, canceled, terminal, token, expiry; and nothing is written."""
    bench.needs("transactional_ack")
    await bench.put("a", "b", "c", "d")
    leases = {lease.job.id: lease for lease in await bench.claim(4)}
    await bench.cancel("a")
    await bench.end(leases["b"], Completed())
    wrong: dict[str, Any] = {"token": "nonce.1"}

    async def refused(of: str, **changes: Any) -> type | None:
        with suppress(Undo):
            async with bench.transaction() as connection:
                found = await end_using(bench, connection, leases[of], **changes)
                raise Undo
        return None if found.error is None else type(found.error)

    assert await refused("c", tenant=GLOBEX) is JobNotFound
    assert await refused("c", id="nobody") is JobNotFound
    assert await refused("a", **wrong) is JobCanceled
    assert await refused("b", **wrong) is JobAlreadyTerminal
    assert await refused("c", token=leases["d"].token) is InvalidLeaseToken
    bench.clock.advance(60)
    assert await refused("c", **wrong) is InvalidLeaseToken
    assert await refused("c") is LeaseExpired


async def test_a_new_lease_refuses_the_completion_of_the_old_one(bench: Bench) -> None:
    """P2, P3: a worker that was cut off cannot commit; the one that has the job can."""
    bench.needs("transactional_ack")
    old = await bench.held("a")
    bench.clock.advance(60)
    new = await bench.one()

    async with bench.transaction() as connection:
        answer = await end_using(bench, connection, old)
    await complete(bench, new)

    assert isinstance(answer.error, InvalidLeaseToken)
    assert await bench.state("a") is State.COMPLETED


async def test_a_cancel_waits_for_the_commit_and_loses(bench: Bench) -> None:
    """P5: what has committed first counts; never both."""
    bench.needs("transactional_ack")
    lease = await bench.held("a")
    async with bench.transaction() as connection:
        await end_using(bench, connection, lease)
        canceling = asyncio.create_task(bench.cancel("a"))
        await asyncio.sleep(0)

    assert not (await canceling).canceled
    assert await bench.state("a") is State.COMPLETED
    assert EventKind.CANCELED not in await bench.kinds("a")


async def test_a_cancel_wins_over_a_transaction_that_comes_later(bench: Bench) -> None:
    """P5: the handler's own writes are refused with its ack."""
    bench.needs("transactional_ack")
    lease = await bench.held("a")

    async with bench.transaction() as connection:
        assert (await bench.cancel("a")).canceled
        answer = await end_using(bench, connection, lease)

    assert isinstance(answer.error, JobCanceled)
    assert await bench.state("a") is State.CANCELED


async def test_a_completion_hands_on_what_its_job_held(bench: Bench) -> None:
    """P12, P13: the key is free, the place of the limit and of the ordered group is the next's."""
    bench.needs("transactional_ack")
    await bench.configure(queue_of(), max_running=1)
    await bench.configure(group_of(), ordered=True)
    await bench.put("a", "b", group="crawl")
    await bench.put("keyed", queue="other", key="k")
    first, keyed = await bench.claim(10)

    async with bench.transaction() as connection:
        await end_using(bench, connection, first)
        await end_using(bench, connection, keyed)

    assert ids(await bench.claim(10)) == ["b"]
    assert await bench.running(queue_of()) == 1
    assert (await bench.add(job("again", queue="other", key="k")))[0].created


async def test_the_last_job_of_a_group_drains_it(bench: Bench) -> None:
    """P14: the event is the same as after any ack."""
    bench.needs("transactional_ack")
    lease = await bench.held("a", group="crawl")

    await complete(bench, lease)

    assert (await bench.kinds("a"))[-2:] == [EventKind.COMPLETED, EventKind.DRAINED]


async def test_a_completion_releases_who_awaits_the_job(bench: Bench) -> None:
    """P17: a later node of a flow is ready with the commit, and once."""
    bench.needs("transactional_ack")
    bench.needs("steps")
    edge = Edge("child", "", OnFailure.FAIL)
    await bench.add(job("a", edges=(edge,)), job("child", parents=1))
    lease = await bench.one()

    with suppress(Undo):
        async with bench.transaction() as connection:
            await end_using(bench, connection, lease)
            raise Undo
    assert await bench.state("child") is State.WAITING
    await complete(bench, lease)

    assert ids(await bench.claim(10)) == ["child"]


async def test_a_job_that_is_not_kept_goes_with_the_commit(bench: Bench) -> None:
    """P6: and its id is free."""
    bench.needs("transactional_ack")
    lease = await bench.held("a", rules=rules(keep_us=0))

    await complete(bench, lease)

    assert await bench.peek("a") is None
    assert (await bench.add(job("a")))[0].created


async def test_a_completion_and_new_jobs_share_a_transaction(bench: Bench) -> None:
    """P1, P4: the next job exists exactly if this one is completed."""
    bench.needs("transactional_ack")
    lease = await bench.held("a", key="k")
    with suppress(Undo):
        async with bench.transaction() as connection:
            await add_using(bench, connection, job("b"))
            await end_using(bench, connection, lease)
            raise Undo
    assert await bench.peek("b") is None

    async with bench.transaction() as connection:
        [held] = await add_using(bench, connection, job("c", key="k"))
        await end_using(bench, connection, lease)
        [free] = await add_using(bench, connection, job("d", key="k"))

    assert (held.id, held.created, free.created) == ("a", False, True)
    assert ids(await bench.claim(10)) == ["d"]


async def test_a_commit_wakes_who_waits_for_the_end_of_the_job(bench: Bench) -> None:
    """P10: as any ack does."""
    bench.needs("transactional_ack")
    lease = await bench.held("a")
    async with asleep(bench, Watch(job=Ref(ACME, "a"))):
        await complete(bench, lease)


async def test_only_completions_can_be_part_of_a_transaction(bench: Bench) -> None:
    """A store may refuse any other outcome; it is never half done."""
    bench.needs("transactional_ack")
    lease = await bench.held("a")
    change = Transition(tenant=ACME, id="a", token=lease.token, to=State.FAILED, error="no")

    with pytest.raises(InvalidInput, match="completion"):
        async with bench.transaction() as connection:
            await joined(bench).ack_using(connection, change)

    assert await bench.state("a") is State.PROCESSING
