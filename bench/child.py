"""`python -m bench.child URL`: one process of a benchmark; does what it reads, a line at a time.

A client and a worker are two of these, each a process of its own, as in production; on the memory
store one does both. Lines are JSON: `{"do": "bulk", "number": 1000}` is answered with what it gave.
Ends with its input, so that none outlives the benchmark.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast import App, Context
from holdfast.events import Confirmed
from holdfast.loop import run
from holdfast.worker.worker import Worker

TENANT = "bench"
FILLER = "x" * 50
"""Makes the JSON payload about 100 bytes."""
IN_FLIGHT = 100
IN_BULK = 1000
TICK_S = 0.01
FLOOR_JOBS = 100_000

Answer = dict[str, Any]


class Child:
    """The app, what its jobs noted, and the verbs."""

    def __init__(self, url: str) -> None:
        # Finished jobs are deleted at once, as in the peers this is compared with.
        self.app = App(url, concurrency=1000, keep_s=0)
        self.tenant = self.app.tenant(TENANT)
        self.ran = self.first_ns = self.last_ns = 0
        self.waits_ns: list[int] = []
        self._noting = False
        self._working: tuple[Worker, asyncio.Task[None]] | None = None

        @self.app.job(name="noop")
        async def noop(ctx: Context, number: int, sent_ns: int, filler: str) -> None:
            now = time.monotonic_ns()
            if self._noting:
                self.waits_ns.append(now - sent_ns)
            if not self.first_ns:
                self.first_ns = now
            self.last_ns = now
            self.ran += 1

        self._noop = noop

    def _job(self, number: int) -> Any:
        return self._noop(number=number, sent_ns=time.monotonic_ns(), filler=FILLER)

    def _confirmed(self, _: Confirmed) -> None:
        self.last_ns = time.monotonic_ns()

    # -- the client --------------------------------------------------------------------------

    async def single(self, number: int, cap_s: float) -> Answer:
        """One at a time, each awaited."""
        await self.tenant.enqueue(self._job(0))  # opens the connection, outside of the timing
        started, done = time.perf_counter(), 0
        while done < number and time.perf_counter() - started < cap_s:
            await self.tenant.enqueue(self._job(done))
            done += 1
        return _rate(done, started)

    async def concurrent(self, number: int, cap_s: float) -> Answer:
        """So many callers, each of which awaits its own."""
        started, numbers = time.perf_counter(), iter(range(number))

        async def caller() -> int:
            done = 0
            for each in numbers:
                await self.tenant.enqueue(self._job(each))
                done += 1
                if time.perf_counter() - started > cap_s:
                    break
            return done

        done = await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        return _rate(sum(done), started)

    async def bulk(self, number: int, cap_s: float) -> Answer:
        """In calls of a thousand."""
        started, done = time.perf_counter(), 0
        while done < number and time.perf_counter() - started < cap_s:
            last = min(done + IN_BULK, number)
            await self.tenant.enqueue_many(self._job(each) for each in range(done, last))
            done = last
        return _rate(done, started)

    async def pickup(self, number: int, gap_s: float) -> Answer:
        """Singles at a distance, so that the worker is idle when each comes."""
        for each in range(number):
            await self.tenant.enqueue(self._job(each))
            await asyncio.sleep(gap_s)
        return {"done": number}

    async def paced(self, per_s: float, seconds: float) -> Answer:
        """So many a second, in one call every tick, however slow the answers are."""
        started, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - started) < seconds:
            due = int(min(now + TICK_S, seconds) * per_s)
            for first in range(sent, due, IN_BULK):
                last = min(first + IN_BULK, due)
                await self.tenant.enqueue_many(self._job(each) for each in range(first, last))
            sent = max(sent, due)
            await asyncio.sleep(max(0.0, TICK_S - (time.perf_counter() - started - now)))
        return _rate(sent, started)

    # -- the worker --------------------------------------------------------------------------

    async def work(self, settled: bool = False) -> Answer:
        """Starts a worker in this process. Settled: a job ends when the store knows of it."""
        self.ran = self.first_ns = self.last_ns = 0
        if settled:
            self.app.subscribe(self._confirmed)
        worker = Worker(self.app)
        self._working = (worker, asyncio.create_task(worker.run()))
        return await self.seen()

    async def seen(self) -> Answer:
        """What ran so far, and what it took."""
        if self._working is not None and self._working[1].done():
            self._working[1].result()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "ran": self.ran,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "rss": _rss(),
            "peak": _peak(),
        }

    async def note(self) -> Answer:
        """Keeps the waits of the jobs from now on."""
        self.waits_ns, self._noting = [], True
        return {}

    async def waits(self) -> Answer:
        """From just before each enqueue to the start of its handler."""
        self._noting = False
        return {"ms": [wait / 1e6 for wait in self.waits_ns]}

    async def stop(self) -> Answer:
        """Ends the worker: all that ran is settled on return."""
        if self._working is not None:
            worker, task = self._working
            worker.stop()
            await task
            self._working = None
        return await self.seen()

    async def floor(self) -> Answer:
        """What this loop does without a queue: decode a payload, run one task."""
        body = msgspec.json.encode({"number": 1, "sent_ns": 1, "filler": FILLER})

        async def noop(_: Any) -> None:
            return None

        started = time.perf_counter()
        for _ in range(0, FLOOR_JOBS, IN_FLIGHT):
            tasks = (asyncio.ensure_future(noop(json.loads(body))) for _ in range(IN_FLIGHT))
            await asyncio.gather(*tasks)
        return _rate(FLOOR_JOBS, started)


def _rate(done: int, started: float) -> Answer:
    return {"done": done, "per_s": done / max(time.perf_counter() - started, 1e-9)}


def _rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    """The most it ever had. What `getrusage` says begins with what the parent had at the fork."""
    with open("/proc/self/status") as file:
        kilobytes = next(line.split()[1] for line in file if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024


async def serve(url: str) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    child = Child(url)
    async with child.app:
        while line := await lines.readline():
            asked = json.loads(line)
            verb: Callable[..., Awaitable[Answer]] = getattr(child, asked.pop("do"))
            try:
                answer = await verb(**asked)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)


def main() -> None:
    run(serve(sys.argv[1]))  # as `holdfast worker` does


if __name__ == "__main__":
    main()
