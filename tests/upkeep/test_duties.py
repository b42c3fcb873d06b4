"""Rescue and prune, a turn at a time, on a clock that stands still."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from holdfast import Reason, State
from holdfast.core.bounds import EXPIRED_MAX, PRUNE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed
from holdfast.loop import keep_turning
from holdfast.store import Lapsed, Tally
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import HOUR, LEASE, rules
from holdfast.upkeep.prune import Prune
from holdfast.upkeep.reconcile import Reconcile
from holdfast.upkeep.rescue import Rescue


async def test_a_lapsed_lease_with_attempts_left_is_ready_again(bench: Bench) -> None:
    """The attempt stays counted, and the lapse is remembered."""
    await bench.held("j")
    rescue = Rescue(bench.store, 1.0)
    assert await rescue.turn() == 1.0
    assert (rescue.done, rescue.lag_s) == (0, 0.0)
    bench.clock.advance(LEASE / SECOND + 3)

    await rescue.turn()

    job = await bench.get("j")
    assert (job.state, job.attempt, job.lapses) == (State.ENQUEUED, 1, 1)
    assert (rescue.done, rescue.lag_s) == (1, 3.0)


async def test_a_lapsed_last_attempt_is_a_dead_letter(bench: Bench) -> None:
    """LEASE_EXPIRED, with words for the operator."""
    await bench.held("j", rules=rules(max_attempts=1))
    bench.clock.advance(LEASE / SECOND)

    await Rescue(bench.store, 1.0).turn()

    job = await bench.get("j")
    assert (job.state, job.reason) == (State.FAILED, Reason.LEASE_EXPIRED)
    assert "attempt 1" in (job.error or "")


async def test_a_job_that_did_not_start_in_time_expires(bench: Bench) -> None:
    """Enqueued or scheduled; one that runs is let be."""
    await bench.held("runs", ttl_us=5 * SECOND)
    await bench.put("waits", ttl_us=5 * SECOND)
    await bench.put("later", ttl_us=5 * SECOND, delay_us=HOUR)
    await bench.put("stays")
    bench.clock.advance(5)

    await Rescue(bench.store, 1.0).turn()

    for id in ("waits", "later"):
        job = await bench.get(id)
        assert (job.state, job.reason) == (State.FAILED, Reason.EXPIRED), id
    assert await bench.state("runs") is State.PROCESSING
    assert await bench.state("stays") is State.ENQUEUED


async def test_a_full_step_asks_for_the_next_at_once(bench: Bench) -> None:
    """A mass death is worked off in bounded steps without a pause."""
    for start in range(0, EXPIRED_MAX + 10, 505):
        await bench.put(*(f"j{start + n}" for n in range(505)), ttl_us=SECOND)
    bench.clock.advance(1)
    rescue = Rescue(bench.store, 1.0)

    assert [await rescue.turn(), await rescue.turn()] == [0.0, 1.0]
    assert rescue.done == EXPIRED_MAX + 10


async def test_what_changed_between_the_look_and_the_act_is_let_be(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal is no fault: cancel won, or the holder was faster."""
    await bench.held("j")
    bench.clock.advance(LEASE / SECOND)
    look = bench.store.expired

    async def then_cancel(limit: int) -> list[Lapsed]:
        found = await look(limit)
        await bench.cancel("j")
        return found

    monkeypatch.setattr(bench.store, "expired", then_cancel)
    rescue = Rescue(bench.store, 1.0)
    await rescue.turn()

    assert rescue.done == 0
    assert await bench.state("j") is State.CANCELED


async def test_prune_deletes_what_was_kept_long_enough(bench: Bench) -> None:
    """Finished jobs by their own keeping, events by theirs; the rest stays."""
    lease = await bench.held("old", rules=rules(keep_us=10 * SECOND))
    await bench.end(lease, Completed())
    lease = await bench.held("kept", rules=rules(keep_us=HOUR))
    await bench.end(lease, Completed())
    await bench.put("open")
    bench.clock.advance(11)
    prune = Prune(bench.store, 5.0, 0.0)

    assert await prune.turn() == 5.0

    assert prune.done == 1
    assert await bench.peek("old") is None
    assert await bench.state("kept") is State.COMPLETED
    assert await bench.state("open") is State.ENQUEUED
    assert (await bench.store.events("acme", 0, 10)).lost


async def test_a_full_prune_asks_for_the_next_at_once(bench: Bench) -> None:
    """In bounded steps."""
    total = PRUNE_MAX + 100
    for start in range(0, total, 850):
        await bench.put(*(f"j{start + n}" for n in range(850)), rules=rules(keep_us=SECOND))
    for _ in range(0, total, 850):
        for lease in await bench.claim(850):
            await bench.end(lease, Completed())
    bench.clock.advance(1)
    prune = Prune(bench.store, 5.0, 3600.0)

    assert [await prune.turn(), await prune.turn()] == [0.0, 5.0]
    assert prune.done == total


class Flaky:
    """A duty that fails at first."""

    name = "flaky"

    def __init__(self, stop: asyncio.Event) -> None:
        self.turns = 0
        self._stop = stop

    async def turn(self) -> float:
        self.turns += 1
        if self.turns == 1:
            raise ValueError("oh")
        self._stop.set()
        return 3600.0


async def test_a_fault_is_logged_and_never_the_end_of_a_duty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its next turn comes after a pause; a stop wakes it out of any sleep."""
    stop = asyncio.Event()
    duty = Flaky(stop)

    with caplog.at_level(logging.ERROR, "holdfast"):
        async with asyncio.timeout(5):
            await keep_turning(duty, stop)

    assert duty.turns == 2
    assert "flaky failed" in caplog.text


async def test_reconcile_recounts_once_in_an_interval(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at the start of every worker; what it had to mend is logged."""
    asked: list[bool] = []
    count = bench.store.count

    async def damaged(*args: Any, **kwargs: Any) -> list[Tally]:
        asked.append(kwargs["recount"])
        return [msgspec.structs.replace(one, correction=-2) for one in await count(*args, **kwargs)]

    await bench.put("j")
    duty = Reconcile(bench.store, 300.0)
    assert [await duty.turn(), await duty.turn()] == [300.0, 300.0]
    assert duty.corrected == 0
    monkeypatch.setattr(bench.store, "count", damaged)

    with caplog.at_level(logging.WARNING, "holdfast"):
        await duty.turn()

    assert (asked, duty.corrected) == ([True], 2)
    assert "wrong by -2" in caplog.text
