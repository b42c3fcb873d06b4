"""More of everything than one call looks at: lines of a claim, watches of a connection."""

from __future__ import annotations

import asyncio

from tests.foundationdb_engine import Engine

from holdfast.core.bounds import BATCH_MAX
from holdfast.store import Claim, Watch
from holdfast.stores.foundationdb.fairness_lines import LINES_MAX
from holdfast.stores.foundationdb.notify import POLL_S, WATCHES_MAX
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.builders import LEASE, job

LINES = 2 * LINES_MAX + 100
HALF = BATCH_MAX // 2
PATIENCE_S = 10.0
"""How long a test waits for what must happen; only a failure takes as long."""


async def opened(engine: Engine) -> FoundationStore:
    store = FoundationStore(Options(prefix="c"), None, engine.database())
    await store.open()
    return store


async def test_no_line_is_hidden_where_there_are_more_than_a_claim_looks_at() -> None:
    """P9: 1,100 tenants with two jobs each: no claim comes back empty until all are taken."""
    store = await opened(Engine())
    for start in range(0, LINES, HALF):
        tenants = [f"t{n}" for n in range(start, min(start + HALF, LINES))]
        await store.enqueue([job(id, tenant=tenant) for tenant in tenants for id in "xy"])

    taken: list[tuple[str, str]] = []
    for call in range(LINES):
        claim = Claim(worker="w", nonce=f"n{call}", limit=100, lease_us=LEASE)
        leases = await store.claim(claim)
        if not leases:
            break
        taken += [(one.job.tenant, one.job.id) for one in leases]

    assert len(set(taken)) == len(taken) == 2 * LINES
    await store.close()


async def test_sleepers_beyond_the_watches_of_a_store_poll_and_are_not_forgotten() -> None:
    """A thousand queues are watched; who sleeps on a further one looks once in a while."""
    engine = Engine()
    sleeper, other = await opened(engine), await opened(engine)
    names = [f"q{number}" for number in range(WATCHES_MAX + 1)]
    sleepers = [
        asyncio.create_task(sleeper.wait(Watch(queues=(name,)), 10 * PATIENCE_S)) for name in names
    ]
    async with asyncio.timeout(PATIENCE_S):
        while len(engine.watches) < WATCHES_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0)
    unheard = {name for name in names if name not in _watched(sleeper)}

    await other.enqueue([job(f"{name}", queue=name) for name in unheard])
    polls = [task for name, task in zip(names, sleepers, strict=True) if name in unheard]
    done, _ = await asyncio.wait(polls, timeout=POLL_S + PATIENCE_S)

    assert len(unheard) == len(done) == 1
    assert len(engine.watches) == WATCHES_MAX
    await sleeper.close()
    await asyncio.wait(sleepers, timeout=PATIENCE_S)
    await other.close()


def _watched(store: FoundationStore) -> set[str]:
    assert store._watches is not None
    return {name.removeprefix("queue/") for name in store._watches._watches}
