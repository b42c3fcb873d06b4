"""`python -m bench.parked`: what a million parked jobs cost a worker that has nothing to do.

For each store, beside no parked job and beside a million: the calls of an idle worker with default
settings and the time that they take, the rows that PostgreSQL reads for them, and a claim that
finds nothing, or one job. The jobs sleep, or wait for a signal; they are parked by the same verbs
that a worker uses.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from bench.places import Missing, Place, PostgresPlace, place
from bench.run_info import say
from bench.stores import KEPT, QUEUE, claim_of, fill, job, settle
from holdfast import App, Context
from holdfast.core.bounds import BATCH_MAX, INSTANT_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import NewJob, Outcome, Parked
from holdfast.core.journal import await_signal
from holdfast.core.lifecycle import decide
from holdfast.store import Store
from holdfast.store_calls import StoreCall
from holdfast.worker import Worker

STORES = ("sqlite-full", "postgres", "redis")
TENANTS = 10
WATCH_S = 12.0
"""How long an idle worker is watched."""
START_S = 2.0
"""How long a worker is left alone first: it says that it is there, and is elected."""
CLAIMS = 200
DAY_US = 24 * 3600 * SECOND


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen beside so many parked jobs."""

    parked: int
    calls: Counter[str]
    """Of an idle worker, by verb."""
    store_ms: float
    """The time of these calls together, without the waits."""
    rows: int | None
    """Rows of jobs that PostgreSQL read meanwhile; None for other stores."""
    vain_us: float
    """The median of claims that find nothing."""
    one_us: float
    """The median of claims that find one job."""


class _Watch:
    """Counts the calls of an app, and the time that they take."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.seconds = 0.0

    def __call__(self, call: StoreCall) -> None:
        self.calls[call.verb] += 1
        if call.verb != "wait":  # It sleeps.
            self.seconds += call.seconds

    def clear(self) -> None:
        self.calls.clear()
        self.seconds = 0.0


def _parked(number: int) -> Outcome:
    """One third each: asleep, waiting with a time-out, waiting for as long as it takes."""
    later = DAY_US + number * 1000
    if number % 3 == 0:
        return Parked(later)
    waits = await_signal("approved")
    return Parked(later, None, waits) if number % 3 == 1 else Parked(0, INSTANT_MAX, waits)


async def park(store: Store, jobs: int) -> None:
    """Makes so many jobs, claims them and parks them."""
    for first in range(0, jobs, BATCH_MAX):
        numbers = range(first, min(jobs, first + BATCH_MAX))
        await fill(store, map(_job, numbers))
        leases = await store.claim(claim_of(BATCH_MAX))
        assert len(leases) == len(numbers), f"{len(leases)} of {len(numbers)} were claimed"
        changes = [
            decide(_parked(number), lease.job, lease.token, 0.0)
            for number, lease in zip(numbers, leases, strict=True)
        ]
        for answer in await store.ack(changes):
            if answer.error is not None:
                raise answer.error
        if numbers.stop % 100_000 == 0:
            say(f"  {numbers.stop:,} parked")


def _job(number: int) -> NewJob:
    return job(f"t{number % TENANTS}", f"p{number}", KEPT)


async def idle(url: str, where: Place, parked: int) -> Idle:
    """What a worker does that has nothing to do."""
    app, watch = App(url), _Watch()
    app.store.observe = watch

    @app.job(queue=QUEUE)
    async def noop(ctx: Context, number: int, filler: str) -> None: ...

    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(START_S)
        watch.clear()
        before = _rows_read(where)
        await asyncio.sleep(WATCH_S)
        calls, store_ms = Counter(watch.calls), watch.seconds * 1000
        after = _rows_read(where)
        worker.stop()
        await running
        vain = [await _claim_s(app.store, 0) for _ in range(CLAIMS)]
        one = []
        for number in range(CLAIMS):
            await fill(app.store, [job("t0", f"{parked}-{number}")])
            one.append(await _claim_s(app.store, 1))
    return Idle(
        parked=parked,
        calls=calls,
        store_ms=store_ms,
        rows=None if before is None or after is None else after - before,
        vain_us=statistics.median(vain) * 1e6,
        one_us=statistics.median(one) * 1e6,
    )


async def _claim_s(store: Store, wanted: int) -> float:
    begun = time.perf_counter()
    leases = await store.claim(claim_of(10))
    took = time.perf_counter() - begun
    assert len(leases) == wanted, f"{len(leases)} leases"
    await settle(store, leases)
    return took


def _rows_read(where: Place) -> int | None:
    return where.rows_read("jobs") if isinstance(where, PostgresPlace) else None


async def measure(url: str, where: Place, parked: int) -> list[Idle]:
    """Beside none, and beside so many."""
    app = App(url)
    await app.store.migrate()
    before = await idle(url, where, 0)
    async with app:
        begun = time.perf_counter()
        await park(app.store, parked)
        say(f"  parked in {time.perf_counter() - begun:.0f} s")
    where.settle()
    return [before, await idle(url, where, parked)]


def told(found: Idle) -> str:
    calls = ", ".join(f"{verb} {number}" for verb, number in sorted(found.calls.items()))
    rows = "" if found.rows is None else f", {found.rows:,} rows of jobs read"
    return (
        f"{found.parked:,} parked: {found.calls.total()} calls in {WATCH_S:.0f} s ({calls}), "
        f"{found.store_ms:.1f} ms in the store{rows}; a claim of nothing {found.vain_us:.0f} us, "
        f"of one job {found.one_us:.0f} us"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.parked", description=__doc__)
    parser.add_argument("--stores", default=",".join(STORES), help="default: %(default)s")
    parser.add_argument("--parked", type=int, default=1_000_000, help="default: %(default)s")
    given = parser.parse_args(arguments)
    for name in given.stores.split(","):
        try:
            with place(name) as where:
                say(f"{name}: {given.parked:,} parked jobs")
                found = asyncio.run(measure(where.fresh("parked"), where, given.parked))
        except Missing as lack:
            say(f"{name}: not measured: {lack}")
            continue
        for one in found:
            print(f"{name}: {told(one)}", flush=True)


if __name__ == "__main__":
    main()
