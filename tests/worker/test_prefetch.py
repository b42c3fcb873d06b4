"""How many jobs a worker holds beyond those that it runs: more while jobs end fast."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast import Context, State
from holdfast.config import Config
from holdfast.core.bounds import PREFETCH_MAX
from holdfast.worker import worker as worker_module
from holdfast.worker.prefetch import AHEAD_S, Prefetch

if TYPE_CHECKING:
    from tests.worker.conftest import Yard


class Watch:
    """The clock of the module, which the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_s = 100.0
        monkeypatch.setattr("holdfast.worker.prefetch.time.monotonic", lambda: self.at_s)


def ended(one: Prefetch, number: int) -> None:
    for _ in range(number):
        one.ended()


@pytest.mark.parametrize(
    ("number", "seconds", "expected"),
    [
        (0, AHEAD_S, 10),
        (5, AHEAD_S, 10),
        (300, AHEAD_S, 300),
        (300, AHEAD_S * 10, 30),
        (300, 60.0, 10),
        (10**6, AHEAD_S, PREFETCH_MAX),
    ],
)
def test_as_many_as_ended_lately_and_never_fewer_than_the_slots(
    monkeypatch: pytest.MonkeyPatch, number: int, seconds: float, expected: int
) -> None:
    """A claim serves what the worker runs in a moment, and a slow worker fills its slots."""
    watch = Watch(monkeypatch)
    one = Prefetch(Config.of())
    ended(one, number)
    assert one.most(10) == 10  # Too early to tell.
    watch.at_s += seconds * 1.000001
    ended(one, 0)
    assert one.most(10) == pytest.approx(expected, abs=1)


def test_a_worker_that_pauses_forgets_how_fast_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next jobs may be slow ones."""
    watch = Watch(monkeypatch)
    one = Prefetch(Config.of())
    ended(one, 500)
    watch.at_s += AHEAD_S * 1.000001
    assert one.most(10) > 400
    watch.at_s += 1.0
    assert one.most(10) == 10


def test_what_is_set_is_not_adapted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With long jobs and several workers none may wait behind another."""
    watch = Watch(monkeypatch)
    one = Prefetch(Config.of(prefetch=3))
    ended(one, 500)
    watch.at_s += AHEAD_S
    assert (one.least(10), one.most(10)) == (3, 3)


async def test_jobs_that_wait_behind_slow_ones_are_released(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were claimed while jobs ended fast; another worker may be idle. No attempt is lost."""
    gate = asyncio.Event()
    monkeypatch.setattr(worker_module, "WAIT_S", 0.05)
    monkeypatch.setattr(Prefetch, "most", lambda self, concurrency: 20)

    @yard.app.job()
    async def work(ctx: Context) -> None:
        await gate.wait()

    await yard.acme.enqueue_many(work().with_options(id=f"j{n:02}") for n in range(22))
    worker = yard.start(concurrency=2)
    facts = await yard.facts(18)
    worker.stop()

    # Two run and two wait, as many as without the fast jobs.
    assert {(fact.job.id, fact.state) for fact in facts} == {
        (f"j{n:02}", State.ENQUEUED) for n in range(4, 22)
    }
    assert (await yard.job("j10")).attempt == 0
    gate.set()
    await yard.join(worker)


async def test_jobs_behind_a_prefetch_that_was_set_stay(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sets it decides how long jobs may wait."""
    started, gate = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(worker_module, "WAIT_S", 0.0)

    @yard.app.job()
    async def work(ctx: Context) -> None:
        started.set()
        await gate.wait()

    await yard.acme.enqueue_many(work() for n in range(8))
    worker = yard.start(concurrency=2, prefetch=6)
    await started.wait()
    worker._release_waiting()

    assert len(worker.active_jobs) == 8
    gate.set()
    await yard.facts(8)
