"""What is measured on each store. Client and workers are processes of their own (`bench.child`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from bench.claims import depth_cost
from bench.crew import Failed, Member, member, until_ran
from bench.figures import Depth, Figures, Load, Scale, middle, quantile
from bench.places import Place
from bench.rules import rules_cost

CAP_S = 30.0
"""No enqueue of a round goes on longer; fewer jobs are counted then."""
FILL_S = 600.0
MEASURE_S_MAX = 1800.0
"""No measure of a store takes longer."""
GAP_S = 0.02
WARM = 20
PROCESSES = (1, 2, 4, 8)
MB = 1e6


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large a run is. The defaults are those of the report."""

    rounds: int = 3
    jobs: int = 50_000
    """Of the bulk and the drain."""
    singles: int = 3_000
    pickups: int = 200
    load_s: float = 5.0
    shallow: int = 10_000
    deep: int = 1_000_000
    rule_jobs: int = 15_000

    @classmethod
    def quick(cls) -> Sizes:
        """Shows that all works; the figures mean little."""
        return cls(
            rounds=1,
            jobs=2_000,
            singles=200,
            pickups=20,
            load_s=1.0,
            shallow=1_000,
            deep=5_000,
            rule_jobs=500,
        )


Say = Callable[[str], None]


class Bench:
    """Fills the figures of one place, measure by measure."""

    def __init__(self, place: Place, sizes: Sizes, say: Say) -> None:
        self.place = place
        self.sizes = sizes
        self.found = Figures(store=place.name, version=place.version, settings=place.settings)
        self._say = say

    async def run(self, measures: Sequence[str]) -> Figures:
        """A measure that fails is noted with its reason; the others go on."""
        for name in measures:
            started = time.perf_counter()
            try:
                async with asyncio.timeout(MEASURE_S_MAX):
                    told = await MEASURES[name](self)
            except Exception as error:
                told = self.found.failed[name] = f"{type(error).__name__}: {error}"
            finally:
                self.place.clear()
            took = time.perf_counter() - started
            self._say(f"{self.place.name} {name}: {told} ({took:.0f} s)")
        return self.found

    @contextlib.asynccontextmanager
    async def _pair(self, label: str) -> AsyncIterator[tuple[Member, Member]]:
        """A client and a worker on a new store: one process if it must be."""
        url = self.place.fresh(label)
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(member(url))
            if self.place.alone:
                yield client, client
            else:
                yield client, await stack.enter_async_context(member(url))

    # -- the measures ------------------------------------------------------------------------

    async def enqueue(self) -> str:
        """One by one, a hundred in flight, and in calls of a thousand."""
        found, sizes = self.found, self.sizes
        for _ in range(sizes.rounds):
            for verb, number, into in (
                ("single", sizes.singles, found.single),
                ("concurrent", sizes.singles * 5, found.concurrent),
                ("bulk", sizes.jobs, found.bulk),
            ):
                async with member(self.place.fresh(verb)) as client:
                    into.append((await client.do(verb, number=number, cap_s=CAP_S))["per_s"])
                self.place.clear()
        shown = (found.single, found.concurrent, found.bulk)
        return " / ".join(f"{middle(one):,.0f}" for one in shown) + " a second"

    async def drain(self) -> str:
        """A full queue, one worker process: from its first start to its last end."""
        found = self.found
        for _ in range(self.sizes.rounds):
            async with self._pair("drain") as (client, worker):
                number = await self._fill(client, self.sizes.jobs)
                per_s, worker_us, engine_us = await self._drained([worker], number)
            found.drain.append(per_s)
            found.worker_us.append(worker_us)
            found.engine_us.append(engine_us)
            self.place.clear()
        if self.place.alone:
            async with member(self.place.url) as bare:
                for _ in range(self.sizes.rounds):
                    found.floor.append((await bare.do("floor"))["per_s"])
        return f"{middle(found.drain):,.0f}/s, worker {middle(found.worker_us):.1f} us a job"

    async def pickup(self) -> str:
        """From the enqueue call to the handler's start, the worker being idle."""
        found = self.found
        for _ in range(self.sizes.rounds):
            async with self._pair("pickup") as (client, worker):
                await worker.do("work")
                await client.do("pickup", number=WARM, gap_s=GAP_S)
                await until_ran([worker], WARM)
                await worker.do("note")
                await client.do("pickup", number=self.sizes.pickups, gap_s=GAP_S)
                await until_ran([worker], WARM + self.sizes.pickups)
                waits = (await worker.do("waits"))["ms"]
            found.pickup_p50_ms.append(quantile(waits, 0.5))
            found.pickup_p99_ms.append(quantile(waits, 0.99))
            self.place.clear()
        return f"{middle(found.pickup_p50_ms):.2f} / {middle(found.pickup_p99_ms):.2f} ms"

    async def load(self) -> str:
        """Waits while jobs come at half of what can be taken and given at the same time."""
        taken, given = middle(self.found.bulk), middle(self.found.drain)
        if not taken or not given:
            raise Failed("needs the measures enqueue and drain")
        per_s = half_load(taken, given)
        for _ in range(self.sizes.rounds):
            async with self._pair("load") as (client, worker):
                await worker.do("work")
                warm = await client.do("paced", per_s=per_s, seconds=0.5)
                await until_ran([worker], warm["done"])
                await worker.do("note")
                sent = await client.do("paced", per_s=per_s, seconds=self.sizes.load_s)
                await until_ran([worker], warm["done"] + sent["done"])
                waits = (await worker.do("waits"))["ms"]
            self.found.load.append(
                Load(per_s=per_s, p50_ms=quantile(waits, 0.5), p99_ms=quantile(waits, 0.99))
            )
            self.place.clear()
        last = self.found.load[-1]
        return f"{last.p50_ms:.2f} / {last.p99_ms:.2f} ms at {per_s:,.0f}/s"

    async def depth(self) -> str:
        """Few jobs queued, then many: rate of the drain, memory of the worker, room of the data."""
        few, many = list[Depth](), list[Depth]()
        # In turn, so that both meet the machine as it is at that time; few takes a quarter of a
        # second, so it is done more often.
        for _ in range(self.sizes.rounds):
            few += [await self._deep(self.sizes.shallow) for _ in range(3)]
            many.append(await self._deep(self.sizes.deep))
            self._say(f"{self.place.name} depth: {many[-1].queued:,} at {many[-1].per_s:,.0f}/s")
        for found in (few, many):
            found.sort(key=lambda one: one.per_s)
            self.found.depth.append(found[len(found) // 2])
        shallow, deep = self.found.depth
        return f"{deep.per_s / shallow.per_s:.2f} of the rate, worker {deep.worker_mb:.0f} MB"

    async def _deep(self, queued: int) -> Depth:
        async with self._pair("depth") as (client, worker):
            empty, before = self.place.size(), await client.do("seen")
            number = await self._fill(client, queued)
            after = await client.do("seen")
            inside = after["rss"] - before["rss"] if self.place.alone else 0
            kept = self.place.size() - empty + inside
            # A handler may end long before its ack, so of few jobs most acks would go uncounted.
            per_s, _, _ = await self._drained([worker], number, settled=True)
            peak = (await worker.do("seen"))["peak"]
        self.place.clear()
        return Depth(queued=number, per_s=per_s, worker_mb=peak / MB, engine_mb=kept / MB)

    async def growth(self) -> str:
        """A claim of 100 among a thousand jobs and among many: queued, delayed, blocked."""
        self.found.growth = await depth_cost(self.place.url, self.sizes.deep)
        pairs = zip(self.found.growth[::2], self.found.growth[1::2], strict=True)
        return ", ".join(f"{many.us / few.us:.2f} for {many.case}" for few, many in pairs)

    async def rules(self) -> str:
        """Each rule on beside off."""
        sizes = self.sizes
        self.found.rules = await rules_cost(
            self.place.url, sizes.rule_jobs, sizes.rounds, self.place.clear
        )
        return ", ".join(f"{one.rule} {-one.lost * 100:+.0f} %" for one in self.found.rules[1:])

    async def scaling(self) -> str:
        """The same drain by more and more worker processes."""
        if self.place.alone:
            return "not for a store of one process"
        for processes in PROCESSES:
            url = self.place.fresh("scaling")
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(member(url))
                number = await self._fill(client, self.sizes.jobs * 2)
                workers = [await stack.enter_async_context(member(url)) for _ in range(processes)]
                per_s, worker_us, _ = await self._drained(workers, number)
            self.found.scaling.append(Scale(processes=processes, per_s=per_s, worker_us=worker_us))
            self.place.clear()
        return ", ".join(f"{one.processes}: {one.per_s:,.0f}/s" for one in self.found.scaling)

    # -- parts -------------------------------------------------------------------------------

    async def _fill(self, client: Member, number: int) -> int:
        done = int((await client.do("bulk", number=number, cap_s=FILL_S))["done"])
        self.place.settle()
        return done

    async def _drained(
        self, workers: list[Member], number: int, settled: bool = False
    ) -> tuple[float, float, float]:
        """Jobs per second from the first start to the last end, or to the last answer to an ack;
        CPU microseconds of the workers and of the engine for each job.
        """
        for worker in workers:
            await worker.do("seen")  # it has started and opened its store
        engine_s = self.place.cpu_s()
        before = [await worker.do("work", settled=settled) for worker in workers]
        await until_ran(workers, number)
        after = [await worker.do("stop") for worker in workers]
        engine_s = self.place.cpu_s() - engine_s
        cpu_s = sum(one["cpu_s"] for one in after) - sum(one["cpu_s"] for one in before)
        first = min(one["first_ns"] for one in after if one["first_ns"])
        last = max(one["last_ns"] for one in after)
        return number / ((last - first) / 1e9), cpu_s / number * 1e6, engine_s / number * 1e6


def half_load(taken: float, given: float) -> float:
    """Half of what a store does that takes and gives jobs in turn: both cost it their time."""
    return 0.5 / (1 / taken + 1 / given)


Measure = Callable[[Bench], Awaitable[Any]]

MEASURES: dict[str, Measure] = {
    "enqueue": Bench.enqueue,
    "drain": Bench.drain,
    "pickup": Bench.pickup,
    "load": Bench.load,
    "depth": Bench.depth,
    "growth": Bench.growth,
    "rules": Bench.rules,
    "scaling": Bench.scaling,
}
"""In this order: load is half of what enqueue and drain found."""
