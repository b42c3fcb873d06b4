"""The data of the charts: the last minutes, one number per second.

Rates come from the event log, by the instants of its events, so that a new page also shows the
minutes before it was opened. Amounts come from the counts at each poll.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from holdfast.core.clock import SECOND, Micros
from holdfast.core.job import Event, EventKind

SPAN_S = 300
"""How far back the charts go."""
MEAN_S = 5
"""Seconds over which rates are smoothed."""
BRIDGE_S = 10
"""Seconds without a poll that a line bridges."""
RECENT_MAX = 6

KINDS = {
    EventKind.ENQUEUED: "arrived",
    EventKind.REPLAYED: "arrived",
    EventKind.COMPLETED: "done",
    EventKind.RETRYING: "retried",
    EventKind.FAILED: "failed",
}


class Level(msgspec.Struct, frozen=True):
    """The amounts at one poll."""

    waiting: int
    running: int
    oldest_s: float


class Samples:
    """The samples: a few numbers for each of the last seconds."""

    def __init__(self) -> None:
        self._happened: dict[str, dict[int, float]] = {name: {} for name in KINDS.values()}
        self._levels: dict[int, Level] = {}
        self.recent: deque[Event] = deque(maxlen=RECENT_MAX)
        """The latest jobs that failed for good."""

    def happened(self, events: Iterable[Event], scale: float = 1.0) -> None:
        """Adds events. `scale` compensates for events that were skipped."""
        for event in events:
            name = KINDS.get(event.kind)
            if name is not None:
                by_second = self._happened[name]
                second = event.at // SECOND
                by_second[second] = by_second.get(second, 0.0) + scale
            if event.kind is EventKind.FAILED:
                self.recent.appendleft(event)

    def stands(self, now: Micros, level: Level) -> None:
        """Adds the amounts of a poll."""
        self._levels[now // SECOND] = level
        self._forget(now // SECOND)

    def _forget(self, second: int) -> None:
        oldest = second - SPAN_S - 2 * MEAN_S
        self._levels = {at: level for at, level in self._levels.items() if at >= oldest}
        for name, known in self._happened.items():
            self._happened[name] = {at: count for at, count in known.items() if at >= oldest}

    def rate(self, name: str, now: Micros) -> list[float | None]:
        """The smoothed number per second, for each of the last completed seconds."""
        known, end = self._happened[name], now // SECOND
        total = sum(known.get(end - SPAN_S - back, 0.0) for back in range(1, MEAN_S + 1))
        found: list[float | None] = []
        for second in range(end - SPAN_S, end):
            total += known.get(second, 0.0) - known.get(second - MEAN_S, 0.0)
            found.append(max(0.0, total) / MEAN_S)
        return found

    def total(self, name: str, now: Micros, length_s: int = SPAN_S) -> float:
        """The number in the last seconds."""
        first = now // SECOND - length_s
        return sum(count for at, count in self._happened[name].items() if at >= first)

    def level(self, field: str, now: Micros) -> list[float | None]:
        """The amounts; None without a poll. Short gaps keep the last number."""
        found: list[float | None] = []
        last, seen = None, 0
        end = now // SECOND
        for second in range(end - SPAN_S + 1, end + 1):
            level = self._levels.get(second)
            if level is not None:
                last, seen = float(getattr(level, field)), second
            found.append(last if last is not None and second - seen <= BRIDGE_S else None)
        return found
