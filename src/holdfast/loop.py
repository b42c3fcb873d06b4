"""The loop every background part shares: a duty takes a turn and says when it wants the next.

And how a process of ours runs its event loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

logger = logging.getLogger("holdfast")

FAULT_FIRST_S = 0.1
FAULT_MOST_S = 5.0


GARBAGE = 50_000
"""New objects between two looks of the garbage collector."""

T = TypeVar("T")


def run(task: Coroutine[Any, Any, T]) -> T:
    """Runs a program that serves or works, to its end: on uvloop where it is installed.

    Jobs come and go by the thousand and are part of no cycle. By default the collector looks at all
    that is alive every few thousand of them: a fifth of the time with many jobs in memory.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE, 20, 100)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(task)
    return uvloop.run(task)


class Duty(Protocol):
    """One background job of the product itself."""

    name: str

    async def turn(self) -> float:
        """Does one bounded piece of work; returns the seconds until the next."""


async def keep_turning(duty: Duty, stop: asyncio.Event) -> None:
    """Gives the duty its turns until `stop` is set.

    A fault is logged and paused after, never the end.
    """
    pause = FAULT_FIRST_S
    while not stop.is_set():
        try:
            delay = await duty.turn()
            pause = FAULT_FIRST_S
        except Exception:
            logger.exception("%s failed; going on in %.1f s", duty.name, pause)
            delay = pause * (0.5 + random.random())
            pause = min(pause * 2, FAULT_MOST_S)
        await sleep_unless(stop, delay)


async def sleep_unless(stop: asyncio.Event, seconds: float) -> None:
    """Sleeps, or wakes at once when told to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
