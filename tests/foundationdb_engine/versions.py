"""Versions: a million a second of a clock, given to commits alone or in batches, and to readers."""

from __future__ import annotations

from dataclasses import dataclass

from tests.foundationdb_engine.errors import FUTURE_VERSION, TOO_OLD, FDBError
from tests.foundationdb_engine.mutations import stamp

from holdfast.core.clock import Clock

LIFE_VERSIONS = 5_000_000
"""How old a read version may be for reads and commits."""
IDLE_STEP_VERSIONS = 2_000_000
"""An idle cluster commits nothing this often, which moves its read version."""
RECOVERY_VERSIONS = 100_000_000
"""What a recovery skips."""
BATCH_VERSIONS = 5_000
"""How long a batch of commits gathers."""
BATCH_MAX = 165
"""The most transactions seen in one version."""
START_VERSION = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a commit stands among all."""

    version: int
    order: int

    @property
    def stamp(self) -> bytes:
        return stamp(self.version, self.order)


class Versions:
    """The one line that all commits stand in. Whoever calls holds the engine's lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shift = START_VERSION - clock.now()
        self._version = START_VERSION
        """The newest commit, an empty one of an idle cluster too."""
        self._order = 0
        self._gathering = False
        """Whether another commit may join the newest version: nobody heard of it yet."""

    def _of_clock(self) -> int:
        # A million versions a second: one for each microsecond of the clock.
        return self._clock.now() + self._shift

    def newest(self) -> int:
        """The read version: the newest commit, or what an idle cluster has stepped to."""
        idle = self._of_clock() - self._version
        if idle >= IDLE_STEP_VERSIONS:
            self._version += idle // IDLE_STEP_VERSIONS * IDLE_STEP_VERSIONS
            self._gathering = False
        return self._version

    def next(self) -> int:
        """What a commit of its own would get now."""
        return max(self._version + 1, self._of_clock())

    def place(self) -> Committed:
        """The place of a commit: in the batch that gathers, or in a new version."""
        young = self._of_clock() - self._version < BATCH_VERSIONS
        if self._gathering and young and self._order + 1 < BATCH_MAX:
            self._order += 1
        else:
            self._version, self._order = self.next(), 0
        self._gathering = True
        return Committed(self._version, self._order)

    def close(self, version: int) -> None:
        """Somebody knows of the version: no further commit may share it."""
        if version >= self._version:
            self._gathering = False

    def jump(self, versions: int) -> int:
        """A recovery: on from so much further."""
        self._shift += versions
        self._version, self._order = self.next(), 0
        self._gathering = False
        return self._version

    def check(self, version: int, now: int) -> None:
        """Whether the version may be used: given out already, and young enough at the other."""
        if version > self.newest():
            raise FDBError(FUTURE_VERSION)
        if version < now - LIFE_VERSIONS:
            raise FDBError(TOO_OLD)
