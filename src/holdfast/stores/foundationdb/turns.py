"""Whose turn it is among tenants and their lines, and who else claims from a line.

Weighted deficit round robin over tenants: in its turn a tenant takes as many jobs as its weight, or
a multiple of it (`scope.rounds`), from its lines in turn, and goes to the end. So many queues give
a tenant no more than one. A turn that a full claim cut short goes on with the next. The place of a
tenant or a line is the version at which it came up, which its pointer holds, or at which this store
last served it, which only the store knows: stores go round independently, and nothing is written
for it. What a claim sees of tenants and lines is in `lines.py`.

Claimers of one line would all take its head, and all but one would fail. So each leaves its name
there, and takes first the jobs that fall to it (`Shares`). When none of its own are left it helps
those that have many, from the end, where nobody else would; what few are left for others it takes
when they have not done so for a while. A claimer that is alone takes all in order (P9). Names are
as old as the version at which they were written, by the cluster's own clock: a claimer that has not
been there for a while does not count, and its jobs fall to the others. Claims of one store know of
each other without asking: what one is about to take the others leave alone.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from holdfast.clock import SECOND
from holdfast.stores.bell import Line
from holdfast.stores.foundationdb.clock import RESTORED
from holdfast.stores.foundationdb.layout import Space, text, texts
from holdfast.stores.foundationdb.rows import Candidate
from holdfast.stores.foundationdb.step import Step

PRESENT = 6 * SECOND
"""Versions, about microseconds, for which a claimer counts after it was last there."""
RENEW = 2 * SECOND
"""After so many it leaves its name again."""
PLACES_MAX = 1000
"""Selections of lines whose place in the round is remembered, turns cut short, and lines at which
the store has left its name."""
CLAIMERS_MAX = 1000
GONE_MAX = 20_000
"""Jobs taken that are remembered for claims that look at an older version."""
POINTS = 32
"""Of each claimer on the circle by which they share a line."""
CHOICES = 16
"""Points that are looked at for a second claimer of a job."""
SETTLE_S = 0.02
"""How long a store waits for others at least: after it first left its name at a line, for theirs;
and where it finds only jobs that fall to them, for them to take these."""
SETTLE_S_MAX = 0.5
"""And at most: twice what its own claims take lately, for theirs will take as long."""
PATIENCE_S = 1.0
"""How long a claim goes on so at most."""
SHUT_MAX = 20
"""How often in a row a claim finds a line without room before it lets it rest."""
LAST_MAX = 20_000
"""Tenants, and lines, of which a store remembers when it last served them."""

_GOLDEN = 0x9E3779B97F4A7C15

Selection = tuple[tuple[str, ...] | None, tuple[str, ...] | None]
"""Tenants and queues, as a claim names them."""
Rank = tuple[int, int]
"""A version, and a number of the store's own within it."""


class Turns:
    """What one store knows of its turns. Any thread may ask."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._credit: dict[str, int] = {}
        self._stopped: dict[Selection, bytes] = {}
        self._last: dict[Line | str, Rank] = {}
        self._turn = 0
        self._pace_s = 0.0
        self._there: dict[Line, int] = {}
        self._crowds: dict[Line, int] = {}
        self._shut: dict[Line, int] = {}
        self._taken: set[bytes] = set()
        self._gone: dict[bytes, int] = {}
        """Jobs that this store took, and the version from which that can be seen."""

    # -- the round -------------------------------------------------------------------------------

    def rank(self, one: Line | str, joined: int) -> Rank:
        """The place of a tenant among tenants, or of a line among lines; the lowest is next."""
        return max((joined, 0), self._last.get(one, (0, 0)))

    def next_rank(self, version: int) -> Rank:
        """The place of one that is served now: behind all others."""
        self._turn += 1
        return version, self._turn

    def allowance(self, tenant: str, quota: int) -> int:
        """How many jobs the tenant may take in this turn. Asking changes nothing."""
        return self._credit.get(tenant, quota)

    def served(self, ranks: dict[Line | str, Rank], left: dict[str, int]) -> None:
        """Tenants and lines whose turns have ended, and what is left of those cut short."""
        if len(self._last) >= 2 * LAST_MAX:
            self._last.clear()
        self._last.update(ranks)
        for one in ranks:
            if isinstance(one, str):
                self._credit.pop(one, None)
        bounded(self._credit)
        self._credit.update(left)

    def place(self, selection: Selection) -> bytes | None:
        """Behind which the next claim looks, where there are more lines than one can look at."""
        return self._stopped.get(selection)

    def stopped(self, selection: Selection, place: bytes | None) -> None:
        if place is None:
            self._stopped.pop(selection, None)
        else:
            bounded(self._stopped)
            self._stopped[selection] = place

    # -- how fast --------------------------------------------------------------------------------

    def took(self, seconds: float) -> None:
        """How long a claim's transaction took."""
        self._pace_s += (seconds - self._pace_s) / 4

    @property
    def settle_s(self) -> float:
        """How long to wait for what others are about to do."""
        return min(SETTLE_S_MAX, max(SETTLE_S, 2 * self._pace_s))

    # -- who else --------------------------------------------------------------------------------

    def absent(self, line: Line, version: int) -> bool:
        """Whether the store should leave its name at the line, again."""
        known = self._there.get(line)
        return known is None or not known <= version < known + RENEW

    def strange(self, line: Line) -> bool:
        """Whether the store has never left its name at the line, as far as it remembers."""
        return line not in self._there

    def came(self, line: Line, version: int) -> None:
        bounded(self._there)
        self._there[line] = version

    def crowd(self, line: Line) -> int:
        """How many claimed from the line when the store last looked."""
        return self._crowds.get(line, 1)

    def crowded(self, line: Line, count: int) -> None:
        if count > 1 or line in self._crowds:
            bounded(self._crowds)
            self._crowds[line] = count

    def known(self) -> list[Line]:
        """The lines at which the store has left its name."""
        return list(self._there)

    def busy(self, candidates: Iterable[Candidate]) -> bool:
        """Whether another claim of this store is about to take one of these."""
        with self._lock:
            return any(each.stamp in self._taken for each in candidates)

    def shut(self, lines: set[Line], seen: Iterable[Line]) -> list[Line]:
        """Which of the lines that a claim found without room were so too often to be looked at
        again; `seen` are all that it looked at.
        """
        for line in seen:
            if line not in lines:
                self._shut.pop(line, None)
        bounded(self._shut)
        often = []
        for line in lines:
            self._shut[line] = self._shut.get(line, 0) + 1
            if self._shut[line] >= SHUT_MAX:
                del self._shut[line]
                often.append(line)
        return often

    def reserve(self, candidates: Sequence[Candidate], most: int, version: int) -> list[Candidate]:
        """The first of these that no other claim of this store is about to take, or has taken
        since the version at which they were seen.
        """
        with self._lock:
            found = [
                each
                for each in candidates
                if each.stamp not in self._taken
                and not version < self._gone.get(each.stamp, 0) <= version + RESTORED
            ][:most]
            self._taken.update(each.stamp for each in found)
            return found

    def release(self, stamps: Iterable[bytes], version: int | None = None) -> None:
        """They are not about to be taken any more; or they are, from this version on."""
        with self._lock:
            self._taken.difference_update(stamps)
            if version is not None:
                if len(self._gone) >= GONE_MAX:
                    self._gone.clear()
                self._gone.update(dict.fromkeys(stamps, version))


def bounded(known: dict[Any, Any]) -> None:
    if len(known) >= PLACES_MAX:
        known.clear()


class Shares:
    """Which of several claimers a job falls to: each has many points of a circle, and a job falls
    to the next one. Who comes or goes changes the shares of a few jobs only, so that claimers who
    do not know of the same others yet still agree on most.
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
def shares(names: tuple[str, ...]) -> Shares:
    return Shares(names)


def shared(
    candidates: list[Candidate], me: str, claimers: list[str]
) -> tuple[list[Candidate], dict[str, list[Candidate]]]:
    """The candidates that fall to this claimer, and those that fall to others, by claimer."""
    others: dict[str, list[Candidate]] = {}
    if claimers == [me]:
        return candidates, others
    circle = shares(tuple(claimers))
    for each in candidates:
        others.setdefault(circle.owner(each.stamp), []).append(each)
    return others.pop(me, []), others


def _is_there(stamp: bytes, version: int) -> bool:
    """Whether who left this stamp at a line was there lately; not before a restore."""
    left = int.from_bytes(stamp[:8], "big")
    return version - PRESENT < left <= version + RESTORED


def is_gone(stamp: bytes, version: int) -> bool:
    """Whether who left this stamp at a line has not been there for long."""
    left = int.from_bytes(stamp[:8], "big")
    return left + 6 * PRESENT < version or left > version + RESTORED


def _claimers_key(step: Step, line: Line) -> bytes:
    return step.keys.all(Space.CLAIMERS, text(line[0]), text(line[1]))


def ask_claimers(step: Step, line: Line) -> None:
    step.ask_under(_claimers_key(step, line), CLAIMERS_MAX)


async def present(step: Step, turns: Turns, line: Line) -> list[str]:
    """Who has claimed from a line lately, in the order of their names; and this one."""
    prefix = _claimers_key(step, line)
    pairs = await step.under(prefix, CLAIMERS_MAX, snapshot=True)
    found = {
        texts(key[len(prefix) :], 1)[0] for key, value in pairs if _is_there(value, step.at.version)
    }
    turns.crowded(line, len(found | {turns.name}))
    return sorted(found | {turns.name})


async def claimers(step: Step, turns: Turns, line: Line) -> list[str]:
    """Who is present; and this one leaves its name there, and clears those that are gone."""
    prefix, version = _claimers_key(step, line), step.at.version
    for key, value in await step.under(prefix, CLAIMERS_MAX, snapshot=True):
        if is_gone(value, version):
            step.drop_if(key, value)
    there = await present(step, turns, line)
    if turns.absent(line, version):
        step.stamp(prefix + text(turns.name))
    return there


async def leave(step: Step, turns: Turns) -> None:
    """Takes the store's name away from the lines: it will not claim there any more."""
    for tenant, queue in turns.known():
        step.drop(step.keys.all(Space.CLAIMERS, text(tenant), text(queue), text(turns.name)))


async def announce(step: Step, turns: Turns, line: Line) -> int:
    """Leaves the store's name at a line before it first claims from it; gives the version."""
    prefix = step.keys.all(Space.CLAIMERS, text(line[0]), text(line[1]))
    step.stamp(prefix + text(turns.name))
    return step.at.version
