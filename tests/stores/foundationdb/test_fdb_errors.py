"""FoundationDB's faults: conflicts, unknown commits, old reads, delays, jumps of the version."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter

import pytest
from tests.foundationdb_engine import Engine, Faults, FDBError

from holdfast.core.job import Completed, EventKind, Outcome, Released
from holdfast.core.lifecycle import decide
from holdfast.store import Claim
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.builders import ACME, HOUR, LEASE, job, rules

STORES = 3
CALLS = 5
BATCH = 4
JOBS = STORES * CALLS * BATCH
ENDS_S = 60.0
"""A lost job would be waited for: the run ends then. Producers back off by the wall clock."""
WISHES: list[Outcome] = [Completed(), Completed(), Released()]
SEEDS = [
    *range(300),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(300, 10_000)),
]


def _storm(seed: int) -> Faults:
    draw = random.Random(seed)
    return Faults(
        seed,
        conflict=draw.choice((0.0, 0.05, 0.1)),
        unknown=draw.choice((0.05, 0.15)),
        too_old=0.02,
        future=0.01,
        timeout=draw.choice((0.0, 0.03, 0.06)),
        delay=draw.choice((0.0, 0.3, 0.8)),
    )


async def _produce(store: FoundationStore, number: int) -> None:
    for call in range(CALLS):
        jobs = [
            job(
                f"{number}-{call}-{place}",
                rules=rules(keep_us=0 if place % 2 else HOUR, max_attempts=50),
                group="g" if place == 3 else None,
            )
            for place in range(BATCH)
        ]
        assert all(one.created for one in await store.enqueue(jobs))


async def _work(store: FoundationStore, done: Counter[str], chance: random.Random) -> None:
    while done.total() < JOBS:
        nonce = f"{chance.getrandbits(128):032x}"
        leases = await store.claim(Claim(worker="w", nonce=nonce, limit=5, lease_us=LEASE))
        if not leases:
            await asyncio.sleep(0)
        wishes = [chance.choice(WISHES) for _ in leases]
        changes = [
            decide(wish, one.job, one.token, 0.0) for wish, one in zip(wishes, leases, strict=True)
        ]
        for answer, wish in zip(await store.ack(changes), wishes, strict=True):
            assert answer.error is None
            done[answer.id] += isinstance(wish, Completed)


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_and_none_accepted_twice(seed: int) -> None:
    """Three stores enqueue and work while the cluster fails by this seed."""
    engine = Engine(faults=_storm(seed))
    stores = [
        FoundationStore(Options(prefix="c", retry_s=600), None, engine.database())
        for _ in range(STORES)
    ]
    for store in stores:
        await store.open()
    done: Counter[str] = Counter()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDS_S):
            await asyncio.gather(
                *(_produce(store, n) for n, store in enumerate(stores)),
                *(
                    _work(store, done, random.Random(seed * 10 + n))
                    for n, store in enumerate(stores)
                ),
            )

    engine.faults.heal()
    assert (len(done), set(done.values())) == (JOBS, {1})
    page = await stores[0].events(ACME, 0, 1000)
    kinds = Counter((event.job_id, event.kind) for event in page.events)
    for id in done:
        assert kinds[id, EventKind.ENQUEUED] == kinds[id, EventKind.COMPLETED] == 1
        ends = kinds[id, EventKind.COMPLETED] + kinds[id, EventKind.RELEASED]
        assert kinds[id, EventKind.LEASED] == ends
    assert all(tally.correction == 0 for tally in await stores[0].count(ACME, recount=True))
    for store in stores:
        await store.close()


async def test_an_enqueue_in_the_callers_transaction_is_kept_when_that_commits() -> None:
    """And not before."""
    engine = Engine()
    store = FoundationStore(Options(prefix="c"), None, engine.database())
    await store.open()
    theirs = engine.database().create_transaction()
    theirs[b"mine"] = b"1"

    [answer] = await store.enqueue_using(theirs, [job("x")])
    claim = Claim(worker="w", nonce="n", limit=10, lease_us=LEASE)
    before = await store.claim(claim)
    theirs.commit().wait()

    assert answer.created
    assert before == []
    assert [one.job.id for one in await store.claim(claim)] == ["x"]
    await store.close()


async def test_the_callers_transaction_tried_again_finds_its_first_try() -> None:
    """Its commit was done, but nobody heard of it (1021): the same ids are not enqueued twice."""
    engine = Engine()
    store = FoundationStore(Options(prefix="c"), None, engine.database())
    await store.open()
    theirs = engine.database().create_transaction()
    [first] = await store.enqueue_using(theirs, [job("x")])
    engine.faults.plan("commit", 1021, fate="applied")
    with pytest.raises(FDBError) as unknown:
        theirs.commit().wait()
    theirs.on_error(unknown.value).wait()

    [second] = await store.enqueue_using(theirs, [job("x")])
    theirs.commit().wait()

    assert (first.created, second.created) == (True, False)
    claim = Claim(worker="w", nonce="n", limit=10, lease_us=LEASE)
    assert [one.job.id for one in await store.claim(claim)] == ["x"]
    page = await store.events(ACME, 0, 10)
    assert [event.kind for event in page.events] == [EventKind.ENQUEUED, EventKind.LEASED]
    await store.close()
