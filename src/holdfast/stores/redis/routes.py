"""Which server of a cluster has which slot: read from any server, corrected by redirects."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from redis import exceptions
from redis.crc import key_slot

from holdfast.stores.redis.options import Options

Address = tuple[str, int]
"""Host and port."""


class Routes:
    """Shared by all threads of a process."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._ranges: list[tuple[int, Address]] = []
        """For each start in `_starts`: the end of the range, and the server that has it."""
        self._moved: dict[int, Address] = {}
        self._last: list[Address] = list(options.nodes)

    @property
    def known(self) -> bool:
        return bool(self._starts)

    def forget(self) -> None:
        """Has the next call read the slots again."""
        with self._lock:
            self._starts, self._ranges, self._moved = [], [], {}

    def masters(self) -> list[Address]:
        with self._lock:
            return list(self._last)

    def of(self, key: str) -> Address:
        slot = key_slot(key.encode())
        with self._lock:
            if slot in self._moved:
                return self._moved[slot]
            at = bisect.bisect_right(self._starts, slot) - 1
            if at < 0 or self._ranges[at][0] < slot:
                raise exceptions.ClusterDownError(f"CLUSTERDOWN slot {slot} is served by nobody")
            return self._ranges[at][1]

    def moved(self, key: str, asked: Address, error: exceptions.MovedError) -> Address:
        """Where the key has gone."""
        address = self.beside(asked, error)
        with self._lock:
            self._moved[key_slot(key.encode())] = address
        return address

    def beside(self, asked: Address, error: exceptions.AskError) -> Address:
        """The address an error names; without a host it is that of the server that said so."""
        return error.host or asked[0], int(error.port)

    async def find(self, ask: Callable[[Address], Awaitable[Any]]) -> None:
        """Learns the slots from the first server that answers."""
        failed: BaseException | None = None
        for address in dict.fromkeys([*self.masters(), *self._options.nodes]):
            try:
                found = await ask(address)
            except (exceptions.RedisError, OSError) as error:
                failed = failed if isinstance(failed, exceptions.AuthenticationError) else error
                continue
            if self._learn(address, found):
                return
        raise failed or exceptions.ClusterDownError("CLUSTERDOWN no server knows any slots")

    def _learn(self, asked: Address, found: Any) -> bool:
        ranges = sorted(
            (start, end, (_text(master[0]) or asked[0], int(master[1])))
            for start, end, master, *_ in found
        )
        if not ranges:
            return False
        with self._lock:
            self._starts = [start for start, _, _ in ranges]
            self._ranges = [(end, address) for _, end, address in ranges]
            self._moved = {}
            self._last = list(dict.fromkeys(address for _, _, address in ranges))
        return True


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
