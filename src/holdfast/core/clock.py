"""Time: whole microseconds since 1970, from the clock of the store."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Protocol

Micros = int
"""An instant or a duration in microseconds. Integers, so that comparisons are exact."""

SECOND: Micros = 1_000_000


class Clock(Protocol):
    """The clock of a store. Tests use `holdfast.testing.ManualClock`."""

    def now(self) -> Micros: ...


class SystemClock:
    """The host's clock, which never runs backwards: it stands still if the host's is set back."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> Micros:
        self._last = max(self._last, time.time_ns() // 1000)
        return self._last


def micros(seconds: float) -> Micros:
    """Seconds as microseconds, rounded up: a job never runs early."""
    return math.ceil(seconds * SECOND)


def seconds(length: Micros) -> float:
    """A duration in seconds, for timers and for people."""
    return length / SECOND


def moment(at: Micros) -> datetime:
    """The instant as a UTC datetime, for people."""
    return datetime.fromtimestamp(at / SECOND, tz=UTC)


def instant(at: datetime) -> Micros:
    """A datetime with a time zone as microseconds. The caller has refused naive datetimes."""
    return round(at.timestamp() * SECOND)
