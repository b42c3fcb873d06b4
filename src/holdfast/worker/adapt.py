"""How many jobs at a time? Between a floor and a ceiling, by what the process can bear.

Down by parts, up by steps: a worker that is in trouble gives way quickly, and feels its way back.
Off unless `concurrency_min` is below `concurrency`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.config import Config

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

SAMPLE_S = 1.0
PROBE_S = 0.05
"""How long a sleep is whose lateness tells the lag of the loop."""
LAG_BAD_S = 0.25
LAG_WELL_S = 0.05
SLOW_TIMES = 2.0
"""Handlers that take so many times as long as usual are in each other's way."""
SLOW_LEAST_S = 0.05
"""Below this nobody calls a handler slow."""
MEMORY_NEAR = 0.9
"""The part of the limit from which on the concurrency no longer grows."""
USUAL_PART = 0.05
"""How much one sample moves what is usual."""


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the process at one moment."""

    floor: int
    ceiling: int
    concurrency: int
    running: int
    lag_s: float = 0.0
    """How late the event loop is."""
    latency_s: float | None = None
    """How long handlers took that ended since the last look; None when none did."""
    usual_s: float | None = None
    """How long they take as a rule."""
    memory_mb: float = 0.0
    memory_max_mb: int | None = None


class Decision(msgspec.Struct, frozen=True):
    """The concurrency from now on, and why, in words."""

    concurrency: int
    why: str


def decide(signals: Signals) -> Decision:
    """The worst trouble first: memory, then the loop, then handlers; room to grow last."""
    now, most = signals.concurrency, signals.memory_max_mb
    if most is not None and signals.memory_mb >= most:
        return _bounded(signals, now // 2, f"memory {signals.memory_mb:.0f} of {most} MB")
    if signals.lag_s >= LAG_BAD_S:
        return _bounded(signals, now * 3 // 4, f"the event loop is {signals.lag_s:.2f} s late")
    if (slow := _slow(signals)) is not None:
        return _bounded(signals, min(now - 1, now * 9 // 10), slow)
    if now >= signals.ceiling:
        return _bounded(signals, now, "at its ceiling")
    if most is not None and signals.memory_mb >= most * MEMORY_NEAR:
        return _bounded(signals, now, f"memory {signals.memory_mb:.0f} of {most} MB, near it")
    if signals.lag_s >= LAG_WELL_S:
        return _bounded(signals, now, f"the event loop is {signals.lag_s:.2f} s late, not more")
    if signals.running < now:
        return _bounded(signals, now, "not all slots are busy")
    return _bounded(signals, now + max(1, now // 10), "all slots are busy, and there is room")


def _slow(signals: Signals) -> str | None:
    took, usual = signals.latency_s, signals.usual_s
    if took is None or usual is None or took < SLOW_LEAST_S or took < usual * SLOW_TIMES:
        return None
    return f"handlers take {took:.2f} s, as a rule {usual:.2f} s"


def _bounded(signals: Signals, wanted: int, why: str) -> Decision:
    return Decision(max(signals.floor, min(signals.ceiling, wanted)), why)


class Adapt:
    """The duty that samples, on the worker's own loop: the lag of another's tells nothing."""

    name = "adapt"

    def __init__(self, worker: Worker, config: Config) -> None:
        self._worker = worker
        self._config = config
        self._took = 0.0
        self._ended = 0
        self._usual: float | None = None

    @property
    def on(self) -> bool:
        """Whether there is anything to adapt."""
        return self._config.floor < self._config.concurrency

    def ended(self, took_s: float) -> None:
        """A handler has ended."""
        self._took += took_s
        self._ended += 1

    async def turn(self) -> float:
        """Looks, decides, and tells the worker."""
        started = time.monotonic()
        await asyncio.sleep(PROBE_S)
        lag = max(0.0, time.monotonic() - started - PROBE_S)
        self._worker.adapt(decide(self._signals(lag)))
        return SAMPLE_S

    def _signals(self, lag: float) -> Signals:
        latency = self._took / self._ended if self._ended else None
        self._took, self._ended = 0.0, 0
        usual = self._usual
        if latency is not None:
            self._usual = latency if usual is None else usual + (latency - usual) * USUAL_PART
        most = self._config.memory_max_mb
        return Signals(
            floor=self._config.floor,
            ceiling=self._config.concurrency,
            concurrency=self._worker.concurrency,
            running=self._worker.running,
            lag_s=lag,
            latency_s=latency,
            usual_s=usual,
            memory_mb=0.0 if most is None else memory_mb(),
            memory_max_mb=most,
        )


def memory_mb() -> float:
    """What the process has in memory now; where that cannot be told, the most it ever had."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
