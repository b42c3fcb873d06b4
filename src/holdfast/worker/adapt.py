"""Adapts the concurrency of a worker between a minimum and a maximum, by the load of its process.

It decreases by fractions and increases in small steps, so that an overloaded worker backs off
quickly and recovers slowly. It is off unless `concurrency_min` is below `concurrency`.
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
"""Length of the sleep whose delay measures the lag of the event loop."""
LAG_BAD_S = 0.25
LAG_WELL_S = 0.05
SLOW_TIMES = 2.0
"""Handlers that take this many times longer than usual indicate too much concurrency."""
SLOW_LEAST_S = 0.05
"""A handler below this duration never counts as slow."""
MEMORY_NEAR = 0.9
"""The fraction of a limit above which the concurrency no longer grows."""
USUAL_PART = 0.05
"""The weight of one sample in the usual duration."""


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of the process at one moment."""

    floor: int
    ceiling: int
    concurrency: int
    running: int
    lag_s: float = 0.0
    """The lag of the event loop."""
    latency_s: float | None = None
    """Mean duration of handlers that ended since the last sample; None if none did."""
    usual_s: float | None = None
    """The usual duration of handlers."""
    memory_mb: float = 0.0
    memory_max_mb: int | None = None


class Decision(msgspec.Struct, frozen=True):
    """The new concurrency, and the reason as text."""

    concurrency: int
    why: str


def decide(signals: Signals) -> Decision:
    """Decides, the most serious signal first: memory, then the loop, then handlers, then growth."""
    now, most = signals.concurrency, signals.memory_max_mb
    if most is not None and signals.memory_mb >= most:
        return _bounded(signals, now // 2, f"memory {signals.memory_mb:.0f} of {most} MB")
    if signals.lag_s >= LAG_BAD_S:
        return _bounded(signals, now * 3 // 4, f"the event loop is {signals.lag_s:.2f} s late")
    if (slow := _slow(signals)) is not None:
        return _bounded(signals, min(now - 1, now * 9 // 10), slow)
    if now >= signals.ceiling:
        return _bounded(signals, now, "at its maximum")
    if most is not None and signals.memory_mb >= most * MEMORY_NEAR:
        return _bounded(
            signals, now, f"memory {signals.memory_mb:.0f} of {most} MB, near the limit"
        )
    if signals.lag_s >= LAG_WELL_S:
        return _bounded(
            signals, now, f"the event loop is {signals.lag_s:.2f} s late, near its limit"
        )
    if signals.running < now:
        return _bounded(signals, now, "not all slots are busy")
    return _bounded(
        signals, now + max(1, now // 10), "all slots are busy, and the process has room"
    )


def _slow(signals: Signals) -> str | None:
    took, usual = signals.latency_s, signals.usual_s
    if took is None or usual is None or took < SLOW_LEAST_S or took < usual * SLOW_TIMES:
        return None
    return f"handlers take {took:.2f} s, usually {usual:.2f} s"


def _bounded(signals: Signals, wanted: int, why: str) -> Decision:
    return Decision(max(signals.floor, min(signals.ceiling, wanted)), why)


class Adapt:
    """The duty that samples. It runs on the worker's own loop, whose lag it measures."""

    name = "adapt"

    def __init__(self, worker: Worker, config: Config) -> None:
        self._worker = worker
        self._config = config
        self._took = 0.0
        self._ended = 0
        self._usual: float | None = None

    @property
    def on(self) -> bool:
        """Whether the worker adapts."""
        return self._config.floor < self._config.concurrency

    def ended(self, took_s: float) -> None:
        """Records the duration of a handler that has ended."""
        self._took += took_s
        self._ended += 1

    async def turn(self) -> float:
        """Samples, decides, and sets the concurrency of the worker."""
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
    """The memory use of the process now, or its peak where the current use is not available."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
