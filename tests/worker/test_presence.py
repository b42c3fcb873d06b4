"""Who is working? Present workers can be seen with what they do; stopped ones are gone."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast import Context
from holdfast.core.bounds import NOTE_MAX
from holdfast.operate import workers
from holdfast.worker import Worker
from holdfast.worker.lease import Heartbeat
from holdfast.worker.presence import Presence, fitted
from holdfast.worker_registry import Present

if TYPE_CHECKING:
    from tests.worker.conftest import Yard


async def test_a_worker_is_seen_while_it_lives(yard: Yard) -> None:
    """Its note says the process, the queues, the types and how busy it is."""
    started, gate = asyncio.Event(), asyncio.Event()

    @yard.app.job(queue="mail")
    async def work(ctx: Context) -> None:
        started.set()
        await gate.wait()

    await yard.put(work())
    worker = yard.start(name="w1", tenants=["acme"], concurrency=4, heartbeat_s=0.03)
    async with asyncio.timeout(5):
        await started.wait()
        await yard.faults.arrived("hold", yard.faults.count("hold") + 2)
    [hold] = await workers(yard.app.store)
    gate.set()
    await yard.stop(worker)

    note = msgspec.json.decode(hold.note, type=Present)
    assert (hold.name, hold.owner) == ("worker/w1", "w1")
    assert (note.pid, note.tenants, note.queues) == (
        os.getpid(),
        ("acme",),
        ("mail", "holdfast.flows", "holdfast.ticks", "holdfast.webhooks"),
    )
    assert (note.types, note.concurrency, note.running, note.held) == (("work",), 4, 1, 1)
    assert await workers(yard.app.store) == []


async def test_a_worker_that_died_is_gone_when_its_hold_lapses(yard: Yard) -> None:
    """Nobody has to notice its death."""

    @yard.app.job()
    async def work(ctx: Context) -> None: ...

    yard.start(name="w1", heartbeat_s=5.0)
    [hold] = await yard.until(lambda: workers(yard.app.store))
    assert hold.owner == "w1"

    yard.clock.advance(15)

    assert await workers(yard.app.store) == []


async def test_two_workers_have_two_names(yard: Yard) -> None:
    """Also in one process, when nobody names them."""

    @yard.app.job()
    async def work(ctx: Context) -> None: ...

    names = {yard.start().name, yard.start().name}

    assert len(names) == 2
    assert all(str(os.getpid()) in name for name in names)


async def test_a_worker_that_cannot_be_seen_keeps_its_leases(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of presence must not end the heartbeats beside it."""
    done = asyncio.Event()

    @yard.app.job(queue="mail")
    async def work(ctx: Context) -> None:
        await yard.faults.arrived("extend", yard.faults.count("extend") + 2)
        done.set()

    def broken(self: Presence) -> Present:
        raise ValueError("no note today")

    monkeypatch.setattr(Presence, "_present", broken)
    await yard.put(work())
    worker = yard.start(heartbeat_s=0.03)
    async with asyncio.timeout(5):
        await done.wait()
    await yard.stop(worker)

    assert await workers(yard.app.store) == []


async def test_a_worker_without_heartbeats_drains(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the thread behind the leases breaks down, going on would let them all lapse."""

    async def broken(self: Heartbeat, stop: asyncio.Event) -> None:
        raise ValueError("no pulse")

    monkeypatch.setattr(Heartbeat, "run", broken)

    @yard.app.job(queue="mail")
    async def work(ctx: Context) -> None: ...

    worker = Worker(yard.app)
    async with asyncio.timeout(5):
        await worker.run()

    assert len(worker.active_jobs) == 0


def test_a_note_fits_and_says_what_was_cut() -> None:
    """P15: the longest lists lose names until the note is small enough; a cut list rules out
    nothing.
    """
    names = tuple(f"{'q' * 100}{number}" for number in range(200))
    whole = Present(
        pid=1, tenants=("acme",), queues=names, types=names, concurrency=1, running=0, held=0,
        why="w" * 5000,
    )  # fmt: skip

    said = fitted(whole)

    note = msgspec.json.decode(said, type=Present)
    assert len(said.encode()) <= NOTE_MAX
    assert note.cut == ("queues", "types")
    assert note.tenants == ("acme",)
    assert note.queues
    assert note.serves("acme", "elsewhere")
    assert note.knows("any")
    assert not note.serves("globex", "elsewhere")


def test_a_note_that_fits_is_whole() -> None:
    """Nothing is cut for nothing."""
    whole = Present(
        pid=1, tenants=None, queues=("mail",), types=("send",), concurrency=1, running=0, held=0
    )

    note = msgspec.json.decode(fitted(whole), type=Present)

    assert note == whole
    assert not note.serves("acme", "audio")
    assert not note.knows("other")
