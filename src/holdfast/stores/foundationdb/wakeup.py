"""How sleepers are told: watches of the bells that other processes ring.

Each bell is a counter, one for each queue, one for all lines, one for ends and one for news. A
store watches a bell while any of its sleepers listens to it: one watch for each bell, however many
sleep, and WATCHES_MAX at most, far below the 10,000 that a connection may have. Those beyond poll.

A watch can also end with an error (the connection has too many, a version was lost, the transaction
was cancelled). That is no news: its sleepers look for themselves POLL_S later, and watch again.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from holdfast.limits import WAIT_S_MAX
from holdfast.store import Watch
from holdfast.stores.bell import Bell
from holdfast.stores.foundationdb import binding
from holdfast.stores.foundationdb.faults import code_of
from holdfast.stores.foundationdb.layout import Keys, Space, text
from holdfast.stores.foundationdb.step import BELL_ENDS, BELL_LINES, BELL_NEWS, bell_of

WATCHES_MAX = 1000
QUEUES_MAX = 16
"""A sleeper that names more queues listens to all lines instead."""
POLL_S = 1.0
"""How long a sleeper sleeps at most where it is not told."""


def bells_of(watch: Watch) -> list[str]:
    """The bells that a watch has to listen to."""
    if watch.news:
        return [BELL_NEWS]
    if watch.job is not None:
        return [BELL_ENDS]
    if watch.queues is not None and len(watch.queues) <= QUEUES_MAX:
        return [bell_of(queue) for queue in watch.queues]
    return [BELL_LINES]


class Doorbell:
    """The watches of one open store."""

    def __init__(self, database: Any, keys: Keys, bell: Bell, timeout_s: float) -> None:
        self._database = database
        self._timeout_s = timeout_s
        self._keys = keys
        self._bell = bell
        self._lock = threading.Lock()
        self._watches: dict[str, Any] = {}
        self._closed = False

    async def listen(self, watch: Watch) -> float:
        """Sees to it that the bells of a watch are heard; gives the seconds after which a sleeper
        should look for itself.
        """
        heard = True
        for name in bells_of(watch):
            if name not in self._watches:
                heard = await self._watch(name) and heard
            elif self._watches.get(name) is None:
                heard = False  # Another sleeper is about to listen: it may be late for this one.
        return WAIT_S_MAX if heard else POLL_S

    async def _watch(self, name: str) -> bool:
        with self._lock:
            if self._closed or len(self._watches) >= WATCHES_MAX:
                return False
            if name in self._watches:
                return True
            self._watches[name] = None
        future = None
        try:
            transaction = self._database.create_transaction()
            async with asyncio.timeout(self._timeout_s):
                future = transaction.watch(self._keys.all(Space.BELLS, text(name)))
                await binding.ready(transaction.commit())
        except BaseException as error:
            self._give_up(name, future)
            if isinstance(error, TimeoutError) or code_of(error) is not None:
                return False  # Polling is always right; a watch is only sooner.
            raise
        return self._armed(name, future, asyncio.get_running_loop())

    def _give_up(self, name: str, future: Any) -> None:
        with self._lock:
            self._watches.pop(name, None)
        if future is not None:
            future.cancel()  # Its transaction may have been committed all the same.

    def _armed(self, name: str, future: Any, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the watch is there now: it may have ended before anybody listened."""
        with self._lock:
            if self._closed:
                future.cancel()
                return False
            self._watches[name] = future
        if future.is_ready() and _failed(future):
            self._give_up(name, future)
            return False
        future.on_ready(lambda _: self._rung(name, future, loop))
        return True

    def _rung(self, name: str, future: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Runs on the library's thread: whoever listens looks, and listens again."""
        with self._lock:
            if self._watches.get(name) is not future:
                return  # Closed meanwhile: who closes wakes them all.
            del self._watches[name]
        if not _failed(future):
            self._bell.ring_all()
            return
        try:
            loop.call_soon_threadsafe(loop.call_later, POLL_S, self._bell.ring_all)
        except RuntimeError:  # The loop has closed. Sleepers of others watch by their own then.
            self._bell.ring_all()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            futures, self._watches = list(self._watches.values()), {}
        for future in futures:
            if future is not None:
                future.cancel()


def _failed(future: Any) -> bool:
    """Whether a watch that is over has ended with an error."""
    try:
        future.wait()
    except Exception as error:
        if code_of(error) is None:
            raise
        return True
    return False
