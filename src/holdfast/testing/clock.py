"""A clock that tests move by hand, so that no test has to sleep."""

from __future__ import annotations

import threading

from holdfast.core.clock import Micros, micros

START: Micros = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z, the start of a new ManualClock."""


class ManualClock:
    """A `Clock` that tests move. Any thread may read and move it; it never runs backwards.

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
        """Advances the time by seconds, rounded up to whole microseconds. Returns the instant."""
        length = micros(seconds)
        if length < 0:
            raise ValueError(f"time does not run backwards: advance({seconds})")
        with self._lock:
            self._now += length
            return self._now

    def set(self, at: Micros) -> Micros:
        """Advances the time to this instant. Returns it."""
        with self._lock:
            if at < self._now:
                raise ValueError(f"time does not run backwards: set({at}) at {self._now}")
            self._now = at
            return at

    def __repr__(self) -> str:
        return f"ManualClock({self._now})"
