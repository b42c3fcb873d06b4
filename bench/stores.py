"""Stores and jobs for the benchmarks of scopes: below the library, only the store counts."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from holdfast.core.bounds import BATCH_MAX, CLAIM_MAX
from holdfast.core.clock import SECOND, Micros
from holdfast.core.job import Completed, Envelope, Lease, NewJob, Rules
from holdfast.core.lifecycle import decide
from holdfast.store import Claim, Store
from holdfast.stores import open_store

LEASE_US = 600 * SECOND
ENVELOPE = Envelope("noop", "json", 1, b'{"number":7,"filler":"' + b"x" * 70 + b'"}')
GONE = Rules(keep_us=0)
"""Finished jobs are deleted at once."""
KEPT = Rules()
QUEUE = "work"


def fresh(url: str, label: str) -> str:
    """The URL of a store that no other part of the benchmark has written to."""
    path, mark, options = url.partition("?")
    scheme, mine = path.partition(":")[0], f"bench_{label}_{secrets.token_hex(3)}"
    if scheme in ("postgresql", "postgres"):
        return f"{path}?migrate=auto&schema={mine}{'&' if options else ''}{options}"
    if scheme.startswith("redis"):
        return f"{path}?prefix={mine}:{'&' if options else ''}{options}"
    if scheme == "fdb":
        return f"{path}?prefix={mine}{'&' if options else ''}{options}"
    if scheme != "sqlite":
        return url
    stem, _, _ = path.rpartition(".db")
    return f"{stem or path}-{label}-{secrets.token_hex(3)}.db{mark}{options}"


@asynccontextmanager
async def opened(url: str, label: str) -> AsyncIterator[Store]:
    store = open_store(fresh(url, label))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def job(
    tenant: str, id: str, rules: Rules = GONE, group: str | None = None, delay_us: Micros = 0
) -> NewJob:
    return NewJob(
        tenant=tenant,
        id=id,
        queue=QUEUE,
        envelope=ENVELOPE,
        rules=rules,
        group=group,
        delay_us=delay_us,
    )


async def fill(store: Store, jobs: Iterable[NewJob]) -> None:
    """Enqueues any number of jobs, in batches."""
    source = iter(jobs)
    while batch := list(islice(source, BATCH_MAX)):
        for answer in await store.enqueue(batch):
            if answer.error is not None:
                raise answer.error
        await asyncio.sleep(0)


def claim_of(limit: int) -> Claim:
    return Claim(worker="bench", nonce=secrets.token_hex(8), limit=limit, lease_us=LEASE_US)


async def settle(store: Store, leases: list[Lease]) -> None:
    """Completes what was claimed."""
    for start in range(0, len(leases), BATCH_MAX):
        part = leases[start : start + BATCH_MAX]
        await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in part])


async def finish_all(store: Store) -> None:
    """Claims and completes until nothing is left."""
    while leases := await store.claim(claim_of(CLAIM_MAX)):
        await settle(store, leases)


class Cost(msgspec.Struct, frozen=True):
    """What one claim takes."""

    case: str
    us: float
    """Median, in microseconds."""


async def claim_cost(store: Store, case: str, samples: int, size: int = 1) -> Cost:
    """The median of claims of so many jobs each. There must be as many jobs that can run."""
    took = []
    for _ in range(samples):
        started = time.perf_counter()
        leases = await store.claim(claim_of(size))
        took.append(time.perf_counter() - started)
        assert len(leases) == size, f"{case}: {len(leases)} to claim of {size}"
    return Cost(case, statistics.median(took) * 1e6)
