"""`python -m bench.durable`: what steps and flows cost, beside loose jobs in the same run.

For each store: how many extensions a step costs; diamonds of four nodes a second, and flows of a
hundred nodes, against as many loose jobs; the join of many children; and the calls of a worker
while many jobs are parked.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bench.places import NAMES, Missing, place
from bench.run_info import say
from holdfast import App, Context, Flow
from holdfast.store_calls import StoreCall
from holdfast.worker import Worker

IN_FLIGHT = 100
"""Callers that start flows or enqueue jobs at the same time."""
STEPS = 5
DIAMOND = 4
"""Nodes of a diamond."""
FAN = 100
"""Nodes of a large flow: one, then 98 after it, then one after these."""
IDLE_S = 5.0
"""How long an idle worker is watched."""
BOUND_S = 600.0


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    flows: int
    children: int
    parked: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    extends_per_step: float
    loose_per_s: float
    """Loose jobs: enqueued one by one, and run."""
    diamonds_per_s: float
    fans_per_s: float
    join_ms: float
    """From the end of the last child's handler until its parent's next run."""
    fan_out_s: float
    idle_calls: int
    """Of a worker in IDLE_S seconds, while jobs are parked."""

    def overhead(self, flows_per_s: float, nodes: int) -> float:
        """The time of a flow against that of as many loose jobs, minus one."""
        return self.loose_per_s / (flows_per_s * nodes) - 1


class Durable:
    """One app on one store, and what its worker does."""

    def __init__(self, url: str) -> None:
        self.app = App(url, upkeep=False, concurrency=IN_FLIGHT)
        self.app.store.observe = self._observed
        self.calls: Counter[str] = Counter()
        self.done = 0
        self.parked = 0
        self.child_s = self.parent_s = 0.0

        @self.app.job(queue="nodes", keep=60)
        async def node(ctx: Context, number: int) -> int:
            self.done += 1
            return number

        @self.app.job(queue="steps", keep=60)
        async def stepping(ctx: Context) -> None:
            for number in range(STEPS):
                await ctx.step(f"s{number}", _same, number)
            self.done += 1

        @self.app.job(queue="children", keep=60)
        async def child(ctx: Context, number: int) -> None:
            self.child_s = time.perf_counter()

        @self.app.job(queue="parents", keep=60)
        async def parent(ctx: Context, number: int) -> int:
            self.parent_s = time.perf_counter()
            found = await ctx.map("all", child, range(number))
            self.done += 1
            return len(found)

        @self.app.job(queue="parked", keep=60)
        async def waiter(ctx: Context) -> None:
            self.parked += 1
            await ctx.wait_for("never", bool, timeout=3600)

        self.node, self.stepping, self.parent, self.waiter = node, stepping, parent, waiter
        self.tenant = self.app.tenant("acme")

    def _observed(self, call: StoreCall) -> None:
        self.calls[call.verb] += call.items if call.verb == "extend" else 1

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """A worker runs meanwhile."""
        worker = Worker(self.app)
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await running

    async def steps(self, jobs: int) -> float:
        """How many extensions one step costs."""
        self.done = 0
        await self.tenant.enqueue_many(self.stepping() for _ in range(jobs))
        self.calls.clear()
        async with self.working():
            await _until(lambda: self.done == jobs)
        return self.calls["extend"] / (jobs * STEPS)

    async def loose(self, jobs: int) -> float:
        """Loose jobs a second, while they are enqueued."""
        return await self._rate(jobs, jobs, self._one)

    async def diamonds(self, flows: int) -> float:
        """Diamonds a second, while they are started."""
        return await self._rate(flows, flows * DIAMOND, self._diamond)

    async def fans(self, flows: int) -> float:
        """Large flows a second, while they are started."""
        return await self._rate(flows, flows * FAN, self._fan)

    async def _rate(
        self, number: int, jobs: int, start: Callable[[int], Coroutine[Any, Any, Any]]
    ) -> float:
        self.done = 0
        begun = time.perf_counter()
        async with self.working():
            places = asyncio.Semaphore(IN_FLIGHT)

            async def one(each: int) -> None:
                async with places:
                    await start(each)

            await asyncio.gather(*map(one, range(number)))
            await _until(lambda: self.done == jobs)
            return number / (time.perf_counter() - begun)

    async def _one(self, number: int) -> None:
        await self.tenant.enqueue(self.node(number))

    async def _diamond(self, number: int) -> None:
        flow = Flow("diamond")
        top = flow.add(self.node(number))
        sides = [flow.add(self.node(number), after=top) for _ in range(2)]
        flow.add(self.node(number), after=sides)
        await self.tenant.start(flow)

    async def _fan(self, number: int) -> None:
        flow = Flow("fan")
        first = flow.add(self.node(number))
        middle = [flow.add(self.node(number), after=first) for _ in range(FAN - 2)]
        flow.add(self.node(number), after=middle)
        await self.tenant.start(flow)

    async def join(self, children: int) -> tuple[float, float]:
        """Milliseconds from the last child to its parent, and seconds for the whole."""
        self.done = 0
        begun = time.perf_counter()
        await self.tenant.enqueue(self.parent(children))
        async with self.working():
            await _until(lambda: self.done == 1)
        return (self.parent_s - self.child_s) * 1000, time.perf_counter() - begun

    async def idle(self, parked: int) -> int:
        """The calls of a worker that has nothing to do, while so many jobs are parked."""
        self.parked = 0
        await self.tenant.enqueue_many(self.waiter() for _ in range(parked))
        async with self.working():
            await _until(lambda: self.parked == parked)
            await asyncio.sleep(2.0)  # The last outcomes are being stored.
            self.calls.clear()
            await asyncio.sleep(IDLE_S)
            return self.calls["claim"] + self.calls["wait"]


async def _same(number: int) -> int:
    return number


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def measure(url: str, sizes: Sizes) -> Found:
    """All figures of one store."""
    durable = Durable(url)
    async with durable.app:
        extends = await durable.steps(sizes.flows // 10)
        await durable.loose(sizes.flows)  # Warm-up.
        loose = await durable.loose(sizes.flows * DIAMOND)
        diamonds = await durable.diamonds(sizes.flows)
        fans = await durable.fans(max(1, sizes.flows * DIAMOND // FAN))
        join_ms, fan_out_s = await durable.join(sizes.children)
        idle = await durable.idle(sizes.parked)
    return Found(
        extends_per_step=extends,
        loose_per_s=loose,
        diamonds_per_s=diamonds,
        fans_per_s=fans,
        join_ms=join_ms,
        fan_out_s=fan_out_s,
        idle_calls=idle,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.durable", description=__doc__)
    parser.add_argument("--stores", default=",".join(NAMES), help="default: %(default)s")
    parser.add_argument("--flows", type=int, default=2_000, help="default: %(default)s")
    parser.add_argument("--children", type=int, default=20_000, help="default: %(default)s")
    parser.add_argument("--parked", type=int, default=20_000, help="default: %(default)s")
    given = parser.parse_args(arguments)
    sizes = Sizes(flows=given.flows, children=given.children, parked=given.parked)
    for name in given.stores.split(","):
        try:
            with place(name) as where:
                say(f"{name}: measuring")
                found = asyncio.run(measure(where.fresh("durable"), sizes))
        except Missing as lack:
            say(f"{name}: not measured: {lack}")
            continue
        print(
            f"{name}: {found.extends_per_step:.2f} extensions a step; "
            f"{found.diamonds_per_s:,.0f} diamonds/s beside {found.loose_per_s:,.0f} loose jobs/s, "
            f"{found.overhead(found.diamonds_per_s, DIAMOND):+.0%}; {found.fans_per_s:,.1f} flows "
            f"of {FAN} nodes/s, {found.overhead(found.fans_per_s, FAN):+.0%}; "
            f"{given.children:,} children in {found.fan_out_s:.1f} s, "
            f"their parent {found.join_ms:.0f} ms after the last; "
            f"{found.idle_calls} calls in {IDLE_S:.0f} s beside {given.parked:,} parked jobs"
        )


if __name__ == "__main__":
    main()
