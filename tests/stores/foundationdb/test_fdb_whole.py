"""Whole calls, and jobs that end with their parents, while the cluster fails."""

from __future__ import annotations

import asyncio

import pytest
from tests.foundationdb_engine import Engine, Faults
from tests.stores.foundationdb.test_fdb_signal import stores_at

from holdfast.core.errors import BatchRefused, InvalidInput
from holdfast.core.job import Completed, EventKind, Failed, State
from holdfast.core.journal import Edge, OnFailure
from holdfast.core.lifecycle import decide
from holdfast.store import Claim
from holdfast.stores.foundationdb.layout import WHOLE_BYTES_MAX
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, LEASE, finding, ids, job

SEEDS = range(25)


async def kinds(store: FoundationStore, id: str) -> list[EventKind]:
    page = await store.events(ACME, 0, 1000, id)
    return [event.kind for event in page.events]


@pytest.mark.parametrize("seed", SEEDS)
async def test_of_whole_calls_that_share_a_job_one_creates_its_jobs(seed: int) -> None:
    """P1, P12: however commits conflict or are lost, and nothing is left of the other."""
    faults = Faults(seed, conflict=0.1, unknown=0.3, delay=0.6)
    stores = await stores_at(Engine(ManualClock(), faults=faults), 2)
    calls = [[job(f"{n}-{place}") for place in range(3)] + [job("both")] for n in range(2)]

    answers = await asyncio.gather(
        *(store.enqueue(jobs, whole=True) for store, jobs in zip(stores, calls, strict=True))
    )

    faults.heal()
    [first] = [n for n in range(2) if answers[n][0].created]
    assert all(each.created for each in answers[first])
    *others, both = answers[1 - first]
    assert {type(each.error) for each in others} == {BatchRefused}
    assert (both.created, both.error) == (False, None)
    page = await stores[0].find(finding(ACME))
    assert {found.id for found in page.jobs} == {each.id for each in calls[first]}
    events = await stores[0].events(ACME, 0, 100)
    assert len(events.events) == len(calls[first])
    for store in stores:
        await store.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_job_ends_with_parents_of_several_stores_once(seed: int) -> None:
    """P17: or runs, if one of them has not completed, wherever that was counted."""
    number = (2, 15, 16, 40)[seed % 4]
    faults = Faults(seed, conflict=0.05, unknown=0.1, delay=0.6)
    stores = await stores_at(Engine(ManualClock(), faults=faults), 4)
    edges = (Edge("all", "", OnFailure.RUN), Edge("not all", "", OnFailure.RUN))
    parents = [job(f"p{n}", edges=edges) for n in range(number)]
    failing = job("failing", edges=edges[1:])
    heads = [
        job("all", parents=number, ends_with_parents=True),
        job("not all", parents=number + 1, ends_with_parents=True),
    ]
    await stores[0].enqueue([*heads, *parents, failing], whole=True)
    leases = await stores[0].claim(Claim(worker="w", nonce="n", limit=100, lease_us=LEASE))
    acks = [
        decide(
            Failed("no", retryable=False) if lease.job.id == "failing" else Completed(),
            lease.job,
            lease.token,
            0.0,
        )
        for lease in leases
    ]

    await asyncio.gather(*(stores[n % 4].ack([each]) for n, each in enumerate(acks)))

    faults.heal()
    assert await kinds(stores[1], "all") == [EventKind.ENQUEUED, EventKind.COMPLETED]
    assert await kinds(stores[1], "not all") == [EventKind.ENQUEUED, EventKind.READY]
    claim = Claim(worker="w", nonce="m", limit=100, lease_us=LEASE)
    assert ids(await stores[1].claim(claim)) == ["not all"]
    assert all(tally.correction == 0 for tally in await stores[0].count(ACME, recount=True))
    for store in stores:
        await store.close()


async def test_a_whole_call_is_one_transaction(bench: Bench) -> None:
    """P15: with as many bytes as that takes; a larger one is refused, and nothing is stored."""
    large = [job(f"j{n}", body=b"x" * 250_000) for n in range(WHOLE_BYTES_MAX // 251_000)]

    with pytest.raises(InvalidInput, match="jobs: come to about"):
        await bench.store.enqueue([*large, *large[:1]], whole=True)
    assert (await bench.store.find(finding(ACME))).jobs == []

    assert all(answer.created for answer in await bench.store.enqueue(large, whole=True))
    tallies = await bench.store.count(ACME)
    assert [tally.counts for tally in tallies] == [{State.ENQUEUED: len(large)}]
