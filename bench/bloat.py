"""`python -m bench.bloat`: what a transaction that stays open costs on PostgreSQL.

It keeps PostgreSQL from removing dead rows, and a queue makes many. Jobs come at a steady pace and
a worker runs them, each time on a new schema: without any other transaction, with one that holds an
old snapshot, and with one that has written and so holds a transaction id (xid). What counts are the
ratios to the first, and whether claims get slower the longer the transaction lasts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec

from bench.places import place
from bench.stores import fresh
from bench.table import lines, number
from holdfast import App, Context
from holdfast.core.job import Lease
from holdfast.store import Claim
from holdfast.worker.worker import Worker

TICK_S = 0.02
WARM_S = 5.0
FILLER = "x" * 70
HOLDS = ("nothing", "snapshot", "xid")
"""What the other transaction holds."""
THIRDS = ("first third", "second third", "last third")
HEADS = ("held", "phase", "jobs/s", "claim p50 ms", "claim p95 ms")


class Phase(msgspec.Struct):
    """What was seen in one stretch of time."""

    held: str
    name: str
    done: int = 0
    seconds: float = 0.0
    claims: list[float] = []

    @property
    def per_s(self) -> float:
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def claim_ms(self) -> float:
        """Median of the claims that got a job."""
        return statistics.median(self.claims or [0.0]) * 1e3

    def row(self) -> tuple[str, ...]:
        took = sorted(self.claims) or [0.0]
        p95 = took[int(len(took) * 0.95)] * 1e3
        figures = number(self.per_s), number(self.claim_ms, 2), number(p95, 2)
        return self.held, self.name, *figures


class Bench:
    def __init__(self, url: str, per_s: int, held: str) -> None:
        self.app = App(url, concurrency=100, keep_s=0)
        self._per_s = per_s
        self._held = held
        self.phase = Phase(held, "warm-up")
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
        self.phase, started = Phase(self._held, name), time.monotonic()
        await asyncio.sleep(seconds)
        self.phase.seconds = time.monotonic() - started
        self.phases.append(self.phase)

    def stop(self) -> None:
        self._stop.set()


@asynccontextmanager
async def holding(url: str, held: str) -> AsyncIterator[None]:
    """A transaction of somebody else's that stays open."""
    other = await asyncpg.connect(urlunsplit((*urlsplit(url)[:3], "", "")))
    try:
        await other.execute("CREATE TABLE IF NOT EXISTS bench_bloat_other (written int)")
        if held == "snapshot":
            await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await other.fetchval("SELECT count(*) FROM pg_class")
        elif held == "xid":
            await other.execute("BEGIN")
            await other.execute("INSERT INTO bench_bloat_other VALUES (1)")
        yield
    finally:
        await other.close()  # which rolls back


async def measure(url: str, per_s: int, seconds: float, held: str) -> list[Phase]:
    """The transaction lasts for `seconds`; a third as long is measured before and after it."""
    bench = Bench(fresh(url, "bloat"), per_s, held)
    async with bench.app:
        worker = Worker(bench.app)
        working = [asyncio.create_task(worker.run()), asyncio.create_task(bench.send())]
        await bench.during("warm-up", min(WARM_S, seconds))
        await bench.during("before", seconds / 3)
        async with holding(url, held):
            for name in THIRDS:
                await bench.during(name, seconds / 3)
        await bench.during("after", seconds / 3)
        bench.stop()
        worker.stop()
        await asyncio.gather(*working)
    return bench.phases[1:]


def told(phases: Sequence[Phase]) -> list[str]:
    """The table, and each hold's last third beside the same time without one."""
    found = [*lines(HEADS, [phase.row() for phase in phases])]
    last = {phase.held: phase for phase in phases if phase.name == THIRDS[-1]}
    bare = last.get(HOLDS[0])
    for held, phase in last.items():
        if bare is not None and phase is not bare and bare.per_s and bare.claim_ms:
            jobs, claim = phase.per_s / bare.per_s, phase.claim_ms / bare.claim_ms
            found.append(
                f"{held} held, {THIRDS[-1]}: {jobs:.2f} of the jobs/s and {claim:.2f} of the "
                "claim's time without"
            )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.bloat", description=__doc__)
    parser.add_argument(
        "--store", default="postgres", help="postgresql:// URL; a private server by default"
    )
    parser.add_argument("--per-s", type=int, default=800, help="jobs that come (default 800)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it is held")
    parser.add_argument("--hold", default=",".join(HOLDS), help=f"of {', '.join(HOLDS)}")
    given = parser.parse_args(arguments)
    held = given.hold.split(",")
    if not {*held} <= {*HOLDS}:
        parser.error(f"--hold is of {', '.join(HOLDS)}")
    phases: list[Phase] = []
    with place(given.store) as where:
        for one in held:
            phases += asyncio.run(measure(where.url, given.per_s, given.seconds, one))
    print("\n".join(told(phases)))


if __name__ == "__main__":
    main()
