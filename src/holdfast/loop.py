"""The loop of all background duties: each turn returns the delay until the next.

Also: how a worker or service process runs its event loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from holdfast.core.backoff import Delays
from holdfast.core.outage import away

logger = logging.getLogger("holdfast")

RETRY_FIRST_S = 0.1
RETRY_MOST_S = 5.0
"""Delays of a loop whose call to the store failed."""

GARBAGE = 50_000
"""New objects between two runs of the garbage collector."""

T = TypeVar("T")


def run(task: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, on uvloop if it is installed.

    Jobs are short-lived and part of no reference cycle. With Python's defaults the garbage
    collector would scan all objects every few thousand jobs: a fifth of the time with many jobs in
    memory. So it runs less often here.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE, 20, 100)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(task)
    return uvloop.run(task)


class Duty(Protocol):
    """One background task, such as rescue or prune."""

    name: str

    async def turn(self) -> float:
        """Does one bounded piece of work. Returns the seconds until the next turn."""


async def keep_turning(duty: Duty, stop: asyncio.Event) -> None:
    """Calls the duty's `turn` until `stop` is set.

    An error is logged, and the duty runs again after a delay.
    """
    delays = Delays(RETRY_FIRST_S, RETRY_MOST_S, chance=random.random)
    outage = Outage(logger, duty.name)
    while not stop.is_set():
        try:
            delay = await duty.turn()
            delays.reset()
            outage.over()
        except Exception as error:
            delay = delays.next_s()
            if away(error):
                outage.seen(error)
            else:
                logger.exception("%s failed; trying again in %.1f s", duty.name, delay)
        await sleep_unless(stop, delay)


class Outage:
    """Logs an outage of the store for one loop: one line when it begins and one when it ends,
    however many calls fail in between. Another kind of error in between is logged too.
    """

    __slots__ = ("_kind", "_logger", "_since_s", "_what")

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._kind: type[BaseException] | None = None
        self._since_s = 0.0

    def seen(self, error: BaseException) -> None:
        """Records that a call failed."""
        if type(error) is self._kind:
            return
        if self._kind is None:
            self._since_s = time.monotonic()
        self._kind = type(error)
        self._logger.warning("%s: %s; trying again until it works", self._what, error)

    def over(self) -> None:
        """Records that a call succeeded."""
        if self._kind is not None:
            self._kind = None
            lasted_s = time.monotonic() - self._since_s
            self._logger.warning("%s: works again after %.1f s", self._what, lasted_s)


async def sleep_unless(stop: asyncio.Event, seconds: float) -> None:
    """Sleeps until the time is over or `stop` is set."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
