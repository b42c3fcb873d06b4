"""Wake-ups inside one process: wakes the sleepers whose watch matches. A wake-up is a hint and may
be lost.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from holdfast.store import Ref, Watch

Line = tuple[str, str]
"""(tenant, queue)"""


class _Sleeper:
    __slots__ = ("loop", "watch", "woken")

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.loop = asyncio.get_running_loop()
        self.woken: asyncio.Future[None] = self.loop.create_future()

    def wake(self) -> None:
        if _running() is self.loop:
            self.rise()
            return
        with suppress(RuntimeError):  # The event loop has closed: there is no sleeper left.
            self.loop.call_soon_threadsafe(self.rise)

    def rise(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


def _running() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if one is running."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Notifier:
    """May be called from any thread; wakes sleepers of every event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sleepers: set[_Sleeper] = set()
        self.count = 0
        """Grows with every notification. While it stays the same nothing was notified."""
        self._full: tuple[int, float] | None = None

    def notify(self, lines: Iterable[Line] = (), ended: Iterable[Ref] = ()) -> None:
        """Wakes sleepers that watch one of these lines, or the end of one of these jobs."""
        with self._lock:
            self.count += 1
            sleepers = list(self._sleepers)
        if not sleepers:
            return
        lines, ended = set(lines), set(ended)
        for sleeper in sleepers:
            if _matches(sleeper.watch, lines, ended):
                sleeper.wake()

    def notify_all(self) -> None:
        with self._lock:
            self.count += 1
            sleepers = list(self._sleepers)
        for sleeper in sleepers:
            sleeper.wake()

    def notify_claimers(self) -> None:
        """Wakes all who wait for work."""
        with self._lock:
            sleepers = list(self._sleepers)
        for sleeper in sleepers:
            if sleeper.watch.job is None and not sleeper.watch.news:
                sleeper.wake()

    def note_full(self, count: int, seconds: float | None) -> None:
        """Notes whether a claim left no room in the whole store, and for how long if no job ends;
        None: there is room. `count`: as it was before the claim, with which a store must have
        listened to other processes already.
        """
        self._full = None if seconds is None else (count, time.monotonic() + seconds)

    def full_s(self) -> float | None:
        """For how many seconds the store stays full if nothing is notified; None if unknown. While
        it is known, a sleeper need not ask the store: it would learn what the claim has told.
        """
        full = self._full
        if full is None or full[0] != self.count:
            return None
        return max(0.0, full[1] - time.monotonic())

    def listen(self, watch: Watch) -> Listener:
        """Registers now: a notification between this call and `sleep` is not lost."""
        return Listener(self, watch)

    def _add(self, sleeper: _Sleeper) -> None:
        with self._lock:
            self._sleepers.add(sleeper)

    def _remove(self, sleeper: _Sleeper) -> None:
        with self._lock:
            self._sleepers.discard(sleeper)


class Listener:
    """`with notifier.listen(watch) as listener:` look once more, then sleep."""

    def __init__(self, notifier: Notifier, watch: Watch) -> None:
        self._notifier = notifier
        self._sleeper = _Sleeper(watch)

    def __enter__(self) -> Listener:
        self._notifier._add(self._sleeper)
        return self

    def __exit__(self, *_: object) -> None:
        self._notifier._remove(self._sleeper)

    async def sleep(self, timeout_s: float) -> None:
        """Sleeps until a notification or the time-out. Both resolve the same future."""
        sleeper = self._sleeper
        timer = sleeper.loop.call_later(timeout_s, sleeper.rise)
        try:
            await sleeper.woken
        finally:
            timer.cancel()


def _matches(watch: Watch, lines: set[Line], ended: set[Ref]) -> bool:
    if watch.news:
        return True
    if watch.job is not None:
        return watch.job in ended
    for tenant, queue in lines:
        if (watch.tenants is None or tenant in watch.tenants) and (
            watch.queues is None or queue in watch.queues
        ):
            return True
    return False
