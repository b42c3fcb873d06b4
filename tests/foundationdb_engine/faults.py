"""Faults of a cluster, by a seed: what happens in one run happens in the next with the same seed.

    engine = Engine(clock, faults=Faults(seed=7, conflict=0.05, unknown=0.02, delay=0.5))

Each rate is the share that is hit, between 0 and 1: of the commits, of the requests for a version,
and of the transactions that read, however many reads they have. One generator is drawn from in the
order of the calls, so that a run in one event loop repeats itself exactly; with several threads the
order is theirs.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal

from tests.foundationdb_engine.errors import (
    COMMIT_UNKNOWN,
    CONFLICT,
    FUTURE_VERSION,
    TIMED_OUT,
    TOO_OLD,
)

Place = Literal["version", "read", "commit"]
"""Where a fault hits: a request for a read version, a read, a commit."""

Fate = Literal["lost", "applied", "late"]
"""What became of a commit whose caller got an error: nothing; it was done; it is done later."""


READS_MAX = 8
"""A transaction whose reads are to fail has fewer good ones than this."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error for the caller, and what happens to a commit all the same."""

    code: int
    fate: Fate = "lost"


class Faults:
    """Draws faults. The engine asks under its lock, so one object belongs to one engine."""

    def __init__(
        self,
        seed: int = 0,
        *,
        conflict: float = 0.0,
        unknown: float = 0.0,
        too_old: float = 0.0,
        future: float = 0.0,
        timeout: float = 0.0,
        recovery: float = 0.0,
        delay: float = 0.0,
        turns_max: int = 3,
    ) -> None:
        self.seed = seed
        self.recovery = recovery
        self.delay = delay
        self.turns_max = turns_max
        self.told: Counter[int] = Counter()
        """How many of each code were given so far."""
        self._random = random.Random(seed)
        self._rates: dict[Place, list[tuple[float, int]]] = {
            "version": [(timeout, TIMED_OUT)],
            "read": [(too_old, TOO_OLD), (future, FUTURE_VERSION), (timeout, TIMED_OUT)],
            "commit": [
                (conflict, CONFLICT),
                (unknown, COMMIT_UNKNOWN),
                (too_old, TOO_OLD),
                (timeout, TIMED_OUT),
            ],
        }
        self._planned: dict[Place, deque[Fault | None]] = {}

    @classmethod
    def storm(cls, seed: int) -> Faults:
        """Some of everything, in a mixture that the seed decides."""
        draw = random.Random(f"storm {seed}")
        return cls(
            seed,
            conflict=draw.choice((0.0, 0.02, 0.1)),
            unknown=draw.choice((0.0, 0.02, 0.1)),
            too_old=draw.choice((0.0, 0.01, 0.03)),
            future=draw.choice((0.0, 0.01)),
            timeout=draw.choice((0.0, 0.01, 0.03)),
            recovery=draw.choice((0.0, 0.0, 0.005)),
            delay=draw.choice((0.0, 0.3, 0.8)),
        )

    def plan(
        self, place: Place, code: int, *, fate: Fate = "lost", times: int = 1, after: int = 0
    ) -> None:
        """The next calls there fail, after as many that pass."""
        planned = self._planned.setdefault(place, deque())
        planned.extend([None] * after)
        planned.extend([Fault(code, fate)] * times)

    def heal(self) -> None:
        """No faults any more, no delays."""
        self._planned.clear()
        self._rates = {"version": [], "read": [], "commit": []}
        self.recovery = self.delay = 0.0

    # -- asked by the engine ---------------------------------------------------------------------

    def draw(self, place: Place) -> Fault | None:
        """The fault of this call, if it has one."""
        planned = self._planned.get(place)
        if planned:
            fault = planned.popleft()
        else:
            fault = self._by_chance(place) if place != "read" else None
        if fault is not None:
            self.told[fault.code] += 1
        return fault

    def doom(self) -> tuple[int, int] | None:
        """For a transaction that begins to read: how many go well, and the code of the rest."""
        fault = self._by_chance("read")
        return None if fault is None else (self._random.randrange(READS_MAX), fault.code)

    def _by_chance(self, place: Place) -> Fault | None:
        rates = self._rates[place]
        if not any(rate for rate, _ in rates):
            return None
        left = self._random.random()
        for rate, code in rates:
            if left < rate:
                return Fault(code, self._fate(place, code))
            left -= rate
        return None

    def _fate(self, place: Place, code: int) -> Fate:
        """1021 is told when the commit is settled, one way or the other; 1031 settles nothing."""
        if place != "commit" or code not in (COMMIT_UNKNOWN, TIMED_OUT):
            return "lost"
        fates: tuple[Fate, ...] = ("lost", "applied")
        return self._random.choice(fates if code == COMMIT_UNKNOWN else (*fates, "late"))

    def turns(self) -> int:
        """How many turns of its loop this answer takes."""
        if self.delay == 0.0 or self._random.random() >= self.delay:
            return 0
        return self._random.randint(1, self.turns_max)

    def early(self) -> bool:
        """Whether a delayed call is done before its delay, or after it."""
        return self._random.random() < 0.5

    def recovers(self) -> bool:
        """Whether the cluster recovers now, with a jump of versions."""
        return self.recovery > 0.0 and self._random.random() < self.recovery
