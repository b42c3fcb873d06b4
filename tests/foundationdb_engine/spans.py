"""A set of keys made of ranges, kept in order and apart from each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter

from tests.foundationdb_engine.keys import Range

_BEGIN, _END = itemgetter(0), itemgetter(1)


class Spans:
    """Ranges of keys; those that touch are one."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges: list[Range] = []
        for begin, end in ranges:
            self.add(begin, end)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, key: bytes) -> bool:
        place = bisect_right(self._ranges, key, key=_BEGIN) - 1
        return place >= 0 and key < self._ranges[place][1]

    def within(self, begin: bytes, end: bytes) -> list[Range]:
        """The parts of the range that belong to it."""
        first = bisect_right(self._ranges, begin, key=_END)
        last = bisect_left(self._ranges, end, key=_BEGIN)
        return [(max(begin, low), min(end, high)) for low, high in self._ranges[first:last]]

    def add(self, begin: bytes, end: bytes) -> None:
        first = bisect_left(self._ranges, begin, key=_END)
        last = bisect_right(self._ranges, end, key=_BEGIN)
        if first < last:
            begin = min(begin, self._ranges[first][0])
            end = max(end, self._ranges[last - 1][1])
        self._ranges[first:last] = [(begin, end)]

    def remove(self, begin: bytes, end: bytes) -> None:
        first = bisect_right(self._ranges, begin, key=_END)
        last = bisect_left(self._ranges, end, key=_BEGIN)
        if first < last:
            low, high = self._ranges[first][0], self._ranges[last - 1][1]
            left = [(low, begin), (end, high)]
            self._ranges[first:last] = [part for part in left if part[0] < part[1]]

    def ranges(self) -> list[Range]:
        return list(self._ranges)
