"""What a run found, as it is written to JSON and read again. Rates are jobs per second."""

from __future__ import annotations

from statistics import median
from typing import Any

import msgspec

from bench.mix.figures import Mix
from bench.rules import Drained
from bench.stores import Cost

BULK_API = "bulk API"
"""The harness's word for a library that can enqueue many in one call."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Waits while jobs come steadily, at half of what the store can take and give."""

    per_s: float
    p50_ms: float
    p99_ms: float


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """A drain of so many queued jobs."""

    queued: int
    per_s: float
    worker_mb: float
    """The most that the worker's process held."""
    engine_mb: float
    """What the queued jobs take in the engine; in the process itself for memory."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    processes: int
    per_s: float
    worker_us: float
    """CPU of all workers for each job."""


class Figures(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Of one store. Lists have one entry for each round; their median counts."""

    store: str
    version: str = ""
    settings: str = ""
    single: list[float] = []
    concurrent: list[float] = []
    bulk: list[float] = []
    drain: list[float] = []
    worker_us: list[float] = []
    engine_us: list[float] = []
    pickup_p50_ms: list[float] = []
    pickup_p99_ms: list[float] = []
    load: list[Load] = []
    depth: list[Depth] = []
    growth: list[Cost] = []
    """A claim of 100 with few and many jobs besides, in pairs."""
    rules: list[Drained] = []
    scaling: list[Scale] = []
    floor: list[float] = []
    """Decode and one task per job on the same loop, without a queue."""
    failed: dict[str, str] = {}
    """Measures that gave nothing, and why."""


class Peer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the harness of the peers found of one system; Holdfast is among them."""

    name: str
    engine: str
    version: str = ""
    config: str = ""
    single: list[float] = []
    concurrent: list[float] = []
    bulk: list[float] = []
    how: str = ""
    """How it enqueues in bulk."""
    drain: list[float] = []
    pinned: list[float] = []
    """The drain with its worker on one core: threads of Python often gain by it."""
    worker_us: list[float] = []
    engine_us: list[float] = []
    pickup_p50_ms: list[float] = []
    pickup_p99_ms: list[float] = []
    commits: list[float] = []
    """Of one row, a second, just before each drain: PostgreSQL's fall to a tenth on busy cores."""
    not_run: str = ""

    @property
    def best_drain(self) -> float | None:
        return most(self.drain, self.pinned)

    @property
    def best_concurrent(self) -> float | None:
        """A client that cannot do several at once does them one after the other."""
        return most(self.concurrent, self.single, [] if self.how == BULK_API else self.bulk)


class Peers(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All that the harness found in this run."""

    rows: list[Peer] = []
    ceilings: dict[str, list[float]] = {}

    def row(self, name: str) -> Peer | None:
        return next((one for one in self.rows if one.name == name), None)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One ratio that is asked for."""

    what: str
    value: float | None
    """None: the run has no figure for it, which is not the same as leaving it out."""
    target: float
    most: bool = False
    """Whether the target is the most that it may be, and not the least."""
    against: str = ""

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value <= self.target if self.most else self.value >= self.target


class Run(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All of one run."""

    made: dict[str, str]
    """When, where and with what."""
    sizes: dict[str, Any] = {}
    stores: list[Figures] = []
    peers: Peers | None = None
    mix: Mix | None = None
    checks: list[Check] = []

    def store(self, name: str) -> Figures | None:
        return next((one for one in self.stores if one.store == name), None)


def middle(values: list[float]) -> float | None:
    """The median, if anything was measured."""
    return median(values) if values else None


def most(*columns: list[float]) -> float | None:
    """The largest of the medians, if anything was measured."""
    return max((median(values) for values in columns if values), default=None)


def quantile(values: list[float], part: float) -> float:
    """The value below which this part of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
