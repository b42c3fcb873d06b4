"""`python -m bench.schedules`: what a hundred thousand schedules cost an idle worker.

For each store: the CPU time of an idle worker with default settings and of the store's server, as a
part of one core, beside no schedule and beside so many.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence

import msgspec

from bench.places import Missing, Place, place
from bench.run_info import say
from holdfast import App, Context
from holdfast.worker import Worker

STORES = ("sqlite-full", "postgres", "redis")
WATCH_S = 30.0
"""How long an idle worker is watched: three pages of its check of schedules."""
START_S = 2.0
"""How long a worker is left alone first: it says that it is there, and is elected."""
EACH = 100
"""Schedules of a tenant. Setting a new one reads all that its tenant has."""
PART = 10_000
IN_FLIGHT = 100
"""Schedules that are set at the same time."""
EVERY_S = 30 * 24 * 3600
"""None is due while a worker is watched, unless a tick of all falls into it."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    schedules: int
    worker: float
    """Of one core."""
    server: float

    @property
    def words(self) -> str:
        return (
            f"{self.schedules:,} schedules: {self.worker:.2%} of a core in the worker, "
            f"{self.server:.2%} in the server"
        )


def make_app(url: str) -> App:
    app = App(url)

    @app.job(queue="reports")
    async def report(ctx: Context, number: int) -> None: ...

    return app


async def define(app: App, number: int) -> None:
    """Sets so many schedules."""
    kind = app.registry.named("report")
    assert kind is not None
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one(each: int) -> None:
        async with places:
            tenant = app.tenant(f"t{each // EACH}")
            handle = tenant.schedule(f"s{each}")
            await handle.set(kind.kind(number=each), every=EVERY_S, phase=EVERY_S / 2)

    for first in range(0, number, PART):
        await asyncio.gather(*map(one, range(first, min(number, first + PART))))
        say(f"  {min(number, first + PART):,} set")


async def idle(url: str, where: Place, schedules: int) -> Cost:
    """What a worker costs that waits for ticks."""
    app = make_app(url)
    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(START_S)
        own, server = time.process_time(), where.cpu_s()
        await asyncio.sleep(WATCH_S)
        own, server = time.process_time() - own, where.cpu_s() - server
        worker.stop()
        await running
    return Cost(schedules=schedules, worker=own / WATCH_S, server=server / WATCH_S)


async def measure(url: str, where: Place, schedules: int) -> list[Cost]:
    """Beside none, and beside so many."""
    app = make_app(url)
    await app.store.migrate()
    before = await idle(url, where, 0)
    async with app:
        await define(app, schedules)
    where.settle()
    return [before, await idle(url, where, schedules)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.schedules", description=__doc__)
    parser.add_argument("--stores", default=",".join(STORES), help="default: %(default)s")
    parser.add_argument("--schedules", type=int, default=100_000, help="default: %(default)s")
    given = parser.parse_args(arguments)
    for name in given.stores.split(","):
        try:
            with place(name) as where:
                say(f"{name}: {given.schedules:,} schedules")
                found = asyncio.run(measure(where.fresh("schedules"), where, given.schedules))
        except Missing as lack:
            say(f"{name}: not measured: {lack}")
            continue
        for one in found:
            print(f"{name}: {one.words}", flush=True)


if __name__ == "__main__":
    main()
