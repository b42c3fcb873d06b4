"""The worker adapts how much it does at a time, within its bounds, and shows why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import Context
from holdfast.config import Config
from holdfast.core.errors import ConfigError
from holdfast.operate import workers
from holdfast.worker import adapt
from holdfast.worker.adapt import Adapt, Decision, Signals, decide, memory_mb
from holdfast.worker_registry import Present

if TYPE_CHECKING:
    from tests.worker.conftest import MakeYard, Yard


def signals(**said: Any) -> Signals:
    return Signals(**{"floor": 2, "ceiling": 40, "concurrency": 20, "running": 20, **said})


@pytest.mark.parametrize(
    ("said", "wanted", "why"),
    [
        ({}, 22, "all slots are busy"),
        ({"concurrency": 3, "running": 3}, 4, "all slots are busy"),
        ({"concurrency": 39, "running": 39}, 40, "all slots are busy"),
        ({"concurrency": 40}, 40, "at its maximum"),
        ({"running": 10}, 20, "not all slots are busy"),
        ({"lag_s": 0.3}, 15, "the event loop is 0.30 s late"),
        ({"lag_s": 0.1}, 20, "near its limit"),
        ({"latency_s": 1.0, "usual_s": 0.4}, 18, "handlers take 1.00 s, usually 0.40 s"),
        ({"latency_s": 0.02, "usual_s": 0.001}, 22, "all slots are busy"),
        ({"latency_s": 1.0}, 22, "all slots are busy"),
        ({"memory_mb": 500, "memory_max_mb": 400}, 10, "memory 500 of 400 MB"),
        ({"memory_mb": 370, "memory_max_mb": 400}, 20, "near the limit"),
        ({"memory_mb": 100, "memory_max_mb": 400}, 22, "all slots are busy"),
        ({"memory_mb": 500, "memory_max_mb": 400, "lag_s": 9.0}, 10, "memory"),
        ({"concurrency": 2, "lag_s": 9.0}, 2, "late"),
        ({"concurrency": 3, "latency_s": 9.0, "usual_s": 1.0}, 2, "handlers take"),
        ({"concurrency": 50}, 40, "at its maximum"),
    ],
)
def test_signals_decide(said: dict[str, Any], wanted: int, why: str) -> None:
    """Down by parts, up by steps, never out of bounds, and the reason is told."""
    decision = decide(signals(**said))

    assert decision.concurrency == wanted
    assert why in decision.why


def test_the_floor_is_at_most_the_ceiling() -> None:
    """Off unless it is set lower; refused when it is higher."""
    assert Config.of(concurrency=5).floor == 5
    assert Config.of(concurrency=5, concurrency_min=2).floor == 2
    with pytest.raises(ConfigError, match="concurrency_min"):
        Config.of(concurrency=5, concurrency_min=6)


def test_memory_is_measured() -> None:
    """In megabytes: an interpreter has more than one and less than a hundred thousand."""
    assert 1 < memory_mb() < 100_000


async def test_samples_become_decisions_of_the_worker(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The duty asks with what it has seen since its last turn, and learns what is usual."""
    seen: list[Signals] = []

    def noted(found: Signals) -> Decision:
        seen.append(found)
        return Decision(3, "for the test")

    @yard.app.job()
    async def work(ctx: Context) -> None: ...

    monkeypatch.setattr(adapt, "decide", noted)
    monkeypatch.setattr(adapt, "PROBE_S", 0.001)
    worker = yard.start(concurrency=8, memory_max_mb=100_000)
    await yard.put(work())
    await yard.fact()
    duty = Adapt(worker, worker.config)
    for took in (1.0, 3.0, None):
        if took is not None:
            duty.ended(took)
        await duty.turn()

    assert [one.latency_s for one in seen] == [1.0, 3.0, None]
    assert [one.usual_s for one in seen] == [None, 1.0, pytest.approx(1.1)]
    assert (seen[0].concurrency, seen[1].concurrency, worker.concurrency) == (8, 3, 3)
    assert seen[0].memory_mb > 1


async def test_a_worker_in_trouble_runs_fewer_at_a_time_and_says_why(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in its presence; never below its floor."""
    gate, both, most, running = asyncio.Event(), asyncio.Event(), 0, 0

    @yard.app.job()
    async def work(ctx: Context) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        if running == 2:
            both.set()
        await gate.wait()
        running -= 1

    monkeypatch.setattr(adapt, "memory_mb", lambda: 2.0)
    monkeypatch.setattr(adapt, "PROBE_S", 0.001)
    monkeypatch.setattr(adapt, "SAMPLE_S", 0.001)
    yard.start(concurrency=8, concurrency_min=2, memory_max_mb=1, heartbeat_s=0.03)

    async def lowered() -> Present | None:
        for hold in await workers(yard.app.store):
            note = msgspec.json.decode(hold.note, type=Present)
            if note.concurrency == 2:
                return note
        return None

    note = await yard.until(lowered)
    for _ in range(6):
        await yard.put(work())
    async with asyncio.timeout(5):
        await both.wait()
    gate.set()
    await yard.facts(6)

    assert (note.concurrency_min, note.concurrency_max) == (2, 8)
    assert note.why == "memory 2 of 1 MB"
    assert most == 2


async def test_a_worker_that_recovers_uses_its_slots_again(make_yard: MakeYard) -> None:
    """What waits is started as soon as there is room."""
    yard = make_yard()
    await yard.app.open()
    gate, one, two = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        (two if one.is_set() else one).set()
        await gate.wait()

    worker = yard.start(concurrency=4, prefetch=0)
    await yard.put(work())
    async with asyncio.timeout(5):
        await one.wait()
    worker.adapt(Decision(1, "a test"))
    await yard.put(work())
    held = worker.running
    worker.adapt(Decision(4, "a test"))
    async with asyncio.timeout(5):
        await two.wait()
    gate.set()

    assert held == 1
    assert len(await yard.facts(2)) == 2
