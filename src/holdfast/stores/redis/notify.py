"""Notify: wake-ups across processes. Scripts publish hints, and each event loop subscribes to them.

A hint names lines with work and jobs that ended, or says that there are too many to name. It may be
lost: a caller checks before it sleeps, and again when the subscription comes back.

Each event loop that sleeps has a subscription of its own: no hint is passed between threads.
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

from holdfast.core.backoff import Delays
from holdfast.core.errors import NOT_OPEN, StoreUnavailable
from holdfast.store import Ref
from holdfast.stores import forks
from holdfast.stores.notifier import Notifier
from holdfast.stores.redis.options import Options
from holdfast.stores.redis.rows import unpack
from holdfast.stores.redis.wire import Wire

HEALTH_S = 10.0
"""How often a subscription is asked whether it is alive."""
RETRY_S_MIN = 0.05
RETRY_S_MAX = 2.0

Addresses = Callable[[], list[tuple[str, int]]]


class Subscriptions:
    """The subscriptions of one store in one process, one for each event loop that sleeps."""

    def __init__(self, options: Options, channel: str, addresses: Addresses) -> None:
        self._options = options
        self._channel = channel
        self._addresses = addresses
        self._lock = threading.Lock()
        self._by_loop: dict[asyncio.AbstractEventLoop, Subscription] = {}
        self._closed = False
        forks.keep(self)

    def here(self) -> Subscription:
        """The subscription of the running loop, made with the first call."""
        loop = asyncio.get_running_loop()
        one = self._by_loop.get(loop)
        if one is None:
            with self._lock:
                if self._closed:
                    raise StoreUnavailable(store=self._options.name, why=NOT_OPEN)
                for old in [old for old in self._by_loop if old.is_closed()]:
                    del self._by_loop[old]
                one = self._by_loop[loop] = Subscription(
                    self._options, self._channel, self._addresses
                )
        return one

    async def close(self) -> None:
        """Wakes all sleepers and ends the subscriptions; other loops' as soon as they can."""
        with self._lock:
            self._closed = True
            found, self._by_loop = self._by_loop, {}
        for loop, one in found.items():
            one.notifier.notify_all()
            if loop is asyncio.get_running_loop():
                await one.close()
            else:
                one.close_from_outside(loop)


class Subscription:
    """A subscription, and the notifier that it calls. Ends with its loop."""

    def __init__(self, options: Options, channel: str, addresses: Addresses) -> None:
        self._options = options
        self._channel = channel
        self._addresses = addresses
        self.notifier = Notifier()
        self.is_active = False
        self._tried = asyncio.Event()
        """Set when the first subscription was made, or failed."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast-wake")

    async def listen(self, timeout_s: float) -> bool:
        """Waits for the first subscription; True while it can be relied on."""
        if not self._tried.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._tried.wait()
        return self.is_active

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def close_from_outside(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # The loop has closed: its connections went with it.
            loop.call_soon_threadsafe(self._task.cancel)

    async def _run(self) -> None:
        delays = Delays(RETRY_S_MIN, RETRY_S_MAX, chance=random.random)
        turn = 0
        while True:
            addresses = self._addresses()
            host, port = addresses[turn % len(addresses)]
            turn += 1
            started = time.monotonic()
            try:
                await self._subscribe(host, port)
            except (exceptions.RedisError, OSError):
                if time.monotonic() - started > RETRY_S_MAX:
                    delays.reset()
            finally:
                self.is_active = False
                self._tried.set()
            await asyncio.sleep(delays.next_s())

    async def _subscribe(self, host: str, port: int) -> None:
        """Receives hints until the connection fails."""
        wire = await HintWire.open(self._options, host, port)
        try:
            wire.on_message = self._received
            await wire.call("SUBSCRIBE", self._channel)
            self.is_active = True
            if self._tried.is_set():
                self.notifier.notify_all()  # Hints before this were lost.
            self._tried.set()
            while not wire.lost:
                with suppress(TimeoutError):
                    async with asyncio.timeout(HEALTH_S):
                        await wire.gone.wait()
                await wire.call("PING")
        finally:
            wire.close()

    def _received(self, hint: bytes) -> None:
        many_lines, lines, many_ended, ended = unpack(hint)
        if many_lines or many_ended:
            self.notifier.notify_all()
            return
        found = [tuple(line.split("\0", 1)) for line in lines or ()]
        self.notifier.notify(found, [Ref(*name) for name in ended or ()])


class HintWire(Wire):
    """A connection that also receives what is published."""

    name = "holdfast-wake"
    on_message: Callable[[bytes], None]

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self.gone = asyncio.Event()

    def answered(self, answer: Any) -> None:
        if isinstance(answer, list) and answer[0] == b"message":
            self.on_message(answer[2])
        else:
            super().answered(answer)

    def lose(self, error: exceptions.RedisError) -> None:
        super().lose(error)
        self.gone.set()
