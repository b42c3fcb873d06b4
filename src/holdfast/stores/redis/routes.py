"""Which server of a cluster has which slot. Asked of any of them, corrected by those that moved."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from redis import exceptions
from redis.crc import key_slot

from holdfast.stores.redis.options import Options

Place = tuple[str, int]
"""Host and port."""


class Routes:
    """Shared by all threads of a process: what one learns, all know."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._ranges: list[tuple[int, Place]] = []
        """The end of the range that begins at the same place of `_starts`, and who has it."""
        self._moved: dict[int, Place] = {}
        self._last: list[Place] = list(options.nodes)

    @property
    def known(self) -> bool:
        return bool(self._starts)

    def forget(self) -> None:
        """Has the next call ask anew: something did not answer as it should."""
        with self._lock:
            self._starts, self._ranges, self._moved = [], [], {}

    def masters(self) -> list[Place]:
        with self._lock:
            return list(self._last)

    def of(self, key: str) -> Place:
        slot = key_slot(key.encode())
        with self._lock:
            if slot in self._moved:
                return self._moved[slot]
            at = bisect.bisect_right(self._starts, slot) - 1
            if at < 0 or self._ranges[at][0] < slot:
                raise exceptions.ClusterDownError(f"CLUSTERDOWN slot {slot} is served by nobody")
            return self._ranges[at][1]

    def moved(self, key: str, asked: Place, error: exceptions.MovedError) -> Place:
        """Where the key has gone."""
        place = self.beside(asked, error)
        with self._lock:
            self._moved[key_slot(key.encode())] = place
        return place

    def beside(self, asked: Place, error: exceptions.AskError) -> Place:
        """The place an error names; without a host it is that of the server that said so."""
        return error.host or asked[0], int(error.port)

    async def find(self, ask: Callable[[Place], Awaitable[Any]]) -> None:
        """Learns the slots from the first server that answers."""
        failed: BaseException | None = None
        for place in dict.fromkeys([*self.masters(), *self._options.nodes]):
            try:
                found = await ask(place)
            except (exceptions.RedisError, OSError) as error:
                failed = failed if isinstance(failed, exceptions.AuthenticationError) else error
                continue
            if self._learn(place, found):
                return
        raise failed or exceptions.ClusterDownError("CLUSTERDOWN no server knows any slots")

    def _learn(self, asked: Place, found: Any) -> bool:
        ranges = sorted(
            (start, end, (_text(master[0]) or asked[0], int(master[1])))
            for start, end, master, *_ in found
        )
        if not ranges:
            return False
        with self._lock:
            self._starts = [start for start, _, _ in ranges]
            self._ranges = [(end, place) for _, end, place in ranges]
            self._moved = {}
            self._last = list(dict.fromkeys(place for _, _, place in ranges))
        return True


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
