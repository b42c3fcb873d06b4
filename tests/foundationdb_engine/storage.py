"""The rows of the engine, each with its past: what was there at a version that is still young.

Keys are one sorted list; each has its chain of (version, value), oldest first, None for a clear. An
overwritten value is remembered in the order of versions, and dropped when nobody may read it any
more. A row costs a bisection and a move of pointers: quick enough for tens of thousands of keys.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator

Row = tuple[bytes, bytes]
Chain = list[tuple[int, bytes | None]]


def _at(chain: Chain, version: int) -> bytes | None:
    for written, value in reversed(chain):
        if written <= version:
            return value
    return None


class Storage:
    """Rows by key and version. Whoever calls holds the engine's lock."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._chains: dict[bytes, Chain] = {}
        self._past: deque[tuple[int, bytes]] = deque()
        """Every overwritten or cleared value: the version that did it, and the key."""

    def __len__(self) -> int:
        return sum(1 for chain in self._chains.values() if chain[-1][1] is not None)

    @property
    def past(self) -> int:
        """How many old values are kept."""
        return len(self._past)

    def newest(self, key: bytes) -> bytes | None:
        chain = self._chains.get(key)
        return chain[-1][1] if chain else None

    def get(self, key: bytes, version: int) -> bytes | None:
        chain = self._chains.get(key)
        if chain is None:
            return None
        written, value = chain[-1]
        return value if written <= version else _at(chain, version)

    def walk(self, begin: bytes, end: bytes, version: int, reverse: bool) -> Iterator[Row]:
        """The rows of a range at a version, in order. Nothing is written while it is used."""
        keys, chains = self._keys, self._chains
        first, last = bisect_left(keys, begin), bisect_left(keys, end)
        for place in range(last - 1, first - 1, -1) if reverse else range(first, last):
            key = keys[place]
            chain = chains[key]
            written, value = chain[-1]
            if written > version:
                value = _at(chain, version)
            if value is not None:
                yield key, value

    def put(self, key: bytes, value: bytes | None, version: int) -> None:
        """Writes or, with None, clears."""
        chain = self._chains.get(key)
        if chain is None:
            if value is not None:
                insort(self._keys, key)
                self._chains[key] = [(version, value)]
            return
        written, old = chain[-1]
        if old is None and value is None:
            return
        if written == version:
            chain[-1] = (version, value)
        else:
            chain.append((version, value))
        self._past.append((version, key))

    def clear_range(self, begin: bytes, end: bytes, version: int) -> list[bytes]:
        """Clears what is there; gives the keys."""
        keys = self._keys[bisect_left(self._keys, begin) : bisect_left(self._keys, end)]
        gone = [key for key in keys if self._chains[key][-1][1] is not None]
        for key in gone:
            self.put(key, None, version)
        return gone

    def forget(self, version: int, keep: int) -> int | None:
        """Drops what nobody needs who reads at the version or later, but for the last `keep`.

        Gives the newest version whose past is gone now, if any.
        """
        past, floor = self._past, None
        while len(past) > keep and past[0][0] <= version:
            floor, key = past.popleft()
            self._trim(key, floor)
        return floor

    def _trim(self, key: bytes, version: int) -> None:
        chain = self._chains.get(key)
        if chain is None:
            return
        old = 0
        while old + 1 < len(chain) and chain[old + 1][0] <= version:
            old += 1
        del chain[:old]
        if len(chain) == 1 and chain[0][1] is None:
            del self._chains[key]
            del self._keys[bisect_left(self._keys, key)]
