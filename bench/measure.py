"""What is measured: enqueue singly, concurrently and in bulk; drain; pick-up of an idle worker."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from holdfast import App, Context, Tenant
from holdfast.worker.worker import Worker

TENANT = "bench"
FILLER = "x" * 70
"""Makes the JSON payload about 100 bytes."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is made."""

    store: str
    jobs: int
    singles: int
    concurrency: int
    pickups: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Rates in jobs per second; latencies in milliseconds; CPU in microseconds per job."""

    store: str
    single: float
    concurrent: float
    bulk: float
    drain: float
    drain_cpu_us: float
    pickup_p50_ms: float
    pickup_p99_ms: float


class Probe:
    """The job type of the benchmark: counts its runs, notes when one started."""

    def __init__(self, setting: Setting) -> None:
        # Finished jobs are deleted at once, as in the peers this is compared with.
        self.app = App(setting.store, concurrency=setting.concurrency, keep_s=0)
        self.ran = 0
        self.awaited = 0
        self.reached = asyncio.Event()
        self.started_at = 0.0

        @self.app.job(name="noop")
        async def noop(ctx: Context, number: int, filler: str) -> None:
            self.started_at = time.perf_counter()
            self.ran += 1
            if self.ran == self.awaited:
                self.reached.set()

        self.noop = noop

    def job(self, number: int) -> Any:
        return self.noop(number=number, filler=FILLER)

    def await_runs(self, more: int) -> None:
        self.reached.clear()
        self.awaited = self.ran + more


async def measure(setting: Setting) -> Figures:
    """All figures of one store. Bounded by the setting's counts."""
    probe = Probe(setting)
    async with probe.app:
        tenant = probe.app.tenant(TENANT)
        single = await _single(probe, tenant, setting.singles)
        concurrent = await _concurrent(probe, tenant, setting.singles)
        bulk = await _bulk(probe, tenant, setting.jobs)
        queued = setting.jobs + 2 * setting.singles
        drain, cpu_us = await _drain(probe, queued)
        async with _working(probe):
            pickups = [await _pickup(probe, tenant) for _ in range(setting.pickups)]
    return Figures(
        store=setting.store,
        single=single,
        concurrent=concurrent,
        bulk=bulk,
        drain=drain,
        drain_cpu_us=cpu_us,
        pickup_p50_ms=statistics.median(pickups),
        pickup_p99_ms=sorted(pickups)[int(len(pickups) * 0.99)],
    )


async def _single(probe: Probe, tenant: Tenant, number: int) -> float:
    started = time.perf_counter()
    for index in range(number):
        await tenant.enqueue(probe.job(index))
    return number / (time.perf_counter() - started)


async def _concurrent(probe: Probe, tenant: Tenant, number: int) -> float:
    started = time.perf_counter()
    for first in range(0, number, 100):
        calls = (tenant.enqueue(probe.job(index)) for index in range(first, first + 100))
        await asyncio.gather(*calls)
    return number / (time.perf_counter() - started)


async def _bulk(probe: Probe, tenant: Tenant, number: int) -> float:
    started = time.perf_counter()
    await tenant.enqueue_many(probe.job(index) for index in range(number))
    return number / (time.perf_counter() - started)


async def _drain(probe: Probe, queued: int) -> tuple[float, float]:
    probe.await_runs(queued)
    cpu = _cpu_s()
    started = time.perf_counter()
    async with _working(probe):
        await probe.reached.wait()
        took = time.perf_counter() - started
    return queued / took, (_cpu_s() - cpu) / queued * 1e6


async def _pickup(probe: Probe, tenant: Tenant) -> float:
    """Milliseconds from the enqueue call to the handler's start, on an idle worker."""
    await asyncio.sleep(0.01)
    probe.await_runs(1)
    started = time.perf_counter()
    await tenant.enqueue(probe.job(0))
    await probe.reached.wait()
    return (probe.started_at - started) * 1000


@asynccontextmanager
async def _working(probe: Probe) -> AsyncIterator[None]:
    worker = Worker(probe.app)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
