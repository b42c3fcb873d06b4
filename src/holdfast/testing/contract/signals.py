"""Signals: named values from outside for one job, and jobs that park to await them."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.bounds import ENTRY_NAME_MAX, SIGNALS_MAX, STEP_BYTES_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import (
    InvalidInput,
    JobAlreadyTerminal,
    JobCanceled,
    JobNotFound,
    JournalFull,
)
from holdfast.core.job import By, Completed, EventKind, Failed, State
from holdfast.core.journal import EntryKind, Signal, await_join, await_signal, new_join
from holdfast.core.scope import BlockerKind
from holdfast.store import Act, Watch
from holdfast.testing.contract.bench import Bench, by_key
from holdfast.testing.contract.builders import ACME, GLOBEX, MAIL, changing
from holdfast.testing.contract.wait import asleep

APPROVED = await_signal("approved")
SIGNAL = EntryKind.SIGNAL


async def parked(bench: Bench, id: str = "a", awaits: str = APPROVED, **options: object) -> None:
    """A job that has parked to await a signal, for ever."""
    bench.needs("steps")
    lease = await bench.held(id, **options)
    answer = await bench.park(lease, awaits)
    assert (answer.state, answer.error) == (State.SCHEDULED, None)


# -- parking ---------------------------------------------------------------------------------------


async def test_a_parked_job_holds_no_place_and_no_attempt(bench: Bench) -> None:
    """P11: the attempt is given back, and nobody holds the job."""
    await parked(bench)

    found = await bench.get("a")
    assert (found.state, found.attempt, found.fence) == (State.SCHEDULED, 0, 1)
    assert (found.awaits, found.worker, found.lease_until) == (APPROVED, None, None)
    bench.clock.advance(366 * 24 * 3600)
    assert await bench.claim(1) == []
    assert await bench.store.expired(10) == []


async def test_a_parked_job_wakes_at_its_instant(bench: Bench) -> None:
    """P10: to the microsecond, as any other that is due. Then it awaits nothing more."""
    lease = await bench.held("a")
    await bench.park(lease, delay=10 * SECOND)
    bench.clock.advance(9.999999)
    assert await bench.claim(1) == []
    bench.clock.advance(0.000001)

    lease = await bench.one()

    assert (lease.job.attempt, lease.job.fence, lease.job.awaits) == (1, 2, None)


async def test_a_wait_with_a_time_out_wakes_at_that_too(bench: Bench) -> None:
    """P10: without the signal."""
    lease = await bench.held("a")
    await bench.park(lease, APPROVED, 10 * SECOND)
    bench.clock.advance(10)

    lease = await bench.one()

    assert lease.journal == ()
    assert (await bench.send("a", "approved")).stored


async def test_the_events_tell_what_a_job_awaits(bench: Bench) -> None:
    """P14."""
    await parked(bench)
    await bench.send("a", "approved")

    events = (await bench.history("a"))[-3:]

    said = [(event.kind, event.note) for event in events]
    assert said == [
        (EventKind.RELEASED, APPROVED),
        (EventKind.SIGNALED, "approved"),
        (EventKind.READY, APPROVED),
    ]


async def test_explain_names_the_signal_that_a_job_awaits(bench: Bench) -> None:
    """P9: and until when, if it does not wait for ever."""
    await parked(bench)
    gates = await bench.gates("a")
    assert set(gates) == {BlockerKind.AWAITS}
    assert "approved" in gates[BlockerKind.AWAITS].words
    assert gates[BlockerKind.AWAITS].until is None

    lease = await bench.held("b")
    await bench.park(lease, APPROVED, 10 * SECOND)
    gate = (await bench.gates("b"))[BlockerKind.AWAITS]
    assert gate.until == bench.clock.now() + 10 * SECOND


async def test_a_parked_job_can_be_canceled(bench: Bench) -> None:
    """P5."""
    await parked(bench)

    assert (await bench.cancel("a")).canceled
    assert isinstance((await bench.send("a", "approved")).error, JobCanceled)
    assert await bench.claim(1) == []


async def test_an_operator_can_end_a_wait(bench: Bench) -> None:
    """P10: rescheduled to now, it runs without its signal."""
    await parked(bench)
    await bench.store.change(changing(Act.RESCHEDULE, ids=("a",)))

    assert (await bench.one()).job.id == "a"


# -- signals ---------------------------------------------------------------------------------------


async def test_a_signal_wakes_the_job_that_awaits_it(bench: Bench) -> None:
    """P10: at once, and the lease brings its value."""
    await parked(bench)

    answer = await bench.send("a", "approved", b'"yes"')

    assert (answer.id, answer.stored, answer.error) == ("a", True, None)
    assert by_key((await bench.one()).journal) == {(SIGNAL, "approved"): b'"yes"'}


async def test_a_signal_may_come_before_the_wait(bench: Bench) -> None:
    """P10: then parking for it makes the job ready at once."""
    bench.needs("steps")
    lease = await bench.held("a")
    await bench.send("a", "approved")

    answer = await bench.park(lease, APPROVED)

    assert (answer.state, answer.error) == (State.ENQUEUED, None)
    assert by_key((await bench.one()).journal) == {(SIGNAL, "approved"): b"true"}


async def test_a_signal_may_come_before_the_first_run(bench: Bench) -> None:
    """P10: and moves nothing that does not await it."""
    await bench.put("a", delay_us=10 * SECOND)

    assert (await bench.send("a", "approved")).stored
    assert await bench.claim(1) == []
    bench.clock.advance(10)
    assert by_key((await bench.one()).journal) == {(SIGNAL, "approved"): b"true"}


async def test_another_signal_does_not_wake_a_job(bench: Bench) -> None:
    """P10."""
    await parked(bench)

    await bench.send("a", "other")

    assert await bench.claim(1) == []
    assert (await bench.get("a")).awaits == APPROVED


async def test_the_first_signal_of_a_name_counts(bench: Bench) -> None:
    """P16: a later one is told so, and changes nothing."""
    await parked(bench)
    await bench.send("a", "approved", b"1")

    answer = await bench.send("a", "approved", b"2")

    assert (answer.stored, answer.error) == (False, None)
    assert await bench.journal("a") == {(SIGNAL, "approved"): b"1"}


async def test_signals_of_one_call_have_their_own_answers(bench: Bench) -> None:
    """P15: in their places; an ended job, a missing one and another tenant's are refused."""
    bench.needs("steps")
    for id in ("done", "dead"):
        await bench.held(id)
    await parked(bench)
    lease = await bench.held("ended")
    await bench.end(lease, Completed())
    await bench.cancel("dead")

    answers = await bench.store.signal(
        [
            Signal(ACME, "ended", "s", b"1"),
            Signal(ACME, "dead", "s", b"1"),
            Signal(GLOBEX, "a", "approved", b"1"),
            Signal(ACME, "a", "approved", b"1"),
            Signal(ACME, "a", "approved", b"2"),
            Signal(ACME, "done", "s", b"1"),
        ]
    )

    assert [answer.id for answer in answers] == ["ended", "dead", "a", "a", "a", "done"]
    assert [answer.stored for answer in answers] == [False, False, False, True, False, True]
    errors = [type(answer.error) for answer in answers]
    assert errors[:3] == [JobAlreadyTerminal, JobCanceled, JobNotFound]
    assert errors[3:] == [type(None)] * 3


async def test_a_signal_does_not_break_a_lease(bench: Bench) -> None:
    """P2: a running job goes on; its next run finds the signal."""
    bench.needs("steps")
    lease = await bench.held("a")

    await bench.send("a", "approved")

    assert await bench.state("a") is State.PROCESSING
    assert (await bench.end(lease, Failed("no", after_us=0))).error is None
    assert by_key((await bench.one()).journal) == {(SIGNAL, "approved"): b"true"}


async def test_a_job_takes_so_many_signals(bench: Bench) -> None:
    """P19: one more is refused, a repeated one is not."""
    bench.needs("steps")
    await bench.put("a")
    some = [Signal(ACME, "a", f"s{number}", b"1") for number in range(SIGNALS_MAX)]
    assert all(answer.stored for answer in await bench.store.signal(some))

    assert isinstance((await bench.send("a", "more")).error, JournalFull)
    again = await bench.send("a", "s0")
    assert (again.stored, again.error) == (False, None)


async def test_who_sent_a_signal_is_in_its_event(bench: Bench) -> None:
    """P14."""
    bench.needs("steps")
    await bench.put("a")

    await bench.store.signal([Signal(ACME, "a", "s", b"1")], by=By("ann", "checked"))

    assert (await bench.history("a"))[-1].by == "ann: checked"


async def test_a_signal_wakes_an_idle_worker(bench: Bench) -> None:
    """P10: as a new job does."""
    await parked(bench)

    async with asleep(bench, Watch(tenants=(ACME,), queues=(MAIL,))) as sleeper:
        assert not sleeper.done()
        await bench.send("a", "approved")

    assert sleeper.done()


async def test_a_signal_and_the_park_that_awaits_it_never_miss_each_other(bench: Bench) -> None:
    """P10: whichever of the two comes first, the job becomes ready."""
    bench.needs("steps")
    for number in range(20):
        lease = await bench.held(f"j{number}")
        await asyncio.gather(bench.park(lease, APPROVED), bench.send(f"j{number}", "approved"))

        again = await bench.one()
        assert again.job.id == f"j{number}"
        await bench.end(again, Completed())


async def test_a_signal_of_the_name_of_a_join_does_not_complete_it(bench: Bench) -> None:
    """P17: what a job awaits has a kind and a name."""
    bench.needs("steps")
    lease = await bench.held("a")
    await bench.extend(lease, entries=(new_join("approved", 1),))
    await bench.park(lease, await_join("approved"))

    await bench.send("a", "approved")

    assert await bench.claim(1) == []


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "field"),
    [
        (Signal(ACME, "a", "", b"1"), "name"),
        (Signal(ACME, "a", "n" * (ENTRY_NAME_MAX + 1), b"1"), "name"),
        (Signal(ACME, "", "s", b"1"), "id"),
        (Signal("", "a", "s", b"1"), "tenant"),
        (Signal(ACME, "a", "s", b"x" * (STEP_BYTES_MAX + 1)), "value"),
    ],
)
async def test_a_signal_that_cannot_be_stored_is_refused(
    bench: Bench, signal: Signal, field: str
) -> None:
    """P15: with the name of the field, and the others of its call are not stored."""
    bench.needs("steps")
    await bench.put("b")

    with pytest.raises(InvalidInput) as refused:
        await bench.store.signal([Signal(ACME, "b", "s", b"1"), signal])

    assert refused.value.field == field
    assert await bench.journal("b") == {}
