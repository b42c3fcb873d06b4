"""What `/metrics` shows: requests by route and status, who waits, and how the queues stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from holdfast.job import State
from holdfast.load import load
from holdfast.scopes import tallies

if TYPE_CHECKING:
    from holdfast.service.service import Service

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
QUEUES_MAX = 500
"""Lines that have figures of their own; the busiest ones."""


class Metrics:
    """Of one process. Figures of the queues are read from the store when asked for."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "holdfast_requests_total", "Requests.", ("route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "holdfast_request_seconds",
            "How long they took.",
            ("route",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._waiting = Gauge(
            "holdfast_waiting", "Calls that wait for work or results.", registry=self._registry
        )
        self._streams = Gauge("holdfast_streams", "Readers of events.", registry=self._registry)
        self._jobs = Gauge(
            "holdfast_jobs", "Jobs by state.", ("queue", "state"), registry=self._registry
        )
        self._oldest = Gauge(
            "holdfast_oldest_wait_seconds", "The longest wait.", registry=self._registry
        )
        self._workers = Gauge("holdfast_workers", "Workers present.", registry=self._registry)
        self._bound: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def served(self, route: str, status: int, seconds: float) -> None:
        bound = self._bound.get((route, status))
        if bound is None:
            counter = self._requests.labels(route, str(status))
            bound = self._bound[route, status] = counter, self._seconds.labels(route)
        bound[0].inc()
        bound[1].observe(seconds)

    async def text(self, service: Service) -> bytes:
        """All of it, as Prometheus reads it. Counts of a queue are over all tenants."""
        self._waiting.set(service.waiters)
        self._streams.set(service.streams)
        sums: dict[str, dict[State, int]] = {}
        async for tally in tallies(service.store, None):
            mine = sums.setdefault(tally.queue, {})
            for state, number in tally.counts.items():
                mine[state] = mine.get(state, 0) + number
        self._jobs.clear()
        busiest = sorted(sums.items(), key=lambda pair: -sum(pair[1].values()))[:QUEUES_MAX]
        for queue, counts in busiest:
            for state, number in counts.items():
                self._jobs.labels(queue, state.value).set(number)
        found = await load(service.store)
        self._oldest.set(found.oldest_wait_s)
        self._workers.set(found.workers)
        return generate_latest(self._registry)
