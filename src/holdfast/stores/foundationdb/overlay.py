"""A transaction whose writes stay in memory until `hand_over`; its own reads see them.

PENDING stands for the versionstamp of the commit: it sorts after all others, as the stamp will, can
be read back without an error, and becomes a versionstamped write at the end.

The cost of a transaction is how often it waits for an answer. So what it will read is requested
together (`ask`, `ask_range`), and a read takes the answer from there; each key is requested once.
All requests are by snapshot: a read that must conflict adds its conflict range itself.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
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
        self.void = False
        """Whether all that it would write is taken back."""
        self._writes: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] = []
        self._stamped: set[bytes] = set()
        """Keys whose values begin with the stamp of this commit."""
        self._adds: dict[bytes, int] = {}
        self._cleared: list[Pair] = []
        self._drops_if: list[Pair] = []
        self._asked: dict[bytes, Any] = {}
        """Keys that were requested, and the futures of their values."""
        self._asked_ranges: dict[tuple[bytes, bytes, int, bool], Any] = {}
        self._conflict_keys: set[bytes] = set()
        """Keys that were read with a conflict range."""

    # -- reading ---------------------------------------------------------------------------------

    def ask(self, keys: Iterable[bytes]) -> None:
        """Requests keys that will be read."""
        for key in keys:
            if key not in self._asked:
                self._asked[key] = self.tr.snapshot.get(key)

    def ask_range(self, begin: bytes, end: bytes, limit: int, *, reverse: bool = False) -> None:
        """Requests a range that will be read with the same arguments."""
        limit = self._wide((begin, end), limit)
        asked = begin, end, limit, reverse
        if begin < end and asked not in self._asked_ranges:
            page = binding.ask_range(self.tr.snapshot, (begin, end), limit, reverse)
            self._asked_ranges[asked] = page

    def _wide(self, span: Pair, limit: int) -> int:
        """The limit, plus the keys of the range that this step has dropped."""
        hidden = sum(self._writes[key] is None for key in self._between(*span))
        return limit + hidden if limit else 0

    def ask_under(self, prefix: bytes, limit: int) -> None:
        self.ask_range(prefix, after(prefix), limit)

    async def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        return (await self.get_many([key], snapshot=snapshot))[0]

    async def get_many(
        self, keys: Sequence[bytes], *, snapshot: bool = False
    ) -> list[bytes | None]:
        await self._fetch([key for key in keys if key not in self._writes], snapshot)
        return [
            self._writes[key] if key in self._writes else binding.value_of(self._asked[key].wait())
            for key in keys
        ]

    async def _fetch(self, keys: Sequence[bytes], snapshot: bool) -> None:
        """Waits for the answers about these keys."""
        self.ask(keys)
        if not snapshot:
            for key in keys:
                if key not in self._conflict_keys:
                    self._conflict_keys.add(key)
                    self.tr.add_read_conflict_key(key)
        for key in keys:
            await binding.ready(self._asked[key])

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
        asked = self._wide((begin, end), limit)
        found = await self._pairs((begin, end), asked, reverse, snapshot)
        if not mine:
            return found
        merged = dict(found)
        if limit and len(found) == asked:  # After the last one there may be more, not read.
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

    async def _pairs(self, span: Pair, limit: int, reverse: bool, snapshot: bool) -> list[Pair]:
        page = self._asked_ranges.get((*span, limit, reverse))
        if page is None:
            return await binding.get_range(self._reader(snapshot), *span, limit, reverse)
        found = await binding.pairs(self.tr.snapshot, span, limit, reverse, page)
        if not snapshot:
            begin, end = span
            if limit and len(found) == limit:  # Only what was read conflicts.
                edge = found[-1][0]
                begin, end = (edge, end) if reverse else (begin, edge + b"\0")
            self.tr.add_read_conflict_range(begin, end)
        return found

    async def under(
        self, prefix: bytes, limit: int = 0, *, reverse: bool = False, snapshot: bool = False
    ) -> list[Pair]:
        """The first pairs of all keys with this prefix."""
        return await self.range(prefix, after(prefix), limit, reverse=reverse, snapshot=snapshot)

    async def firsts(self, ranges: Sequence[Pair]) -> list[Pair | None]:
        """The first pair of each range, by snapshot."""
        for begin, end in ranges:
            self.ask_range(begin, end, 1)
        found = [await self.range(begin, end, 1, snapshot=True) for begin, end in ranges]
        return [pairs[0] if pairs else None for pairs in found]

    def _between(self, begin: bytes, end: bytes) -> list[bytes]:
        return self._sorted[bisect_left(self._sorted, begin) : bisect_left(self._sorted, end)]

    def _reader(self, snapshot: bool) -> Any:
        return self.tr.snapshot if snapshot else self.tr

    def contend(self, key: bytes) -> None:
        """Makes this step conflict with every other that contends for the key."""
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

    def drop_if(self, key: bytes, value: bytes) -> None:
        """Clears a key if it still has this value, whatever others write to it meanwhile."""
        self._drops_if.append((key, value))

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clears what this step has not written itself."""
        self._cleared.append((begin, end))

    def clear_under(self, prefix: bytes) -> None:
        """Clears all keys with this prefix, and what this step has written under it."""
        self.clear_range(prefix, after(prefix))
        for key in self._between(prefix, after(prefix)):
            self._writes[key] = None
        for key in [key for key in self._adds if key.startswith(prefix)]:
            del self._adds[key]

    async def counted(self, key: bytes, *, snapshot: bool = True) -> int:
        """The value of a counter, with what this step adds. By snapshot: a step that must not be
        overtaken contends for a key besides.
        """
        await self._fetch([key], snapshot)
        found = binding.value_of(self._asked[key].wait())
        return (count_of(found) if found else 0) + self.added(key)

    def added(self, key: bytes) -> int:
        """What this step adds to a counter."""
        return self._adds.get(key, 0)

    # -- handing over ----------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        return bool(self._writes or self._adds or self._cleared or self._drops_if)

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
        for key, seen in self._drops_if:
            tr.compare_and_clear(key, seen)
