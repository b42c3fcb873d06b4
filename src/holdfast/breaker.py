"""A circuit breaker: a service that fails again and again is left alone for a while.

closed   calls go through; so many failures in a row open it
open     nobody goes through until its time is over
trial    one goes through: its success closes it, its failure opens it again
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Breaker:
    """Of one service in one process; any thread may ask."""

    def __init__(
        self, failures: int, rest_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = failures
        self._rest_s = rest_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_until = 0.0
        """While it is open: when the next trial may go."""

    def admit(self) -> float:
        """0 when a call may go now, else in how many seconds one may ask again."""
        if self._failures < self._most:
            return 0.0
        with self._lock:
            if self._failures < self._most:
                return 0.0
            now = self._clock()
            if now < self._closed_until:
                return self._closed_until - now
            # A trial that never reports, because its caller was cancelled, is followed by another.
            self._closed_until = now + self._rest_s
            return 0.0

    @property
    def resting_s(self) -> float:
        """How long nobody goes through; 0 if somebody may. Unlike `admit` it begins no trial."""
        if self._failures < self._most:
            return 0.0
        with self._lock:
            return max(0.0, self._closed_until - self._clock())

    def worked(self) -> None:
        if self._failures:
            with self._lock:
                self._failures = 0

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= self._most:
                self._closed_until = self._clock() + self._rest_s

    @property
    def failures(self) -> int:
        """In a row, up to now."""
        return self._failures
