"""How sleepers are told across processes: scripts publish hints, one connection each hears them.

The hint names lines with work and jobs that ended, or says that there are too many to name. Hints
only: who sleeps has looked before, and looks again when the subscription comes back.

Each event loop that sleeps has a subscription of its own, heard in that loop: no hint is handed on
from one thread to another.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis import exceptions

from holdfast.errors import NOT_OPEN, StoreUnavailable
from holdfast.store import Ref
from holdfast.stores.bell import Bell
from holdfast.stores.redis.options import Options
from holdfast.stores.redis.rows import unpack
from holdfast.stores.redis.wire import Wire

HEALTH_S = 10.0
"""How often a subscription is asked whether it is alive."""
NAP_S_MIN = 0.05
NAP_S_MAX = 2.0

Places = Callable[[], list[tuple[str, int]]]


class Ear:
    """The subscriptions of one store in one process, one for each event loop that sleeps."""

    def __init__(self, options: Options, channel: str, places: Places) -> None:
        self._options = options
        self._channel = channel
        self._places = places
        self._lock = threading.Lock()
        self._hearings: dict[asyncio.AbstractEventLoop, Hearing] = {}
        self._closed = False

    def here(self) -> Hearing:
        """The subscription of the running loop, made with the first call."""
        loop = asyncio.get_running_loop()
        hearing = self._hearings.get(loop)
        if hearing is None:
            with self._lock:
                if self._closed:
                    raise StoreUnavailable(store=self._options.name, why=NOT_OPEN)
                for old in [old for old in self._hearings if old.is_closed()]:
                    del self._hearings[old]
                hearing = self._hearings[loop] = Hearing(self._options, self._channel, self._places)
        return hearing

    async def close(self) -> None:
        """Wakes all sleepers and ends the subscriptions; other loops' as soon as they can."""
        with self._lock:
            self._closed = True
            hearings, self._hearings = self._hearings, {}
        for loop, hearing in hearings.items():
            hearing.bell.ring_all()
            if loop is asyncio.get_running_loop():
                await hearing.close()
            else:
                hearing.close_from_outside(loop)


class Hearing:
    """A subscription, and the bell that it rings. Ends with its loop."""

    def __init__(self, options: Options, channel: str, places: Places) -> None:
        self._options = options
        self._channel = channel
        self._places = places
        self.bell = Bell()
        self.hears = False
        self._tried = asyncio.Event()
        """Set when the first subscription was made, or failed."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast-wake")

    async def listen(self, timeout_s: float) -> bool:
        """Waits for the first subscription; True while it can be relied on."""
        if not self._tried.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._tried.wait()
        return self.hears

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def close_from_outside(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # The loop has closed: its connections went with it.
            loop.call_soon_threadsafe(self._task.cancel)

    async def _run(self) -> None:
        nap_s, turn = NAP_S_MIN, 0
        while True:
            places = self._places()
            host, port = places[turn % len(places)]
            turn += 1
            started = time.monotonic()
            try:
                await self._subscribe(host, port)
            except (exceptions.RedisError, OSError):
                if time.monotonic() - started > NAP_S_MAX:
                    nap_s = NAP_S_MIN
            finally:
                self.hears = False
                self._tried.set()
            await asyncio.sleep(nap_s * (0.5 + random.random()))
            nap_s = min(nap_s * 2, NAP_S_MAX)

    async def _subscribe(self, host: str, port: int) -> None:
        """Hears hints until the connection fails."""
        wire = await Line.open(self._options, host, port)
        try:
            wire.hear = self._heard
            await wire.call("SUBSCRIBE", self._channel)
            self.hears = True
            if self._tried.is_set():
                self.bell.ring_all()  # What happened before this was not heard.
            self._tried.set()
            while not wire.lost:
                with suppress(TimeoutError):
                    async with asyncio.timeout(HEALTH_S):
                        await wire.gone.wait()
                await wire.call("PING")
        finally:
            wire.close()

    def _heard(self, hint: bytes) -> None:
        many_lines, lines, many_ended, ended = unpack(hint)
        if many_lines or many_ended:
            self.bell.ring_all()
            return
        found = [tuple(line.split("\0", 1)) for line in lines or ()]
        self.bell.ring(found, [Ref(*name) for name in ended or ()])


class Line(Wire):
    """A connection that also tells what is published to it."""

    name = "holdfast-wake"
    hear: Callable[[bytes], None]

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self.gone = asyncio.Event()

    def answered(self, answer: Any) -> None:
        if isinstance(answer, list) and answer[0] == b"message":
            self.hear(answer[2])
        else:
            super().answered(answer)

    def lose(self, error: exceptions.RedisError) -> None:
        super().lose(error)
        self.gone.set()
