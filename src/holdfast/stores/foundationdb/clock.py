"""When has a lease lapsed? The hybrid rule of two clocks (P8).

A store that was given a clock goes by it alone. Without one, two clocks are asked, for each can be
wrong in its own way: the wall clocks of two hosts may differ (by 30 s, we allow), and the cluster's
version, which grows by 1,000,000 a second on every host alike, jumps by about 100 s when the
cluster recovers, and stands still for up to 2.1 s while nothing is written.

    version deadline = the claim's version + lease in seconds x 1,000,000
    wall deadline    = the claimer's wall clock + lease

    A lease has lapsed when the version deadline has passed, and either
      a) this process has witnessed, by its own monotonic clock, that the time between was real, or
      b) the wall clock is past the wall deadline + grace (60 s = 2 x 30 s).

Witness: with every transaction a process notes the version and its monotonic clock. Where versions
grew by more than the time that passed (and the lag that was owed), the rest is a jump. The age of a
lease is the difference of versions, less all jumps that this process saw since, so a recovery makes
nobody's lease old, and no herd steals. What a process cannot vouch for, because it is younger than
the lease, it does not count: it waits until it has seen the length of the lease pass, or b.
While the version stands still the monotonic clock goes on from it (ticks): the time since the
version was first seen has surely passed too. But it is older than that: a read version is that of
the last commit. So a lease counts from where the version would be by now (fresh), which the
freshest versions of the last seconds tell. Counted from the version it would end before the time
that its worker is told.

Each instant is judged by what had been seen up to it (`Observed`). An answer from before a recovery
that is noted after a later one looks like a restore: the process begins anew, and forgets its
jumps. Instants after the recovery that are still in use need them, or they would find leases old.

After a restore the cluster's version may lie behind that of a claim: such a lease is none of this
clock's, and the wall clock with grace alone ends it. Upkeep puts it where it will be found then
(`maintenance_sweep.py`).

So a dead worker's job is taken as soon as its lease is over, by any process that has been there for
as long; and nothing is taken early, whatever the clocks of others say. Fences guard every ack
anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from holdfast.core.clock import SECOND, Clock, Micros, SystemClock

LAG_MAX = 5 * SECOND
"""Versions that an idle cluster may owe; measured 2.1 s."""
RESTORED = 60 * SECOND
"""Versions that go back by more than this are another cluster's: it was restored."""
DRIFT = 100
"""One part in so many that versions may run faster than time."""
FRESH_S = 10.0
"""How long the freshest version seen tells where the version would be; then it drifts."""
JUMPS_MAX = 64
"""Jumps that are remembered. When one is forgotten, the process counts as born with it."""


class Jump(NamedTuple):
    """More versions than there was time for them."""

    at: int
    """The version after it."""
    by: int


class Observed(NamedTuple):
    """What a process had seen of the cluster's version at one instant. Never changes."""

    ticks: int
    born: int
    jumps: tuple[Jump, ...]
    fresh: int
    """Where the version would be if it never stood still; not less than the ticks."""

    def age(self, since: int) -> Micros:
        """How much time had surely passed since an instant of the cluster's clock."""
        begun = max(since, self.born)
        jumped = sum(jump.by for jump in self.jumps if begun < jump.at)
        return max(0, self.ticks - begun - jumped)


class Witness:
    """What one process has seen of the cluster's version. Any thread may call it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._born: int | None = None
        self._version = 0
        self._at = 0.0
        self._owed = 0
        self._jumps: tuple[Jump, ...] = ()
        """In order."""
        self._leads: tuple[int, int] = (0, 0)
        """By how much versions were ahead of the monotonic clock at most: in this period of FRESH_S
        and in the one before.
        """
        self._lead_s = 0.0
        """When this period began."""

    def note(self, version: int) -> Observed:
        """Records that a transaction read at this version now. The ticks are never less than the
        version.
        """
        with self._lock:
            now = self._monotonic()
            if self._born is None or version < self._version - RESTORED:
                self._born, self._version, self._at = version, version, now
                self._owed, self._jumps = 0, ()
                self._forget_leads()
            elif version > self._version:
                self._grow(version, now)
            self._lead(version, now)
            passed = min(LAG_MAX, int((now - self._at) * SECOND))
            ticks = self._version + passed
            fresh = min(int(now * SECOND) + max(self._leads), ticks + LAG_MAX)
            return Observed(ticks, self._born, self._jumps, max(ticks, fresh))

    def _forget_leads(self) -> None:
        self._leads = (-(2**63), -(2**63))

    def _lead(self, version: int, now: float) -> None:
        """Notes by how much the version is ahead of the monotonic clock."""
        if now - self._lead_s >= FRESH_S:
            self._leads, self._lead_s = (-(2**63), self._leads[0]), now
        this, before = self._leads
        self._leads = max(this, version - int(now * SECOND)), before

    def _grow(self, version: int, now: float) -> None:
        passed = int((now - self._at) * SECOND)
        allowed = passed + passed // DRIFT + self._owed
        grown = version - self._version
        jump = grown - allowed if grown - allowed > LAG_MAX else 0
        if jump:
            self._jumps = (*self._jumps, Jump(version, jump))
            self._forget_leads()
        self._owed = min(LAG_MAX, max(0, allowed - grown + jump))
        self._version, self._at = version, now
        if len(self._jumps) > JUMPS_MAX:
            self._born, self._jumps = self._jumps[0].at, self._jumps[1:]


class Instant:
    """The instant of one transaction, by whichever clocks count."""

    __slots__ = ("_grace", "_observed", "horizon", "now", "version")

    def __init__(
        self, now: Micros, version: int, witness: Witness | None = None, grace: Micros = 0
    ) -> None:
        self.now = now
        self.version = version
        self._observed = None if witness is None else witness.note(version)
        self._grace = grace
        self.horizon = now if self._observed is None else self._observed.ticks
        """Now, by the clock of the index of leases: leases after it have not lapsed."""

    def deadline(self, lease_us: Micros) -> int:
        """The deadline of a lease of this length in the index of leases."""
        begins = self.horizon if self._observed is None else self._observed.fresh
        return begins + lease_us

    def lapsed(self, until: Micros, deadline: int, lease_us: Micros) -> bool:
        """Whether a lease is over: by its end on the wall clock, its deadline in the index, and its
        length.
        """
        if self._observed is None:
            return until <= self.now
        if self.ahead(deadline, lease_us):
            return until + self._grace <= self.now
        if deadline > self.horizon:
            return False
        if until + self._grace <= self.now:
            return True
        return self._observed.age(deadline - lease_us) >= lease_us

    def ahead(self, deadline: int, lease_us: Micros) -> bool:
        """Whether a lease was taken at a version that the cluster has not reached: before a
        restore. Processes may differ by LAG_MAX.
        """
        return self._observed is not None and deadline - lease_us > self.horizon + LAG_MAX

    def restored_deadline(self, until: Micros) -> int:
        """The deadline in the index of leases at which the wall clock ends such a lease."""
        return self.horizon + max(0, until + self._grace - self.now)

    def judged(self, until: Micros | None, deadline: int, lease_us: Micros) -> Micros:
        """An instant at which `lifecycle.refusal` finds this lease valid or expired, as it is."""
        if self._observed is None or until is None:
            return self.now
        return until if self.lapsed(until, deadline, lease_us) else min(self.now, until - 1)


class Time:
    """Makes the instants of one store."""

    def __init__(self, clock: Clock | None, grace_us: Micros) -> None:
        self._clock: Clock = clock or SystemClock()
        self._witness = Witness() if clock is None else None
        self._grace = grace_us

    def at(self, version: int) -> Instant:
        return Instant(self._clock.now(), version, self._witness, self._grace)
