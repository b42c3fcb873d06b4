"""A clock that stands still until told: time for tests that never sleep."""

from __future__ import annotations

import threading

from holdfast.clock import Micros, micros

START: Micros = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z, where a new ManualClock stands."""


class ManualClock:
    """Satisfies `holdfast.clock.Clock`. Any thread may read and move it; it never runs backwards.

    >>> clock = ManualClock()
    >>> store = open_store("memory://", clock)
    >>> clock.advance(60)       # every lease of a minute has expired now
    """

    def __init__(self, at: Micros = START) -> None:
        self._lock = threading.Lock()
        self._now = at

    def now(self) -> Micros:
        return self._now

    def advance(self, seconds: float) -> Micros:
        """Moves on by this many seconds, rounded up to whole microseconds; returns the instant."""
        length = micros(seconds)
        if length < 0:
            raise ValueError(f"time does not run backwards: advance({seconds})")
        with self._lock:
            self._now += length
            return self._now

    def set(self, at: Micros) -> Micros:
        """Moves on to this instant; returns it."""
        with self._lock:
            if at < self._now:
                raise ValueError(f"time does not run backwards: set({at}) at {self._now}")
            self._now = at
            return at

    def __repr__(self) -> str:
        return f"ManualClock({self._now})"
