"""The metrics of `/metrics`: requests by route and status, waiting calls, and the queues."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.core.job import State
from holdfast.listings import tallies
from holdfast.load import load

if TYPE_CHECKING:
    from holdfast.service.service import Service

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
QUEUES_MAX = 500
"""How many queues, the busiest ones, have their own figures."""


class _Served:
    """The requests of one route that ended with one status."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0


class Requests(Collector):
    """Counts requests in plain numbers: a histogram of the client library takes 3 us for each."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, int], _Served] = {}

    def served(self, route: str, status: int, seconds: float) -> None:
        found = self._served.get((route, status))
        if found is None:
            found = self._served[route, status] = _Served()
        found.counts[bisect_left(BUCKETS, seconds)] += 1
        found.seconds += seconds

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "holdfast_request_seconds", "Duration of requests.", labels=("route", "status")
        )
        for (route, status), found in sorted(self._served.items()):
            ends = [*(str(bucket) for bucket in BUCKETS), "+Inf"]
            buckets = list(zip(ends, accumulate(found.counts), strict=True))
            family.add_metric((route, str(status)), buckets, found.seconds)
        yield family


class Metrics:
    """The metrics of one process. Figures of the queues are read from the store on demand."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Requests()
        self._registry.register(self._requests)
        self.served = self._requests.served
        self._waiting = Gauge(
            "holdfast_waiting", "Calls that wait for work or results.", registry=self._registry
        )
        self._streams = Gauge(
            "holdfast_streams", "Readers of event streams.", registry=self._registry
        )
        self._jobs = Gauge(
            "holdfast_jobs", "Jobs by state.", ("queue", "state"), registry=self._registry
        )
        self._oldest = Gauge(
            "holdfast_oldest_wait_seconds",
            "Longest time that a ready job has waited.",
            registry=self._registry,
        )
        self._workers = Gauge(
            "holdfast_workers", "Workers that are present.", registry=self._registry
        )

    async def text(self, service: Service) -> bytes:
        """All metrics in the format of Prometheus. Counts of a queue are over all tenants."""
        self._waiting.set(service.waiters)
        self._streams.set(service.streams.taken)
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
