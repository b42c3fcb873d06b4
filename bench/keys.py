"""`python -m bench.keys --store postgresql://...`: what the filter of keys saves, and costs.

Keyed enqueues with `bloom=on` and `bloom=off`, side by side in one run: the machine's slow seconds
hit both, so only their ratio counts.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from statistics import median

import msgspec

from bench.stores import ENVELOPE, GONE, QUEUE, fresh
from holdfast.core.job import NewJob
from holdfast.store import Store
from holdfast.stores import open_store

SWITCHES = ("off", "on")
SIZES = (1, 100)
NEW, SEEN, ELSEWHERE = "all new", "all seen here", "all taken elsewhere"
_numbers = count()


class Compared(msgspec.Struct, frozen=True):
    case: str
    size: int
    off_us: float
    """For each job, without the filter: the median of the rounds."""
    on_us: float
    ratio: float
    """Of the time: with the filter to without, the median of the pairs. Below 1 it is faster."""

    def row(self) -> str:
        return (
            f"{self.case:<20} {self.size:>8} {self.off_us:>10.1f} {self.on_us:>10.1f}"
            f" {self.ratio:>7.2f}"
        )


def _job(key: str) -> NewJob:
    """A job of its own with this key."""
    return NewJob(
        tenant="bench",
        id=f"j{next(_numbers)}",
        queue=QUEUE,
        envelope=ENVELOPE,
        rules=GONE,
        key=key,
    )


@asynccontextmanager
async def _warm(url: str, size: int) -> AsyncIterator[Store]:
    """A store whose connection has prepared both ways in."""
    keys = [f"warm-{next(_numbers)}" for _ in range(10 * size)]
    store = open_store(url)
    await store.open()
    try:
        for made in (True, False):
            await _us(store, keys, size, made)
        yield store
    finally:
        await store.close()


async def _us(store: Store, keys: Sequence[str], size: int, made: bool) -> float:
    """Microseconds for each job, enqueued so many together."""
    jobs = [_job(key) for key in keys]
    started = time.perf_counter()
    for first in range(0, len(jobs), size):
        answers = await store.enqueue(jobs[first : first + size])
        assert all(answer.created is made for answer in answers)
    return (time.perf_counter() - started) / len(jobs) * 1e6


async def _round(url: str, size: int, number: int) -> dict[str, float]:
    """Each case once, on a store of this URL."""
    keys = [f"order-{next(_numbers)}" for _ in range(number)]
    async with _warm(url, size) as store:
        took = {NEW: await _us(store, keys, size, True)}
        took[SEEN] = await _us(store, keys, size, False)
    async with _warm(url, size) as store:  # With a filter that knows nothing of these keys.
        took[ELSEWHERE] = await _us(store, keys, size, False)
    return took


async def measure(url: str, number: int, rounds: int) -> list[Compared]:
    """Pairs of rounds, each switch first in every other one."""
    places = {switch: f"{fresh(url, f'keys_{switch}')}&bloom={switch}" for switch in SWITCHES}
    found: list[Compared] = []
    for size in SIZES:
        took: dict[str, list[dict[str, float]]] = {switch: [] for switch in SWITCHES}
        for each in range(rounds):
            for switch in SWITCHES if each % 2 else reversed(SWITCHES):
                took[switch].append(await _round(places[switch], size, number))
        for case in (NEW, SEEN, ELSEWHERE):
            off = [one[case] for one in took["off"]]
            on = [one[case] for one in took["on"]]
            ratio = median(b / a for a, b in zip(off, on, strict=True))
            found.append(Compared(case, size, median(off), median(on), ratio))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.keys", description=__doc__)
    parser.add_argument("--store", required=True, help="postgresql:// URL")
    parser.add_argument("--jobs", type=int, default=2_000, help="of each case in each round")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    found = asyncio.run(measure(given.store, given.jobs, given.rounds))
    print(f"{'keys':<20} {'together':>8} {'off us/job':>10} {'on us/job':>10} {'on/off':>7}")
    for one in found:
        print(one.row())


if __name__ == "__main__":
    main()
