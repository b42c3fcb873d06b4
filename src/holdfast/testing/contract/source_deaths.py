"""Sources (S4.19, S4.41): pollers that die anywhere, meet each other, or come too late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.context import Context, Snooze
from holdfast.core.job import Completed
from holdfast.core.source import Page
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.sourcing import CHANGES, Remote, Sourcing
from holdfast.testing.contract.ticking import Deadly, Died


class Cut:
    """A store whose caller is canceled at a chosen call, before or after it is done."""

    def __init__(self, real: Any, at: int, *, late: bool) -> None:
        self._deadly = Deadly(real, at, late=late)

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._deadly, verb)
        if not callable(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await found(*args, **kwargs)
            except Died:
                raise asyncio.CancelledError from None

        return call


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("how", [Deadly, Cut])
async def test_a_poller_may_die_at_every_call(bench: Bench, how: Any, late: bool) -> None:
    """S4.19, S4.41: before a call of the store or after it was done; the next poll goes on, and at
    the end the shadow is the source, each change told once.
    """
    bench.needs("sources")
    remote = Remote(*range(1, 9))
    sourcing = Sourcing(bench, remote, reconcile=1, overlap=2, deletes=1.0)
    await sourcing.run()
    calls, finished = 0, False
    while not finished:
        calls += 1
        remote.put(8 + calls, calls + 2)
        remote.drop(calls + 1)
        bench.clock.advance(2)
        lease = await sourcing.claim_poll()
        try:
            await sourcing.poll(lease, how(bench.store, calls, late=late)).run()
            finished = True
        except (Died, asyncio.CancelledError):
            bench.clock.advance(61)
        await sourcing.run()

    assert calls > 12
    await sourcing.walk(3)
    await sourcing.check()


async def test_a_poller_that_comes_too_late_writes_nothing(bench: Bench) -> None:
    """S4.41: it has read a page before another one read it, and a later version of its objects."""
    bench.needs("sources")
    remote = Remote(1, 2, 3)
    sourcing = Sourcing(bench, remote)
    reads, goes_on = asyncio.Event(), asyncio.Event()

    async def page(ctx: Context, cursor: int) -> Page:
        found = remote.items(cursor, 3)
        if not reads.is_set():
            reads.set()
            await goes_on.wait()
        return Page(found)

    sourcing.fetch = page
    lease = await sourcing.claim_poll()
    slow = asyncio.ensure_future(sourcing.poll(lease).run())
    await reads.wait()
    bench.clock.advance(61)
    remote.put(1, 2, 4)
    await sourcing.run()
    goes_on.set()
    await slow

    await sourcing.run()
    await sourcing.check()
    assert len(sourcing.changes) == 4


async def test_two_polls_do_not_ask_the_source_at_the_same_time(bench: Bench) -> None:
    """S4.28: the second one waits for the first."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(1))
    reads, goes_on = asyncio.Event(), asyncio.Event()

    async def page(ctx: Context, cursor: int) -> Page:
        reads.set()
        await goes_on.wait()
        return Page(sourcing.remote.items(cursor, 3))

    sourcing.fetch = page
    first = await sourcing.claim_poll()
    running = asyncio.ensure_future(sourcing.poll(first).run())
    await reads.wait()
    await bench.store.enqueue([_other(sourcing)])
    [second] = await bench.claim(1, queues=("polls",))

    with pytest.raises(Snooze):
        await sourcing.poll(second).run()

    goes_on.set()
    await running
    await bench.end(first, Completed())
    await sourcing.poll(second).run()
    await sourcing.run()
    await sourcing.check()


def _other(sourcing: Sourcing) -> Any:
    """Another poll of the source, as its schedule makes it."""
    return sourcing.source.plan().poll.job("acme", "another")


async def test_three_pollers_at_once_tell_each_change_once(bench: Bench) -> None:
    """S4.19, S4.41: runs of one job, whose lease was lost twice; the last one that began wins."""
    bench.needs("sources")
    remote = Remote(*range(1, 20))
    sourcing = Sourcing(bench, remote, reconcile=1, deletes=1.0)
    await sourcing.run()

    for turn in range(4):
        remote.put(20 + turn, turn + 1)
        remote.drop(10 + turn)
        bench.clock.advance(2)
        lease = await sourcing.claim_poll()
        await asyncio.gather(*(sourcing.poll(lease).run() for _ in range(3)))
        await bench.end(lease, Completed())
        await sourcing.run()

    await sourcing.walk(2)
    await sourcing.check()


async def test_pushes_and_polls_at_once_tell_each_change_once(bench: Bench) -> None:
    """S4.41: both change the shadow; neither loses what the other wrote."""
    bench.needs("sources")
    remote = Remote(*range(1, 20))
    sourcing = Sourcing(bench, remote)
    lease = await sourcing.claim_poll()
    pushes = [sourcing.handle.push([remote.item(id)]) for id in range(1, 8)]

    await asyncio.gather(sourcing.poll(lease).run(), *pushes)

    await bench.end(lease, Completed())
    assert len(await bench.claim(100, queues=(CHANGES,))) == 19
    assert await sourcing.shadow() == remote.objects
