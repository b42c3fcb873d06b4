"""The Acker: outcomes reach the store in batches, through outages, each settled once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from holdfast import State
from holdfast.ack import CALLS_MAX, Acker, PendingAck
from holdfast.core.bounds import BATCH_MAX
from holdfast.core.errors import JobCanceled, StoreError, StoreUnavailable
from holdfast.core.job import Completed, Failed, Lease
from holdfast.events import Announcer, Confirmed
from holdfast.store import Acked, Ref
from holdfast.stores import open_store
from holdfast.testing import Faults, ManualClock
from holdfast.testing.contract.bench import Bench

FAR_S = 3600.0


class Desk(Bench):
    """A bench whose store can fail, with an Acker on it."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.faults = Faults(open_store("memory://", clock))
        super().__init__(lambda: self.faults.store, clock)
        self.announcer = Announcer()
        self.confirmed: list[Confirmed] = []
        self.announcer.subscribers.append(self.confirmed.append)
        self.acker = Acker(self.store, self.announcer, chance=lambda: 0.0)
        self.answers: dict[str, Acked] = {}

    def submit(self, lease: Lease, outcome: Any, until_s: float = FAR_S) -> None:
        end = time.monotonic() + until_s
        self.acker.submit(PendingAck(lease, outcome, lambda: end, self._answered))

    def _answered(self, answer: Acked) -> None:
        assert answer.id not in self.answers
        self.answers[answer.id] = answer


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    await desk.open()
    yield desk
    await desk.close()


async def test_outcomes_that_wait_together_are_one_call(desk: Desk) -> None:
    """No work per job that can be done per batch."""
    await desk.put(*(f"j{n}" for n in range(100)))

    for lease in await desk.claim(100):
        desk.submit(lease, Completed(1))
    await desk.acker.idle()

    assert desk.faults.count("ack") == 1
    assert {answer.state for answer in desk.answers.values()} == {State.COMPLETED}
    assert len(desk.confirmed) == 100
    assert desk.acker.pending == 0


async def test_outcomes_of_successive_turns_of_the_loop_are_one_call(desk: Desk) -> None:
    """Jobs that never wait end in bursts, a few in each turn."""
    await desk.put(*(f"j{n}" for n in range(60)))

    leases = await desk.claim(60)
    for lease in leases:
        desk.submit(lease, Completed(1))
        await asyncio.sleep(0)
    await desk.acker.idle()

    assert desk.faults.count("ack") <= 3
    assert len(desk.answers) == 60


async def test_an_outcome_does_not_wait_long_for_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many more end in the next turns."""
    monkeypatch.setattr("holdfast.ack.GATHER_S", 0.0)
    await desk.put(*(f"j{n}" for n in range(60)))

    first, *others = await desk.claim(60)
    desk.submit(first, Completed(1))
    for lease in others:
        await asyncio.sleep(0)
        if desk.faults.count("ack"):
            break
        desk.submit(lease, Completed(1))
    assert desk.acker.pending < 10
    await desk.acker.idle()


async def test_a_full_batch_does_not_wait_for_the_one_before(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls at most are on their way; what does not fill one more goes with the next."""
    many, held, sent = BATCH_MAX * 3 + 10, list[Lease](), list[int]()
    for first in range(0, many, BATCH_MAX):
        await desk.put(*(f"j{n}" for n in range(first, min(first + BATCH_MAX, many))))
        held += await desk.claim(BATCH_MAX)
    gate, full, pass_on = asyncio.Event(), asyncio.Event(), desk.faults.pass_on

    async def slowly(verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sent.append(len(args[0]))
        if len(sent) == CALLS_MAX:
            full.set()
        await gate.wait()
        return await pass_on(verb, args, kwargs)

    monkeypatch.setattr(desk.faults, "pass_on", slowly)
    async with asyncio.timeout(5):
        for lease in held:
            desk.submit(lease, Completed())
        await full.wait()
        assert sent == [BATCH_MAX, BATCH_MAX]
        assert desk.acker.pending == many
        gate.set()
        await desk.acker.idle()

    assert sent == [BATCH_MAX, BATCH_MAX, BATCH_MAX, 10]
    assert desk.acker.pending == 0
    assert len(desk.answers) == many


async def test_an_outage_is_outlived(desk: Desk) -> None:
    """The same outcome is sent again until the store answers."""
    lease = await desk.held("j1")
    desk.faults.fail("ack", times=3)

    desk.submit(lease, Completed("r"))
    assert desk.acker.pending == 1
    async with asyncio.timeout(5):
        await desk.acker.idle()

    assert desk.faults.count("ack") == 4
    assert (await desk.get("j1")).result == "r"


async def test_an_answer_that_was_lost_is_settled_once(desk: Desk) -> None:
    """The repeated ack is refused by the store; the job was completed by the first."""
    lease = await desk.held("j1")
    desk.faults.fail("ack", late=True)

    desk.submit(lease, Completed("r"))
    await desk.acker.idle()

    assert desk.answers["j1"].error is not None
    assert (await desk.get("j1")).result == "r"


async def test_an_outcome_is_given_up_when_its_lease_has_ended(desk: Desk) -> None:
    """From then on its deadline rescues the job; others of the batch are tried on."""
    await desk.put("late", "early")
    late, early = await desk.claim(2)
    desk.faults.fail("ack", times=2)

    desk.submit(late, Completed(), until_s=0.01)
    desk.submit(early, Completed())
    async with asyncio.timeout(5):
        await desk.acker.idle()

    assert isinstance(desk.answers["late"].error, StoreUnavailable)
    assert desk.answers["early"].state is State.COMPLETED
    assert await desk.state("late") is State.PROCESSING


async def test_a_poison_outcome_fails_alone(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A batch the store cannot even take is split; the culprit is named in the log."""
    await desk.put("a", "poison", "b")
    desk.faults.fail_if(
        "ack",
        lambda changes: any(change.id == "poison" for change in changes),
        ValueError("cannot bind"),
    )

    with caplog.at_level(logging.ERROR, "holdfast"):
        for lease in await desk.claim(3):
            desk.submit(lease, Completed(1))
        await desk.acker.idle()

    assert desk.answers["a"].state is desk.answers["b"].state is State.COMPLETED
    assert isinstance(desk.answers["poison"].error, StoreError)
    assert [record.message for record in caplog.records] == ["job poison: outcome cannot be stored"]


async def test_an_outcome_that_the_store_fails_at_keeps_nobody_waiting(desk: Desk) -> None:
    """P19: it alone is sent again until its lease has ended; the others are settled meanwhile."""
    await desk.put("poison", "a", "b", "c")
    desk.faults.fail_if(
        "ack",
        lambda changes: any(change.id == "poison" for change in changes),
        StoreError(store="tests", why="the row is too large"),
    )

    for lease in await desk.claim(4):
        desk.submit(lease, Completed(1), until_s=0.5)
    await desk.acker.idle()

    assert [desk.answers[id].state for id in "abc"] == [State.COMPLETED] * 3
    assert isinstance(desk.answers["poison"].error, StoreError)


async def test_an_outcome_that_the_rules_cannot_read_fails_alone(desk: Desk) -> None:
    """Neither the batch nor the acker ends with it."""
    await desk.put("a", "broken")
    a, broken = await desk.claim(2)
    rules = msgspec.structs.replace(broken.job.rules, retry=None)
    broken = Lease(msgspec.structs.replace(broken.job, rules=rules), broken.token, broken.until)

    desk.submit(broken, Failed("oh"))
    desk.submit(a, Completed())
    await desk.acker.idle()

    assert desk.answers["a"].state is State.COMPLETED
    assert desk.answers["broken"].error is not None
    assert desk.acker.pending == 0


async def test_a_refusal_is_told_and_announces_nothing(desk: Desk) -> None:
    """Only what the store confirmed is a fact."""
    lease = await desk.held("j1")
    await desk.store.cancel([Ref("acme", "j1")])

    desk.submit(lease, Completed())
    await desk.acker.idle()

    assert isinstance(desk.answers["j1"].error, JobCanceled)
    assert desk.confirmed == []


async def test_outcomes_that_come_meanwhile_wait_for_the_next_batch(desk: Desk) -> None:
    """`idle` returns when those are answered too."""
    await desk.put("a", "b")
    a, b = await desk.claim(2)

    desk.submit(a, Completed())
    await asyncio.sleep(0)
    desk.submit(b, Completed())
    await desk.acker.idle()

    assert set(desk.answers) == {"a", "b"}
