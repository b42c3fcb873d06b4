"""How the claimers of one line share its jobs, so that they do not all conflict at its head.

Each store that claims from a line writes its name there (CLAIMERS), and first takes the jobs that a
hash ring assigns to it. When none of its own are left, it takes from those that have many, from the
end of their jobs, where nobody else would. The few that are left for others it takes when they have
not done so for a while. A claimer that is alone takes all in order (P9). A name is as old as the
version at which it was written, by the cluster's own clock: a claimer that has not been there for
PRESENT does not count, and its jobs are assigned to the others. Claims of one store know of each
other without asking: what one is about to take the others leave alone.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import lru_cache

from holdfast.core.clock import SECOND
from holdfast.stores.foundationdb.clock import RESTORED
from holdfast.stores.foundationdb.fairness import bounded
from holdfast.stores.foundationdb.layout import Space, text, texts
from holdfast.stores.foundationdb.rows import Candidate
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line

PRESENT = 6 * SECOND
"""Versions, about microseconds, for which a claimer counts after it last wrote its name."""
RENEW = 2 * SECOND
"""Versions after which it writes its name again."""
CLAIMERS_MAX = 1000
TAKEN_MAX = 20_000
"""Jobs taken that are remembered for claims that read an older version."""
POINTS = 32
"""Points of each claimer on the hash ring."""
CHOICES = 16
"""Points that are looked at for a second claimer of a job."""
SETTLE_S = 0.02
"""The least time that a store waits for others: after it first wrote its name at a line, for their
names; and where it finds only jobs assigned to them, for them to take these."""
SETTLE_S_MAX = 0.5
"""The most: twice what its own claims take lately, for theirs will take as long."""
PATIENCE_S = 1.0
"""How long a claim goes on waiting so at most."""
FULL_MAX = 20
"""How often in a row a store finds a line without room before it lets the line rest."""

MANY = 8
"""Jobs of another claimer that are enough for two claimers."""

_GOLDEN = 0x9E3779B97F4A7C15


class Mode(Enum):
    """How an attempt shares a line with other claimers."""

    ANNOUNCE = auto()
    """Takes its own jobs, but of a long line only after the store's name is known there."""
    OWN = auto()
    """Takes the jobs that are assigned to it, and some of claimers that have many."""
    ANY = auto()
    """Takes also jobs that are assigned to others."""


class NotAnnounced(Exception):
    """The store is about to claim from a long line at which its name was never written."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self.line = line


class Claimers:
    """What one store knows of those who claim from the same lines. Any thread may ask."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._pace_s = 0.0
        self._announced: dict[Line, int] = {}
        self._counts: dict[Line, int] = {}
        self._full: dict[Line, int] = {}
        self._reserved: set[bytes] = set()
        self._taken: dict[bytes, int] = {}
        """Jobs that this store took, and the version from which that can be seen."""

    def took(self, seconds: float) -> None:
        """Records how long a claim's transaction took."""
        self._pace_s += (seconds - self._pace_s) / 4

    @property
    def settle_s(self) -> float:
        """How long to wait for what others are about to do."""
        return min(SETTLE_S_MAX, max(SETTLE_S, 2 * self._pace_s))

    # -- names at lines --------------------------------------------------------------------------

    def should_announce(self, line: Line, version: int) -> bool:
        """Whether the store should write its name at the line, or write it again."""
        known = self._announced.get(line)
        return known is None or not known <= version < known + RENEW

    def is_new_at(self, line: Line) -> bool:
        """Whether the store has never written its name there, as far as it remembers."""
        return line not in self._announced

    def announced(self, line: Line, version: int) -> None:
        bounded(self._announced)
        self._announced[line] = version

    def lines(self) -> list[Line]:
        """The lines at which the store has written its name."""
        return list(self._announced)

    def count(self, line: Line) -> int:
        """How many claimed from the line when the store last looked."""
        return self._counts.get(line, 1)

    def counted(self, line: Line, count: int) -> None:
        if count > 1 or line in self._counts:
            bounded(self._counts)
            self._counts[line] = count

    def often_full(self, lines: set[Line], seen: Iterable[Line]) -> list[Line]:
        """Which of the lines that a claim found without room were so too often to be read again;
        `seen` are all that it read.
        """
        for line in seen:
            if line not in lines:
                self._full.pop(line, None)
        bounded(self._full)
        often = []
        for line in lines:
            self._full[line] = self._full.get(line, 0) + 1
            if self._full[line] >= FULL_MAX:
                del self._full[line]
                often.append(line)
        return often

    # -- jobs of this store's other claims -------------------------------------------------------

    def reserve(self, candidates: Sequence[Candidate], most: int, version: int) -> list[Candidate]:
        """The first of these that no other claim of this store is about to take, or has taken
        since the version at which they were read.
        """
        with self._lock:
            found = [
                each
                for each in candidates
                if each.stamp not in self._reserved
                and not version < self._taken.get(each.stamp, 0) <= version + RESTORED
            ][:most]
            self._reserved.update(each.stamp for each in found)
            return found

    def any_reserved(self, candidates: Iterable[Candidate]) -> bool:
        """Whether another claim of this store is about to take one of these."""
        with self._lock:
            return any(each.stamp in self._reserved for each in candidates)

    def release(self, stamps: Iterable[bytes], version: int | None = None) -> None:
        """Ends the reservation of these; with a version, they were taken at it."""
        with self._lock:
            self._reserved.difference_update(stamps)
            if version is not None:
                if len(self._taken) >= TAKEN_MAX:
                    self._taken.clear()
                self._taken.update(dict.fromkeys(stamps, version))


class HashRing:
    """Assigns jobs to claimers: each has many points on a ring, and a job belongs to the next one.

    A claimer that comes or goes changes the assignment of a few jobs only, so that claimers who do
    not know of the same others yet still agree on most.
    """

    def __init__(self, names: Sequence[str]) -> None:
        points = sorted(
            (zlib.crc32(f"{name}/{point}".encode()), name)
            for name in names
            for point in range(POINTS)
        )
        self._points = [point for point, _ in points]
        self._names = [name for _, name in points]

    def owner(self, stamp: bytes) -> str:
        return self._at(stamp, 0)

    def second(self, stamp: bytes) -> str:
        """Who may take it when its owner does not."""
        owner = self.owner(stamp)
        choices = (self._at(stamp, choice) for choice in range(1, CHOICES))
        return next((name for name in choices if name != owner), owner)

    def _at(self, stamp: bytes, choice: int) -> str:
        place = (int.from_bytes(stamp, "big") + choice) * _GOLDEN >> 32 & 0xFFFF_FFFF
        return self._names[bisect_left(self._points, place) % len(self._names)]


@lru_cache(1000)
def ring(names: tuple[str, ...]) -> HashRing:
    return HashRing(names)


def assign(
    candidates: list[Candidate], me: str, claimers: list[str]
) -> tuple[list[Candidate], dict[str, list[Candidate]]]:
    """The candidates that belong to this claimer, and those of the others by claimer."""
    others: dict[str, list[Candidate]] = {}
    if claimers == [me]:
        return candidates, others
    owner = ring(tuple(claimers)).owner
    for each in candidates:
        others.setdefault(owner(each.stamp), []).append(each)
    return others.pop(me, []), others


def spare(
    others: dict[str, list[Candidate]], me: str, claimers: list[str], enough: int
) -> list[Candidate]:
    """Of those who have enough for two the last ones, where this claimer is the second choice."""
    second = ring(tuple(claimers)).second
    many = [jobs[len(jobs) // 2 :] for jobs in others.values() if len(jobs) >= enough]
    return [each for jobs in many for each in jobs if second(each.stamp) == me]


def any_left(others: dict[str, list[Candidate]], me: str, claimers: list[str]) -> list[Candidate]:
    """Those of others where this claimer is the second choice, or else one of them."""
    second = ring(tuple(claimers)).second
    left = [each for name in sorted(others) for each in others[name]]
    mine = [each for each in left if second(each.stamp) == me]
    return mine or [left[claimers.index(me) % len(left)]]


# -- what is stored --------------------------------------------------------------------------------


def _is_present(stamp: bytes, version: int) -> bool:
    """Whether the claimer wrote this stamp lately; not before a restore."""
    left = int.from_bytes(stamp[:8], "big")
    return version - PRESENT < left <= version + RESTORED


def is_gone(stamp: bytes, version: int) -> bool:
    """Whether the claimer wrote this stamp so long ago that its name can be deleted."""
    left = int.from_bytes(stamp[:8], "big")
    return left + 6 * PRESENT < version or left > version + RESTORED


def _key(step: Step, line: Line, *name: bytes) -> bytes:
    return step.keys.all(Space.CLAIMERS, text(line[0]), text(line[1]), *name)


def ask_claimers(step: Step, line: Line) -> None:
    step.ask_under(_key(step, line), CLAIMERS_MAX)


async def present(step: Step, claimers: Claimers, line: Line) -> list[str]:
    """The names of those who have claimed from a line lately, sorted, with this store's."""
    prefix = _key(step, line)
    pairs = await step.under(prefix, CLAIMERS_MAX, snapshot=True)
    found = {
        texts(key[len(prefix) :], 1)[0]
        for key, value in pairs
        if _is_present(value, step.at.version)
    }
    claimers.counted(line, len(found | {claimers.name}))
    return sorted(found | {claimers.name})


async def join(step: Step, claimers: Claimers, line: Line) -> list[str]:
    """Those who are present; writes this store's name, and deletes those that are gone."""
    version = step.at.version
    for key, value in await step.under(_key(step, line), CLAIMERS_MAX, snapshot=True):
        if is_gone(value, version):
            step.drop_if(key, value)
    there = await present(step, claimers, line)
    if claimers.should_announce(line, version):
        step.stamp(_key(step, line, text(claimers.name)))
    return there


async def announce(step: Step, claimers: Claimers, line: Line) -> int:
    """Writes the store's name at a line before its first claim there; returns the version."""
    step.stamp(_key(step, line, text(claimers.name)))
    return step.at.version


async def leave(step: Step, claimers: Claimers) -> None:
    """Deletes the store's name at all lines: it will not claim there any more."""
    for line in claimers.lines():
        step.drop(_key(step, line, text(claimers.name)))
