"""Events: stored facts, in order, from any cursor; a reader that lost its place is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import App, Context, Event
from holdfast.core.job import EventKind
from holdfast.events import Gap
from holdfast.testing import ManualClock, drain


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.app = App("memory://", clock=self.clock)

        @self.app.job()
        async def work(ctx: Context) -> None: ...

        self.work = work

    async def put(self, id: str, tenant: str = "acme") -> None:
        await self.app.tenant(tenant).enqueue(self.work(), id=id)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.app:
        yield desk


async def take(stream: AsyncIterator[Event | Gap], count: int) -> list[Any]:
    """The next facts of a stream that never ends."""
    async with asyncio.timeout(5):
        return [await anext(stream) for _ in range(count)]


def told(events: list[Any]) -> list[tuple[str, EventKind]]:
    return [(event.job_id, event.kind) for event in events]


async def test_a_follower_gets_what_was_and_then_what_comes(desk: Desk) -> None:
    """Without a seam between the two."""
    await desk.put("a")
    stream = desk.app.tenant("acme").events()
    assert told(await take(stream, 1)) == [("a", EventKind.ENQUEUED)]
    waiting = asyncio.ensure_future(take(stream, 2))
    await asyncio.sleep(0)
    assert not waiting.done()

    await drain(desk.app)

    assert told(await waiting) == [("a", EventKind.LEASED), ("a", EventKind.COMPLETED)]


async def test_a_follower_goes_on_from_its_cursor(desk: Desk) -> None:
    """The cursor of the last event it handled."""
    await desk.put("a")
    await desk.put("b")
    [first] = await take(desk.app.tenant("acme").events(), 1)

    rest = await take(desk.app.tenant("acme").events(first.cursor), 1)

    assert told(rest) == [("b", EventKind.ENQUEUED)]


async def test_a_follower_may_start_at_the_present_end(desk: Desk) -> None:
    """-1: only what is new."""
    await desk.put("old")
    stream = desk.app.tenant("acme").events(-1)
    waiting = asyncio.ensure_future(take(stream, 1))
    for _ in range(3):
        await asyncio.sleep(0)

    await desk.put("new")

    assert told(await waiting) == [("new", EventKind.ENQUEUED)]


async def test_a_follower_sees_its_own_tenant_and_may_ask_for_one_job(desk: Desk) -> None:
    """Never another's facts (P7)."""
    await desk.put("x", tenant="globex")
    await desk.put("a")
    await desk.put("b")
    acme = desk.app.tenant("acme")

    assert told(await take(acme.events(), 2)) == [
        ("a", EventKind.ENQUEUED),
        ("b", EventKind.ENQUEUED),
    ]
    assert told(await take(acme.events(job_id="b"), 1)) == [("b", EventKind.ENQUEUED)]


async def test_a_reader_that_lost_its_place_is_told_before_it_goes_on(desk: Desk) -> None:
    """The gap's cursor lies before the first event that is still there."""
    await desk.put("a")
    await drain(desk.app)
    desk.clock.advance(100)
    await desk.app.store.prune(1000, 0)
    await desk.put("b")

    gap, event = await take(desk.app.tenant("acme").events(1), 2)

    assert isinstance(gap, Gap)
    assert gap.cursor == event.cursor - 1
    assert event.job_id == "b"
    resumed = await take(desk.app.tenant("acme").events(gap.cursor), 1)
    assert resumed == [event]


async def test_more_than_a_page_comes_in_one_stream(desk: Desk) -> None:
    """In order, none twice."""
    await desk.app.tenant("acme").enqueue_many(desk.work() for _ in range(2500))

    events = await take(desk.app.tenant("acme").events(), 2500)

    cursors = [event.cursor for event in events]
    assert cursors == sorted(set(cursors))
