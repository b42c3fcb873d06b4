"""Coalescing: concurrent single calls travel together, and each gets its own answer."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.coalesce import Coalescer
from holdfast.core.errors import StoreError, StoreUnavailable


class Sender:
    """Answers with the square; keeps the batches; waits at a gate that tests may close."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.away = False

    async def send(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable(store="tests", why="away")
        if -1 in items:
            raise StoreError(store="tests", why="minus one")
        return [item * item for item in items]

    def coalescer(self, batch_max: int = 100, pending_max: int = 1000) -> Coalescer[int, int]:
        return Coalescer(self.send, batch_max=batch_max, pending_max=pending_max)


async def test_concurrent_calls_share_one_batch() -> None:
    """Each caller gets the result of its own item."""
    sender = Sender()
    coalescer = sender.coalescer()

    results = await asyncio.gather(*(coalescer.submit(n) for n in range(50)))

    assert results == [n * n for n in range(50)]
    assert sender.batches == [list(range(50))]


async def test_a_lone_call_goes_at_once() -> None:
    """No timer, no wait for company."""
    sender = Sender()

    assert await sender.coalescer().submit(3) == 9
    assert sender.batches == [[3]]


async def test_those_who_come_while_a_lone_call_is_under_way_travel_together() -> None:
    """Being alone the last time is only a guess."""
    sender = Sender()
    coalescer = sender.coalescer()
    await coalescer.submit(1)
    sender.gate.clear()
    calls = [asyncio.ensure_future(coalescer.submit(n)) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    sender.gate.set()

    assert await asyncio.gather(*calls) == [4, 9, 16]
    assert sender.batches == [[1], [2], [3, 4]]


async def test_callers_that_come_again_at_once_share_every_batch() -> None:
    """Nobody waits for a batch that left just before."""
    sender = Sender()
    coalescer = sender.coalescer()

    async def caller() -> None:
        for n in range(3):
            await coalescer.submit(n)

    await asyncio.gather(*(caller() for _ in range(10)))

    assert [len(batch) for batch in sender.batches] == [10, 10, 10]


async def test_a_lone_caller_that_gives_up_leaves_the_way_free() -> None:
    """Those behind it are served, and so is the next lone call."""
    sender = Sender()
    coalescer = sender.coalescer()
    await coalescer.submit(1)
    sender.gate.clear()
    lost = asyncio.ensure_future(coalescer.submit(2))
    await asyncio.sleep(0)
    kept = coalescer.push(3)
    lost.cancel()
    await asyncio.sleep(0)
    sender.gate.set()

    assert await kept == 9
    assert await coalescer.submit(4) == 16


async def test_the_next_batch_gathers_while_one_is_under_way() -> None:
    """However many calls come meanwhile."""
    sender = Sender()
    sender.gate.clear()
    coalescer = sender.coalescer()
    first = coalescer.push(1)
    await asyncio.sleep(0)
    rest = [coalescer.push(n) for n in (2, 3, 4)]
    sender.gate.set()

    await asyncio.gather(first, *rest)

    assert sender.batches == [[1], [2, 3, 4]]


async def test_a_batch_is_never_larger_than_its_bound() -> None:
    """The store refuses larger ones."""
    sender = Sender()
    coalescer = sender.coalescer(batch_max=10)

    await asyncio.gather(*(coalescer.submit(n) for n in range(25)))

    assert [len(batch) for batch in sender.batches] == [10, 10, 5]


async def test_past_the_bound_callers_wait_for_room() -> None:
    """Memory stays bounded while the store is slow, and everybody is served in the end."""
    sender = Sender()
    sender.gate.clear()
    coalescer = sender.coalescer(batch_max=2, pending_max=4)
    calls = [asyncio.ensure_future(coalescer.submit(n)) for n in range(20)]
    for _ in range(10):
        await asyncio.sleep(0)
        assert coalescer.pending <= 4
    sender.gate.set()

    async with asyncio.timeout(5):
        assert await asyncio.gather(*calls) == [n * n for n in range(20)]


async def test_a_store_that_is_away_fails_the_batch_at_once() -> None:
    """Nothing is sent again; the next batch is a new chance."""
    sender = Sender()
    sender.away = True
    coalescer = sender.coalescer()

    answers = await asyncio.gather(coalescer.submit(1), coalescer.submit(2), return_exceptions=True)
    sender.away = False

    assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable]
    assert sender.batches == [[1, 2]]
    assert await coalescer.submit(2) == 4


async def test_one_bad_item_fails_alone() -> None:
    """P19: those who travelled with it are answered, after few calls more."""
    sender = Sender()
    coalescer = sender.coalescer()

    calls = [coalescer.push(-1 if n == 70 else n) for n in range(100)]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [n for n, one in enumerate(answers) if isinstance(one, StoreError)] == [70]
    assert [one for one in answers if isinstance(one, int)] == [
        n * n for n in range(100) if n != 70
    ]
    assert len(sender.batches) <= 20


async def test_bad_items_alone_are_a_bounded_number_of_calls() -> None:
    """P15: less than two for each of them."""
    sender = Sender()
    coalescer = sender.coalescer()

    answers = await asyncio.gather(*(coalescer.push(-1) for _ in range(64)), return_exceptions=True)

    assert {type(one) for one in answers} == {StoreError}
    assert len(sender.batches) < 128
    assert await coalescer.submit(3) == 9


async def test_a_store_that_goes_away_meanwhile_ends_the_repeats() -> None:
    """Each caller is told so."""
    sender = Sender()
    coalescer = sender.coalescer()

    async def send(items: list[int]) -> list[int]:
        try:
            return await Sender.send(sender, items)
        finally:
            sender.away = True

    coalescer._send = send
    answers = await asyncio.gather(*map(coalescer.push, (1, -1, 2)), return_exceptions=True)

    assert {type(one) for one in answers} == {StoreUnavailable}
    assert len(sender.batches) == 3


async def test_an_item_is_sent_again_as_its_repeat() -> None:
    """What was true of the first call only is not said of the second."""
    sender = Sender()
    coalescer = Coalescer(sender.send, batch_max=9, pending_max=9, again=lambda item: item + 100)

    first, bad = coalescer.push(1), coalescer.push(-1)

    assert await first == 101 * 101
    assert await bad == 99 * 99


async def test_a_caller_that_gives_up_does_not_disturb_the_others() -> None:
    """Its item was sent all the same."""
    sender = Sender()
    sender.gate.clear()
    coalescer = sender.coalescer()
    lost, kept = coalescer.push(1), coalescer.push(2)
    await asyncio.sleep(0)
    lost.cancel()
    sender.gate.set()

    assert await kept == 4
    assert sender.batches == [[1, 2]]


async def test_each_event_loop_has_a_lane_of_its_own() -> None:
    """Futures belong to their loop; a coalescer may be shared by threads."""
    sender = Sender()
    coalescer = sender.coalescer()

    def elsewhere() -> int:
        return asyncio.run(coalescer.submit(5))

    there, here = await asyncio.gather(asyncio.to_thread(elsewhere), coalescer.submit(6))

    assert (there, here) == (25, 36)


async def test_the_end_of_the_loop_cancels_those_who_wait() -> None:
    """A flush that is cancelled leaves no caller behind."""
    sender = Sender()
    sender.gate.clear()
    coalescer = sender.coalescer()
    waiting = coalescer.push(1)
    await asyncio.sleep(0)
    [flush] = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    flush.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
