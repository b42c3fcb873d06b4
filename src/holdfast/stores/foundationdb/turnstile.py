"""One at a time, over all event loops of a process: for tries that were in each other's way before.

A first try is made without asking anybody. One that met a conflict goes on through here, so that
the calls of one process that want the same places wait for each other, and do not conflict in
rounds: of n calls at most one try each is in vain, not n of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque


class Turnstile:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if not self._held:
                self._held = True
                return
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._give_up(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        if not turn.cancelled():
            self._pass_on()  # It was this one's turn already.

    def _pass_on(self) -> None:
        """Lets the next one through."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(self._let, turn)
                except RuntimeError:
                    continue  # Its loop has closed: nobody waits any more.
                return
            self._held = False

    def _let(self, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self._pass_on()  # It has given up meanwhile.
        else:
            turn.set_result(None)
