"""`python -m bench.verbs --store URL`: what the busy verbs of a store take, alone and in batches.

Below the library: the verbs themselves, one call after the other, then by many callers at once.
Give several stores to have them in one run; figures of two runs are not compared.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from statistics import median

import msgspec

from bench.stores import GONE, QUEUE, claim_of, job, opened, settle
from bench.table import lines
from holdfast.core.job import Lease
from holdfast.store import Store

SIZES = (1, 100)
CALLERS = 32
CALLS = {1: 300, 100: 60}
"""Calls of each size, by one caller; all callers together make four times as many."""
MORE = 4
HEAD = ("store", "verb", "jobs in a call", "p50 ms", "jobs/s", f"jobs/s by {CALLERS} callers")

_numbers = count()


class Found(msgspec.Struct, frozen=True):
    store: str
    verb: str
    size: int
    p50_ms: float
    per_s: float
    per_s_many: float

    def row(self) -> tuple[str, ...]:
        return (
            self.store,
            self.verb,
            f"{self.size}",
            f"{self.p50_ms:.2f}",
            f"{self.per_s:,.0f}",
            f"{self.per_s_many:,.0f}",
        )


class Verbs:
    """The three verbs on one store; what one makes the next takes."""

    def __init__(self, store: Store, size: int) -> None:
        self._store = store
        self._size = size
        self._held: list[list[Lease]] = []

    async def enqueue(self) -> None:
        jobs = [job("acme", f"j{next(_numbers)}", GONE) for _ in range(self._size)]
        fresh = [msgspec.structs.replace(one, fresh=True) for one in jobs]
        for answer in await self._store.enqueue(fresh):
            assert answer.created

    async def claim(self) -> None:
        leases = await self._store.claim(claim_of(self._size))
        if leases:
            self._held.append(leases)

    async def ack(self) -> None:
        if self._held:
            await settle(self._store, self._held.pop())

    @property
    def jobs_held(self) -> int:
        return sum(map(len, self._held))


async def timed(act: Callable[[], Awaitable[None]], calls: int, callers: int) -> list[float]:
    """The seconds of each call; the last figure is that of all of them together."""
    took: list[float] = []
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            started = time.perf_counter()
            await act()
            took.append(time.perf_counter() - started)

    begun = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return [*took, time.perf_counter() - begun]


async def measure(url: str, name: str) -> list[Found]:
    found: list[Found] = []
    for size in SIZES:
        async with opened(url, f"verbs{size}") as store:
            found += await _measure(store, name, size)
    return found


async def _measure(store: Store, name: str, size: int) -> list[Found]:
    """Alone first, then together; what is left of each verb's jobs is the next one's."""
    verbs, calls = Verbs(store, size), CALLS[size]
    alone: dict[str, tuple[float, float]] = {}
    many: dict[str, float] = {}
    for callers, times, kept in ((1, 1, True), (CALLERS, MORE, False)):
        held = 0
        for verb in (verbs.enqueue, verbs.claim, verbs.ack):
            *took, whole = await timed(verb, calls * times, callers)
            held = verbs.jobs_held if verb == verbs.claim else held
            jobs = calls * times * size if verb == verbs.enqueue else held
            if kept:
                alone[verb.__name__] = (median(took) * 1e3, jobs / whole)
            else:
                many[verb.__name__] = jobs / whole
    return [Found(name, verb, size, *alone[verb], many[verb]) for verb in alone]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.verbs", description=__doc__)
    parser.add_argument("--store", action="append", required=True, metavar="URL")
    urls: list[str] = parser.parse_args(arguments).store
    found = [each for url in urls for each in asyncio.run(measure(url, url.partition(":")[0]))]
    print(f"queue {QUEUE!r}, payloads of about 100 bytes")
    print("\n".join(lines(HEAD, [each.row() for each in found])))


if __name__ == "__main__":
    main()
