"""Signals: the first one starts the drain, the second stops the process at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from holdfast.worker.supervise import CHILD

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def draining(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` on the running loop at the first signal. Ends the process at the second.

    It uses plain signal handlers, not those of the loop, because a job that blocks the loop must
    not block the second signal.
    """
    loop = asyncio.get_running_loop()
    supervised = CHILD in os.environ
    seen = 0

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            if supervised:
                return  # A service manager signals our parent too; only that may end us early.
            os._exit(128 + number)
        loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, heard) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
