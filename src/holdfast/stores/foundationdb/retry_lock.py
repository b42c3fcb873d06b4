"""A lock over all event loops of a process, for tries that follow a conflict.

A first try takes no lock. A try after a conflict does, so that calls of one process that want the
same keys wait for each other instead of conflicting again and again: of n calls at most one try
each fails, not n of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque


class RetryLock:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if not self._held:
                self._held = True
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _give_up(self, waiter: asyncio.Future[None]) -> None:
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
        if not waiter.cancelled():
            self._pass_on()  # It had the lock already.

    def _pass_on(self) -> None:
        """Gives the lock to the next one."""
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                try:
                    waiter.get_loop().call_soon_threadsafe(self._give, waiter)
                except RuntimeError:
                    continue  # Its loop has closed: nobody waits any more.
                return
            self._held = False

    def _give(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done():
            self._pass_on()  # It has given up meanwhile.
        else:
            waiter.set_result(None)
