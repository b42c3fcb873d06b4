"""What every contestant's process does: reads a command per line, answers with a line of JSON.

Standard library only, since it runs in the environment of each queue. The process ends with its
input, so that none outlives the benchmark.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from bench.mix.jobs import MixJob, mix_jobs

IN_FLIGHT = 100
"""Callers that enqueue at the same time, each awaiting its own call."""

Answer = dict[str, Any]


class Given(NamedTuple):
    """What the process was started with."""

    url: str
    concurrency: int
    tenants: int
    limits: bool


class Notes:
    """What the handlers did. The body of every handler is one call of `ran`."""

    def __init__(self) -> None:
        self.handled = self.first_ns = self.last_ns = 0
        self.settled = self.settled_ns = 0
        self._lock = threading.Lock()

    def ran(self) -> None:
        now = time.monotonic_ns()
        with self._lock:
            self.handled += 1
            self.first_ns = self.first_ns or now
            self.last_ns = now

    def confirmed(self, _: object) -> None:
        """The store has accepted the outcome of a job. Only Holdfast says so."""
        self.settled += 1
        self.settled_ns = time.monotonic_ns()


class Contestant(Protocol):
    """One queue library. A process opens it and uses it as client, as worker, or as both."""

    blocking: bool
    """Whether its client blocks the caller: then it enqueues one job after the other."""

    async def open(self) -> None: ...

    async def prepare(self) -> None:
        """Makes tables and limits, once, before anything is measured."""

    def enqueue(self, job: MixJob) -> Any:
        """One call for one job; awaitable unless the client blocks."""

    async def start(self) -> None:
        """Starts one worker."""


Make = Callable[[Given, Notes], Contestant]
Run = Callable[[Coroutine[Any, Any, None]], None]


class Child:
    """The commands."""

    def __init__(self, given: Given, notes: Notes, contestant: Contestant) -> None:
        self._given = given
        self._notes = notes
        self._contestant = contestant

    async def prepare(self) -> Answer:
        await self._contestant.prepare()
        return {}

    async def enqueue(self, number: int, cap_s: float) -> Answer:
        """One call per job. The jobs are made before the clock starts."""
        jobs = list(mix_jobs(number, self._given.tenants))
        started = time.perf_counter()
        if self._contestant.blocking:
            done = self._one_by_one(jobs, started + cap_s)
        else:
            done = await self._in_flight(jobs, started + cap_s)
        seconds = max(time.perf_counter() - started, 1e-9)
        return {"done": done, "per_s": done / seconds}

    def _one_by_one(self, jobs: list[MixJob], until: float) -> int:
        for done, job in enumerate(jobs):
            if time.perf_counter() > until:
                return done
            self._contestant.enqueue(job)
        return len(jobs)

    async def _in_flight(self, jobs: list[MixJob], until: float) -> int:
        left, enqueue = iter(jobs), self._contestant.enqueue

        async def caller() -> int:
            done = 0
            for job in left:
                await enqueue(job)
                done += 1
                if time.perf_counter() > until:
                    break
            return done

        return sum(await asyncio.gather(*(caller() for _ in range(IN_FLIGHT))))

    async def work(self) -> Answer:
        seen = await self.seen()
        await self._contestant.start()
        return seen

    async def seen(self) -> Answer:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        notes = self._notes
        return {
            "ran": notes.handled,
            "first_ns": notes.first_ns,
            "last_ns": notes.last_ns,
            "settled": notes.settled,
            "settled_ns": notes.settled_ns,
            "cpu_s": usage.ru_utime + usage.ru_stime,
        }


async def _serve(make: Make, given: Given, answers: Any) -> None:
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    notes = Notes()
    contestant = make(given, notes)
    await contestant.open()
    child = Child(given, notes, contestant)
    while line := await lines.readline():
        asked = json.loads(line)
        command: Callable[..., Awaitable[Answer]] = getattr(child, asked.pop("do"))
        try:
            answer = await command(**asked)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # some libraries leave threads behind that would not end


def serve(make: Make, run: Run) -> None:
    """Runs the process to the end of its input. Its arguments are those of `Given`, as JSON."""
    # Libraries may print; only answers go to the one that measures.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run(_serve(make, Given(**json.loads(sys.argv[1])), answers))


def on_uvloop(task: Coroutine[Any, Any, None]) -> None:
    """For the libraries whose authors advise it."""
    import uvloop

    uvloop.run(task)


def on_one_core() -> None:
    """Threads of Python that share one core are up to twice as fast as on two."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
