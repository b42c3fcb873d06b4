"""How sleepers are told: watches of the bells that other processes ring.

Each bell is a counter, one for each queue, one for all lines, one for ends and one for news. A
store watches a bell while any of its sleepers listens to it: one watch for each bell, however many
sleep, and WATCHES_MAX at most, far below the 10,000 that a connection may have. Those beyond poll.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

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

    async def listen(self, watch: Watch) -> bool:
        """Sees to it that the bells of a watch are heard; False where one is not."""
        heard = True
        for name in bells_of(watch):
            if name not in self._watches:
                heard = await self._watch(name) and heard
            elif self._watches.get(name) is None:
                heard = False  # Another sleeper is about to listen: it may be late for this one.
        return heard

    async def _watch(self, name: str) -> bool:
        with self._lock:
            if self._closed or len(self._watches) >= WATCHES_MAX:
                return False
            if name in self._watches:
                return True
            self._watches[name] = None
        try:
            transaction = self._database.create_transaction()
            async with asyncio.timeout(self._timeout_s):
                future = transaction.watch(self._keys.all(Space.BELLS, text(name)))
                await binding.ready(transaction.commit())
        except BaseException as error:
            self._watches.pop(name, None)
            if isinstance(error, TimeoutError) or code_of(error) is not None:
                return False  # Polling is always right; a watch is only sooner.
            raise
        with self._lock:
            if self._closed:
                future.cancel()
                return False
            self._watches[name] = future
        future.on_ready(lambda _: self._rung(name, future))
        return True

    def _rung(self, name: str, future: Any) -> None:
        """Runs on the library's thread: whoever listens looks, and listens again."""
        with self._lock:
            if self._watches.get(name) is future:
                del self._watches[name]
        self._bell.ring_all()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            futures, self._watches = list(self._watches.values()), {}
        for future in futures:
            if future is not None:
                future.cancel()
