"""Between heartbeats: cancels are heard, progress is sent, and the store is hardly asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import Context, StopReason
from holdfast.core.errors import StoreError, StoreUnavailable
from holdfast.core.job import EventKind
from holdfast.worker import lookout

if TYPE_CHECKING:
    from tests.worker.conftest import Yard

FOR_EVER_S = 50.0
"""A heartbeat that no test lives to see."""


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks every few milliseconds, which changes no order of things."""
    monkeypatch.setattr(lookout, "LOOK_S", 0.01)
    monkeypatch.setattr(lookout, "PROGRESS_S", 0.03)


class Seen(list[StopReason | None]):
    """Why runs had to stop."""

    async def any(self) -> list[StopReason | None]:
        return list(self)


def waiting(yard: Yard, gate: asyncio.Event) -> tuple[Any, Seen]:
    """A job type that waits for the gate, and why its runs had to stop."""
    seen = Seen()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            seen.append(ctx.stopping)
            raise

    return work, seen


async def test_a_cancel_is_heard_by_a_look_and_costs_one_renewal(yard: Yard) -> None:
    """P5: looks only read; what they find is confirmed by the verb that tells why."""
    gate = asyncio.Event()
    work, seen = waiting(yard, gate)
    await yard.acme.enqueue_many(work().with_options(id=f"j{n}") for n in range(3))
    worker = yard.start(heartbeat_s=FOR_EVER_S, prefetch=0, concurrency=3)
    async with asyncio.timeout(5):
        await yard.faults.arrived("find", 3)
        assert yard.faults.count("extend") == 0
        await yard.acme.cancel("j1")
        await yard.until(seen.any)
    gate.set()
    await yard.facts(2)
    await yard.stop(worker)

    assert seen == [StopReason.CANCELED]
    [(extensions, *_)] = yard.faults.calls["extend"]
    assert [one.id for one in extensions] == ["j1"]


async def test_one_look_asks_once_for_each_tenant_and_carries_no_payloads(yard: Yard) -> None:
    """P15: however many jobs a worker holds; only canceled ones are answered."""
    gate = asyncio.Event()
    work, _ = waiting(yard, gate)
    for tenant in ("acme", "globex"):
        await yard.app.tenant(tenant).enqueue_many(work() for _ in range(5))
    yard.start(heartbeat_s=FOR_EVER_S, prefetch=0, concurrency=10)
    async with asyncio.timeout(5):
        await yard.faults.arrived("find", 8)
    gate.set()
    await yard.facts(10)

    asked = [find.select for find, *_ in yard.faults.calls["find"]]
    full = [select for select in asked if len(select.ids) == 5]
    assert {select.tenant for select in full} == {"acme", "globex"}
    assert {select.states for select in full} == {("canceled",)}


async def test_a_look_is_bounded_and_each_tenant_has_its_turn(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: a worker of very many tenants does not flood its store."""
    monkeypatch.setattr(lookout, "LOOKED_TENANTS_MAX", 2)
    gate = asyncio.Event()
    work, seen = waiting(yard, gate)
    for number in range(5):
        await yard.app.tenant(f"t{number}").enqueue(work(), id="j")
    yard.start(heartbeat_s=FOR_EVER_S, prefetch=0, concurrency=5)
    async with asyncio.timeout(5):
        await yard.faults.arrived("find", 12)
        for number in range(5):
            await yard.app.tenant(f"t{number}").cancel("j")
        await yard.faults.arrived("extend", 3)
        await yard.until(seen.any)

    assert len({find.select.tenant for find, *_ in yard.faults.calls["find"]}) == 5


async def test_the_progress_of_short_jobs_costs_nothing(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends before the first look is never renewed for it."""
    monkeypatch.setattr(lookout, "LOOK_S", 0.5)

    @yard.app.job()
    async def work(ctx: Context) -> None:
        ctx.progress(1, 1)

    yard.start()
    await yard.acme.enqueue_many(work() for _ in range(300))
    await yard.facts(300)

    assert yard.faults.count("extend") == 0


async def test_progress_is_seen_before_the_next_heartbeat_and_only_when_it_changed(
    yard: Yard,
) -> None:
    """At most once in a while, however often a handler calls it."""
    gate = asyncio.Event()

    @yard.app.job()
    async def work(ctx: Context) -> None:
        for done in range(1000):
            ctx.progress(done, 1000)
        await gate.wait()
        ctx.progress(1000, 1000)
        await asyncio.Event().wait()

    id = await yard.put(work())
    yard.start(heartbeat_s=FOR_EVER_S, drain_s=0.0)
    async with asyncio.timeout(5):
        await yard.faults.arrived("extend", 1)
        await yard.faults.arrived("find", yard.faults.count("find") + 5)
        first = (await yard.job(id)).progress or ""
        assert yard.faults.count("extend") == 1
        gate.set()
        await yard.faults.arrived("extend", 2)
        await yard.faults.arrived("find", yard.faults.count("find") + 2)

    assert msgspec.json.decode(first)["done"] == 999
    assert msgspec.json.decode((await yard.job(id)).progress or "")["done"] == 1000
    assert (await yard.kinds(id)).count(EventKind.EXTENDED) == 2


@pytest.mark.parametrize("error", [StoreUnavailable(store="x", why="away"), ValueError("odd")])
async def test_a_look_that_fails_is_not_the_last(yard: Yard, error: Exception) -> None:
    """Neither an outage nor a fault of the store ends the looks."""
    gate = asyncio.Event()
    work, seen = waiting(yard, gate)
    await yard.put(work(), id="j")
    yard.faults.fail("find", times=2, error=error)
    worker = yard.start(heartbeat_s=FOR_EVER_S)
    async with asyncio.timeout(5):
        await yard.faults.arrived("find", 3)
        await yard.acme.cancel("j")
        await yard.until(seen.any)
    await yard.stop(worker)

    assert seen == [StopReason.CANCELED]


async def test_a_worker_that_may_not_read_hears_cancels_by_renewing(yard: Yard) -> None:
    """A token for work alone: the one verb it has must do."""
    gate = asyncio.Event()
    work, seen = waiting(yard, gate)
    await yard.put(work(), id="j")
    refused = StoreError(store="x", why="not allowed: this token may not read")
    yard.faults.fail("find", times=1000, error=refused)
    worker = yard.start(heartbeat_s=FOR_EVER_S)
    async with asyncio.timeout(5):
        await yard.faults.arrived("extend", 2)
        await yard.acme.cancel("j")
        await yard.until(seen.any)
    await yard.stop(worker)

    assert seen == [StopReason.CANCELED]
    assert yard.faults.count("find") == 1
