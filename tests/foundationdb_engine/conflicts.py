"""Who wrote what since when: decides whether a transaction saw a world that is no more."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from tests.foundationdb_engine.keys import Range
from tests.foundationdb_engine.mutations import Mutation


@dataclass(slots=True)
class Commit:
    """What a transaction sends: what it read, at which version, and what it changes."""

    read_version: int | None = None
    """None for one that never read: it cannot be too old, nor in conflict."""
    mutations: list[Mutation] = field(default_factory=list)
    read_keys: set[bytes] = field(default_factory=set)
    read_ranges: list[Range] = field(default_factory=list)
    write_keys: set[bytes] = field(default_factory=set)
    write_ranges: list[Range] = field(default_factory=list)


class Written:
    """What one commit wrote: single keys and whole ranges."""

    def __init__(self, version: int, keys: set[bytes], ranges: list[Range]) -> None:
        self.version = version
        self.keys = keys
        self.ranges = ranges
        self._ordered: list[bytes] | None = None

    def meets(self, commit: Commit) -> bool:
        """Whether the other one read any of it."""
        if not self.keys.isdisjoint(commit.read_keys):
            return True
        if commit.read_ranges and any(self._meets_range(*each) for each in commit.read_ranges):
            return True
        return any(begin <= key < end for begin, end in self.ranges for key in commit.read_keys)

    def _meets_range(self, begin: bytes, end: bytes) -> bool:
        if self._ordered is None:
            self._ordered = sorted(self.keys)
        place = bisect_left(self._ordered, begin)
        if place < len(self._ordered) and self._ordered[place] < end:
            return True
        return any(first < end and begin < last for first, last in self.ranges)


class Log:
    """The commits of late, oldest first. Whoever calls holds the engine's lock."""

    def __init__(self) -> None:
        self._written: deque[Written] = deque()

    @property
    def past(self) -> int:
        """How many commits are kept."""
        return len(self._written)

    def add(self, written: Written) -> None:
        self._written.append(written)

    def conflicts(self, commit: Commit, since: int) -> bool:
        """Whether anything that it read was written after the version."""
        for written in reversed(self._written):
            if written.version <= since:
                return False
            if written.meets(commit):
                return True
        return False

    def forget(self, version: int, keep: int) -> int | None:
        """Drops what nobody needs who reads at the version or later, but for the last `keep`.

        Gives the newest version that is gone, if any.
        """
        floor = None
        while len(self._written) > keep and self._written[0].version <= version:
            floor = self._written.popleft().version
        return floor
