"""Many claimers of one line: few transactions in vain, and nobody leaves while jobs are there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from tests.foundationdb_engine import Engine, Faults

from holdfast.store import Claim
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, MAIL, job

CLAIMERS = 32
JOBS = 5_000
FILL = 1_000
LIMIT = 10
DELAY = 0.8
"""The share of answers that take a while: without any, transactions would not meet."""
WASTED_MAX = 0.05


def store_at(engine: Engine) -> FoundationStore:
    """On the engine's clock, which stands still: no transaction is too old on a busy machine."""
    return FoundationStore(Options(prefix="c"), engine.clock, engine.database())


def left(store: FoundationStore, engine: Engine) -> int:
    """How many jobs of the line are ready at this very moment."""
    ready = store._open().keys.ready(ACME, MAIL)
    return len(engine.database().get_range(ready, ready + b"\xff"))


async def drain(store: FoundationStore, number: int, engine: Engine, taken: Counter[str]) -> int:
    """Claims until it gets nothing; gives how much was there then."""
    for call in range(JOBS):
        claim = Claim(worker=f"w{number}", nonce=f"{number}-{call}", limit=LIMIT, lease_us=LEASE)
        leases = await store.claim(claim)
        if not leases:
            return left(store, engine)
        taken.update(one.job.id for one in leases)
    raise AssertionError("more claims than jobs")


async def test_claimers_of_one_queue_waste_few_transactions(
    record_property: Callable[[str, object], None],
) -> None:
    """32 claimers, 5,000 jobs: each job once, at most 5 % of all tries to commit are in vain, and
    no claim comes back empty while jobs are left.
    """
    engine = Engine(ManualClock(), faults=Faults(seed=1, delay=DELAY))
    stores = [store_at(engine) for _ in range(CLAIMERS)]
    for store in stores:
        await store.open()
    for start in range(0, JOBS, FILL):
        await stores[0].enqueue([job(f"j{n}") for n in range(start, start + FILL)])
    before = engine.counts
    taken: Counter[str] = Counter()

    left_behind = await asyncio.gather(
        *(drain(store, number, engine, taken) for number, store in enumerate(stores))
    )

    after = engine.counts
    tries, done = after.attempts - before.attempts, after.commits - before.commits
    wasted = 1 - done / tries
    record_property("wasted", round(wasted, 4))
    print(f"contention: {tries} tries, {tries - done} in vain ({wasted:.1%})")
    assert (len(taken), set(taken.values())) == (JOBS, {1})
    assert wasted <= WASTED_MAX
    assert set(left_behind) == {0}
    for store in stores:
        await store.close()
