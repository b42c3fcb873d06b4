"""A transaction whose writes stay in memory until they are handed over; its own reads see them.

PENDING stands for the versionstamp of the commit: it sorts after all others, as it will, can be
read back without an error, and becomes a versionstamped write at the end.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

from holdfast.stores.foundationdb import binding
from holdfast.stores.foundationdb.layout import PENDING, STAMP, after

Pair = tuple[bytes, bytes]

_add = struct.Struct("<q")
_offset = struct.Struct("<L")


def count_of(value: bytes) -> int:
    """The value of a counter."""
    return int.from_bytes(value, "little", signed=True)


class Overlay:
    def __init__(self, transaction: Any) -> None:
        self.tr = transaction
        self.bytes = 0
        """Written so far, about."""
        self._writes: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] = []
        self._stamped: set[bytes] = set()
        """Keys whose values begin with the stamp of this commit."""
        self._adds: dict[bytes, int] = {}
        self._cleared: list[Pair] = []
        self._zeros: list[bytes] = []

    # -- reading ---------------------------------------------------------------------------------

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        if key in self._writes:
            return self._writes[key]
        return await binding.get(self._reader(snapshot), key)

    async def get_many(
        self, keys: Sequence[bytes], *, snapshot: bool = False
    ) -> list[bytes | None]:
        asked = [key for key in keys if key not in self._writes]
        found = await binding.get_many(self._reader(snapshot), asked)
        told = dict(zip(asked, found, strict=True))
        return [self._writes[key] if key in self._writes else told[key] for key in keys]

    async def range(
        self,
        begin: bytes,
        end: bytes,
        limit: int = 0,
        *,
        reverse: bool = False,
        snapshot: bool = False,
    ) -> list[Pair]:
        """The first pairs of a range, with what this step has written."""
        mine = self._between(begin, end)
        hidden = sum(self._writes[key] is None for key in mine)
        # What this step has dropped would take the places of others.
        asked = limit + hidden if limit else 0
        found = await binding.get_range(self._reader(snapshot), begin, end, asked, reverse)
        if not mine:
            return found
        merged = dict(found)
        if (
            limit and len(found) == asked
        ):  # Beyond the last one there may be more that we do not see.
            edge = found[-1][0]
            mine = [key for key in mine if (key > edge if reverse else key < edge) or key in merged]
        for key in mine:
            value = self._writes[key]
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        pairs = sorted(merged.items(), reverse=reverse)
        return pairs[:limit] if limit else pairs

    async def under(
        self, prefix: bytes, limit: int = 0, *, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        """The first pairs of all with this prefix."""
        return await self.range(prefix, after(prefix), limit, reverse=reverse, snapshot=snapshot)

    def _between(self, begin: bytes, end: bytes) -> list[bytes]:
        return self._sorted[bisect_left(self._sorted, begin) : bisect_left(self._sorted, end)]

    def _reader(self, snapshot: bool) -> Any:
        return self.tr.snapshot if snapshot else self.tr

    def contend(self, key: bytes) -> None:
        """Of two steps that contend for a key one fails, and is repeated."""
        self.tr.add_read_conflict_key(key)
        self.put(key, b"")

    # -- writing ---------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self._writes:
            insort(self._sorted, key)
        self._writes[key] = value
        self.bytes += len(key) + len(value)

    def stamp(self, key: bytes, rest: bytes = b"") -> None:
        """Writes the versionstamp of this step's commit, and more behind it."""
        self.put(key, PENDING + rest)
        self._stamped.add(key)

    def drop(self, key: bytes) -> None:
        if key not in self._writes:
            insort(self._sorted, key)
        self._writes[key] = None
        self.bytes += len(key)

    def add(self, key: bytes, number: int) -> None:
        self._adds[key] = self._adds.get(key, 0) + number

    def sweep(self, key: bytes) -> None:
        """Clears a counter if it is zero, whatever others add to it meanwhile."""
        self._zeros.append(key)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clears what this step has not written itself."""
        self._cleared.append((begin, end))

    async def counted(self, key: bytes, *, earnest: bool = False) -> int:
        """The value of a counter, by snapshot: whoever must not be overtaken contends besides."""
        found = await binding.get(self._reader(not earnest), key)
        return (count_of(found) if found else 0) + self._adds.get(key, 0)

    # -- handing over ----------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        return bool(self._writes or self._adds or self._cleared or self._zeros)

    def hand_over(self) -> None:
        """Hands all writes over to the transaction."""
        tr = self.tr
        for begin, end in self._cleared:
            tr.clear_range(begin, end)
        for key, value in self._writes.items():
            if value is None:
                if PENDING not in key:  # Else it was never there.
                    tr.clear(key)
            elif PENDING in key:
                offset = key.index(PENDING)
                tr.set_versionstamped_key(
                    key[:offset] + bytes(STAMP) + key[offset + STAMP :] + _offset.pack(offset),
                    value,
                )
            elif key in self._stamped:
                tr.set_versionstamped_value(key, bytes(STAMP) + value[STAMP:] + _offset.pack(0))
            else:
                tr.set(key, value)
        for key, number in self._adds.items():
            if number:
                tr.add(key, _add.pack(number))
        for key in self._zeros:
            tr.compare_and_clear(key, _add.pack(0))
