"""Claimers that race for the jobs of one store, in threads with their own loops or in processes.

They use the store's own clock, because they test real concurrency.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.core.job import Lease
from holdfast.store import Claim, Store
from holdfast.stores import open_store
from holdfast.testing.contract.builders import LEASE

T = TypeVar("T")

BOUND_S = 120.0
"""Maximum time of a race: a deadlock is a failure."""
SWITCH_S = 1e-5
"""Switch interval of threads, short enough to interrupt short verbs."""
MISSES = 3
"""Empty claims in a row after which a claimer stops."""


def in_threads(works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Runs each coroutine on its own event loop in its own thread, all starting together.

    Returns their results in order; raises the first error.
    """
    gate = threading.Barrier(len(works))
    results: list[T | None] = [None] * len(works)
    errors: list[BaseException] = []

    def run(place: int, work: Callable[[], Awaitable[T]]) -> None:
        async def bounded() -> T:
            async with asyncio.timeout(BOUND_S):
                return await work()

        try:
            gate.wait(BOUND_S)
            results[place] = asyncio.run(bounded())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(works)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    if errors:
        raise errors[0]
    return [result for result in results if result is not None]


async def claim_all(store: Store, worker: str, limit: int = 10) -> list[Lease]:
    """Claims until nothing is left, keeping every lease."""
    leases: list[Lease] = []
    misses = 0
    while misses < MISSES:
        taken = await store.claim(
            Claim(worker=worker, nonce=uuid.uuid4().hex, limit=limit, lease_us=LEASE)
        )
        misses = 0 if taken else misses + 1
        leases += taken
    return leases


async def claim_together(store: Store, name: str, claimers: int) -> list[Lease]:
    """Several claimers on one event loop."""
    taken = await asyncio.gather(*(claim_all(store, f"{name}-{n}") for n in range(claimers)))
    return [lease for leases in taken for lease in leases]


def _claim_in_process(url: str, name: str, claimers: int) -> list[tuple[str, str, int, str]]:
    async def work() -> list[Lease]:
        store = open_store(url)
        await store.open()
        try:
            async with asyncio.timeout(BOUND_S):
                return await claim_together(store, name, claimers)
        finally:
            await store.close()

    leases = asyncio.run(work())
    return [(each.job.tenant, each.job.id, each.job.fence, each.token) for each in leases]


def claim_in_processes(
    url: str, processes: int, claimers: int
) -> list[list[tuple[str, str, int, str]]]:
    """The leases of each process: (tenant, id, fence, token). The processes share only the URL."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(processes) as pool:
        works = [(url, f"p{n}", claimers) for n in range(processes)]
        taken = pool.starmap_async(_claim_in_process, works, chunksize=1).get(BOUND_S)
        pool.close()
        pool.join()
    return taken
