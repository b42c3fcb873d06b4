"""`python -m bench.bloat --store postgresql://...`: what an old snapshot costs.

Somebody's transaction that stays open keeps PostgreSQL from clearing away dead rows, and a queue
makes many. Jobs come at a steady pace and a worker runs them, first without and then with such a
transaction; what counts is the ratio, and whether claims get slower the longer it lasts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec

from bench.stores import fresh
from holdfast import App, Context
from holdfast.job import Lease
from holdfast.store import Claim
from holdfast.worker.worker import Worker

TICK_S = 0.02
FILLER = "x" * 70


class Phase(msgspec.Struct):
    """What was seen in one stretch of time."""

    name: str
    done: int = 0
    seconds: float = 0.0
    claims: list[float] = []

    def row(self) -> str:
        took = sorted(self.claims) or [0.0]
        p50, p95 = statistics.median(took), took[int(len(took) * 0.95)]
        rate = self.done / self.seconds if self.seconds else 0.0
        return f"  {self.name:<28} {rate:>8,.0f} {p50 * 1e3:>12.2f} {p95 * 1e3:>12.2f}"


class Bench:
    def __init__(self, url: str, per_s: int) -> None:
        self.app = App(url, concurrency=100, keep_s=0)
        self._per_s = per_s
        self.phase = Phase("warm-up")
        self.phases: list[Phase] = []
        self._stop = asyncio.Event()

        @self.app.job(name="noop")
        async def noop(ctx: Context, number: int, filler: str) -> None:
            self.phase.done += 1

        self._noop = noop
        store, real = self.app.store, self.app.store.claim

        async def timed(claim: Claim) -> list[Lease]:
            started = time.perf_counter()
            leases = await real(claim)
            if leases:
                self.phase.claims.append(time.perf_counter() - started)
            return leases

        store.claim = timed  # type: ignore[method-assign]

    async def send(self) -> None:
        """So many jobs a second, in small batches, whatever the worker does."""
        tenant, sent, started = self.app.tenant("acme"), 0, time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - started) * self._per_s)
            await tenant.enqueue_many(
                self._noop(number=number, filler=FILLER) for number in range(sent, due)
            )
            sent = due
            await asyncio.sleep(TICK_S)

    async def during(self, name: str, seconds: float) -> None:
        self.phase, started = Phase(name), time.monotonic()
        await asyncio.sleep(seconds)
        self.phase.seconds = time.monotonic() - started
        self.phases.append(self.phase)

    def stop(self) -> None:
        self._stop.set()


async def measure(url: str, per_s: int, seconds: float) -> list[Phase]:
    parts = urlsplit(url)
    bench = Bench(fresh(url, "bloat"), per_s)
    async with bench.app, AsyncExitStack() as stack:
        worker = Worker(bench.app)
        working = [asyncio.create_task(worker.run()), asyncio.create_task(bench.send())]
        await bench.during("warm-up", min(5.0, seconds))
        await bench.during("no other transaction", seconds / 3)
        other = await asyncpg.connect(urlunsplit((*parts[:3], "", "")))
        stack.push_async_callback(other.close)
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await other.fetchval("SELECT count(*) FROM pg_class")
        await bench.during("old snapshot, first third", seconds / 3)
        await bench.during("old snapshot, second third", seconds / 3)
        await bench.during("old snapshot, last third", seconds / 3)
        await other.execute("ROLLBACK")
        await bench.during("after it ended", seconds / 3)
        bench.stop()
        worker.stop()
        await asyncio.gather(*working)
    return bench.phases[1:]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.bloat", description=__doc__)
    parser.add_argument("--store", required=True, help="postgresql:// URL")
    parser.add_argument("--per-s", type=int, default=800)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the snapshot lasts")
    given = parser.parse_args()
    phases = asyncio.run(measure(given.store, given.per_s, given.seconds))
    print(f"  {'':<28} {'jobs/s':>8} {'claim p50 ms':>12} {'claim p95 ms':>12}")
    for phase in phases:
        print(phase.row())
    before, last = phases[0], phases[3]
    print(f"throughput: {last.done / last.seconds / (before.done / before.seconds):.2f} of before")


if __name__ == "__main__":
    main()
