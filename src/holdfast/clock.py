"""Time as the core knows it: whole microseconds since 1970, from one clock, the store's."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Protocol

Micros = int
"""An instant or a length in microseconds. Integers, so that comparing never rounds."""

SECOND: Micros = 1_000_000


class Clock(Protocol):
    """What a store asks for the time; `holdfast.testing.ManualClock` in tests."""

    def now(self) -> Micros: ...


class SystemClock:
    """The host's clock, held still while it is set back: time never runs backwards here."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> Micros:
        self._last = max(self._last, time.time_ns() // 1000)
        return self._last


def micros(seconds: float) -> Micros:
    """Seconds as microseconds, rounded up: a job never runs early."""
    return math.ceil(seconds * SECOND)


def seconds(length: Micros) -> float:
    """A length in seconds, for timers and for people."""
    return length / SECOND


def moment(at: Micros) -> datetime:
    """The instant as a UTC datetime, for people."""
    return datetime.fromtimestamp(at / SECOND, tz=UTC)


def instant(at: datetime) -> Micros:
    """A datetime with a zone as microseconds. The caller has refused naive ones."""
    return round(at.timestamp() * SECOND)
