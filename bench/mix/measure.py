"""Runs the mix: every contestant in every cell, in turn, on one private server per store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import IO, Any

import msgspec

from bench.crew import Failed, Member, started, until_ran
from bench.mix.contestants import Contestant, environment
from bench.mix.figures import Cell, Mix
from bench.peers import ROOT
from bench.places import NAMES, Place

ENQUEUE_S_MAX = 60.0
"""No enqueue goes on longer; fewer jobs are drained then."""
RUN_S_MAX = 180.0
"""No single run of a contestant takes longer."""
PEER_TENANTS = 20
"""Peers have no tenants, so one count of them is enough; this one if it is measured."""
QUIET_S, QUIET_PART, QUIET_S_MAX = 0.2, 0.4, 6.0
"""Acks have ended when worker and engine use less than this part of a core."""
FAST = ("memory", "redis")
"""Stores with twice as many jobs, so that a drain lasts long enough to be measured."""
START_S = {"memory": 0.4, "sqlite-full": 0.7, "sqlite-normal": 0.7, "postgres": 2.0, "redis": 1.2}
JOB_US = {"memory": 80, "sqlite-full": 260, "sqlite-normal": 210, "postgres": 260, "redis": 150}
PEER_US = {
    "pgqueuer": 550,
    "pgqueuer-tuned": 500,
    "pgqueuer-uncapped": 400,
    "dramatiq": 500,
    "saq": 700,
    "huey": 450,
}
"""What a run takes besides its jobs, and each job, enqueue and drain together, on an idle machine
of two cores: for the estimate only.
"""

Say = Callable[[str], None]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured. The defaults are those of the report."""

    jobs: int = 8_000
    """Of each run; twice as many on memory and Redis."""
    rounds: int = 3
    tenants: Sequence[int] = (1, 20, 1_000)
    concurrency: Sequence[int] = (10, 100)
    limits: Sequence[bool] = (False, True)
    stores: Sequence[str] = NAMES
    minutes_max: float = 120.0
    """No run begins later than this."""

    @classmethod
    def quick(cls) -> Shape:
        """Shows that all works; the figures mean little."""
        return cls(jobs=300, rounds=1, tenants=(20,), concurrency=(10,))

    def cells(self, store: str) -> Iterator[Cell]:
        for limits in self.limits:
            for tenants in self.tenants:
                for concurrency in self.concurrency:
                    yield Cell(store=store, tenants=tenants, concurrency=concurrency, limits=limits)

    def jobs_on(self, store: str) -> int:
        return self.jobs * 2 if store in FAST else self.jobs

    def takes_part(self, one: Contestant, cell: Cell) -> bool:
        """Peers run in the cells of one count of tenants, without limits."""
        if cell.store not in one.stores:
            return False
        at = PEER_TENANTS if PEER_TENANTS in self.tenants else self.tenants[0]
        return one.ours or (cell.tenants == at and not cell.limits)

    def minutes(self, contestants: Sequence[Contestant]) -> float:
        """About how long it takes on an idle machine."""
        seconds = 0.0
        for store in self.stores:
            for cell in self.cells(store):
                for one in contestants:
                    if self.takes_part(one, cell):
                        us = PEER_US.get(one.name, JOB_US[store])
                        seconds += START_S[store] + self.jobs_on(store) * us / 1e6
        return seconds * self.rounds / 60


class Bench:
    """Fills the figures of the mix, store by store."""

    def __init__(
        self, shape: Shape, contestants: Sequence[Contestant], found: Mix, say: Say
    ) -> None:
        self._shape = shape
        self._contestants = contestants
        self._found = found
        self._say = say
        self._until = time.monotonic() + shape.minutes_max * 60

    async def store(self, place: Place) -> None:
        """All cells of one store, round by round, so that a slow minute meets all contestants.

        The contestants of a cell run right after each other, in the opposite order every second
        round.
        """
        self._found.stores[place.name] = f"{place.version} {place.settings}".strip()
        for turn in range(self._shape.rounds):
            for cell in self._shape.cells(place.name):
                order = [one for one in self._contestants if self._shape.takes_part(one, cell)]
                for one in order if turn % 2 == 0 else reversed(order):
                    if time.monotonic() > self._until:
                        self._say(f"{place.name}: out of time, the rest is left out")
                        return
                    await self._run(place, cell, one, turn)

    async def _run(self, place: Place, cell: Cell, one: Contestant, turn: int) -> None:
        """One contestant once. A failure is noted with its reason; the others go on."""
        row, begun = self._found.row(one.name, cell), time.monotonic()
        try:
            async with asyncio.timeout(RUN_S_MAX):
                told = await self._measured(place, cell, one)
        except TimeoutError:
            told = f"failed: not done within {RUN_S_MAX:.0f} s"
            row.failed.append(told)
        except Exception as error:
            told = f"failed: {type(error).__name__}: {error}"
            row.failed.append(told)
        took = time.monotonic() - begun
        self._say(f"round {turn + 1}, {cell.told()}: {one.name} {told} ({took:.1f} s)")
        try:
            place.clear()
        except Exception as error:  # the next one clears what this one left
            self._say(f"{place.name}: not cleared: {type(error).__name__}: {error}")

    async def _measured(self, place: Place, cell: Cell, one: Contestant) -> str:
        url, row = place.fresh("mix"), self._found.row(one.name, cell)
        async with _member(one, cell, url) as client:
            await client.do("prepare")
            number = self._shape.jobs_on(cell.store)
            sent = await client.do("enqueue", number=number, cap_s=ENQUEUE_S_MAX)
            place.settle()
            if place.alone:
                drained = await self._drained(place, client, one, sent["done"])
            else:
                async with _member(one, cell, url) as worker:
                    drained = await self._drained(place, worker, one, sent["done"])
        row.enqueue.append(sent["per_s"])
        row.drain.append(drained["drain"])
        row.worker_us.append(drained["worker_us"])
        row.engine_us.append(drained["engine_us"])
        if one.ours:
            row.settled.append(drained["settled"])
        return f"enqueue {sent['per_s']:,.0f}/s, drain {drained['drain']:,.0f}/s"

    async def _drained(
        self, place: Place, worker: Member, one: Contestant, number: int
    ) -> dict[str, float]:
        """Rates to the last handler's end and to the last ack; CPU until the acks have ended."""
        await worker.do("seen")  # it has opened its store
        engine_s = place.cpu_s()
        before = await worker.do("work")
        await until_ran([worker], number)
        if one.ours:
            await until_ran([worker], number, "settled")
        else:
            await _quiet(place, worker)
        after = await worker.do("seen")
        engine_s, cpu_s = place.cpu_s() - engine_s, after["cpu_s"] - before["cpu_s"]
        return {
            "drain": number / (max(1, after["last_ns"] - after["first_ns"]) / 1e9),
            "settled": number / (max(1, after["settled_ns"] - after["first_ns"]) / 1e9),
            "worker_us": cpu_s / number * 1e6,
            "engine_us": engine_s / number * 1e6,
        }


async def _quiet(place: Place, worker: Member) -> None:
    """Waits until the acks of a queue that does not tell about them have ended."""
    until = time.monotonic() + QUIET_S_MAX
    used, at = 0.0, 0.0
    while time.monotonic() < until:
        now_used, now = (await worker.do("seen"))["cpu_s"] + place.cpu_s(), time.monotonic()
        if at and now_used - used < QUIET_PART * (now - at):
            return
        used, at = now_used, now
        await asyncio.sleep(QUIET_S)


@contextlib.asynccontextmanager
async def _member(one: Contestant, cell: Cell, url: str) -> AsyncIterator[Member]:
    """A process of this contestant. What it wrote to its error output is told if it fails."""
    given = {
        "url": url,
        "concurrency": cell.concurrency,
        "tenants": cell.tenants,
        "limits": cell.limits,
    }
    with tempfile.TemporaryFile("w+") as errors:
        options: dict[str, Any] = {"cwd": ROOT, "env": environment(one), "stderr": errors}
        command = [*one.command(), json.dumps(given)]
        try:
            async with started(command, **options) as member:
                yield member
        except Failed as failed:
            raise Failed(f"{failed} {_last_line(errors)}") from None


def _last_line(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line for line in errors.read().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
