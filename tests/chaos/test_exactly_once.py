"""kill -9 of workers that move money in the transaction that completes their job (P4)."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from tests.chaos.money import Bank, Forks
from tests.chaos.test_kill import count_ended

from holdfast import State, Tenant
from holdfast.core.job import EventKind
from holdfast.operate import audit

WORKERS = 3
BOUND_S = 300.0
FEW, MANY = 12, 500
EACH = 6
"""Jobs for each kill."""
ALIVE_S = 0.25
"""How long a worker lives at most after there is another to kill."""


async def _until_ended(tenant: Tenant, jobs: int) -> None:
    end_s = time.monotonic() + BOUND_S
    while await count_ended(tenant) < jobs:
        assert time.monotonic() < end_s, [tally.counts for tally in await tenant.counts()]
        await asyncio.sleep(0.1)


async def _results(tenant: Tenant) -> dict[str, int]:
    """What the moves that the store has as completed say that they moved."""
    found: dict[str, int] = {}
    page = await tenant.find(states=[State.COMPLETED], types=["move", "move_in_thread"], limit=500)
    while True:
        found |= {job.id: int(job.result or 0) for job in page.jobs}
        if page.cursor is None:
            return found
        page = await tenant.find(
            states=[State.COMPLETED],
            types=["move", "move_in_thread"],
            limit=500,
            after=page.cursor,
        )


@pytest.mark.parametrize(
    "kills", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_killed_worker_writes_and_acks_together_or_not_at_all(url: str, kills: int) -> None:
    """P1, P4: sums are right, no ack without its write, no write without its ack."""
    bank, chance = Bank(url), random.Random(kills)
    jobs = kills * EACH
    app = bank.app
    async with app:
        bank.prepare()
        tenant = app.tenant("acme")
        with Forks(url) as forks:
            for _ in range(WORKERS):
                forks.start()
            for kill in range(kills):
                move = bank.moves[kill % 2]
                await tenant.enqueue_many(move(chance.randint(1, 99)) for _ in range(EACH))
                forks.start()
                await asyncio.sleep(chance.random() * ALIVE_S)
                forks.kill(chance.choice(forks.living))
            await _until_ended(tenant, 2 * jobs)
            done = await _results(tenant)
        found = await audit(app.store)

    ledger = bank.read("SELECT job, cents FROM ledger")
    [[one], [two]] = bank.read("SELECT cents FROM accounts ORDER BY id")
    assert len(done) == len(ledger) == jobs, "a write without an ack, or an ack without a write"
    assert dict(ledger) == done
    assert (one, two) == (-sum(done.values()), sum(done.values()))
    assert found.breaches == []
    assert len(found.ended(EventKind.COMPLETED)) == found.counts[EventKind.COMPLETED] == 2 * jobs
    print(
        f"{kills} kills, {jobs} moves, {found.counts[EventKind.LEASED]} leases,"
        f" {found.counts.get(EventKind.RESCUED, 0)} rescued, sum {two}"
    )
