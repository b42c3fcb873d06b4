"""Workers that die at any instant lose nothing and double nothing."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest
from tests.chaos.herd import Herd, make_app, until_present

from holdfast import Reason, State, Tenant
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.job import EventKind
from holdfast.operate import audit

LEASE_US = 1_000_000
LATE_US = 2_000_000


async def count_ended(tenant: Tenant) -> int:
    """How many jobs have a terminal record."""
    ends = (State.COMPLETED, State.FAILED, State.CANCELED)
    return sum(tally.counts.get(state, 0) for tally in await tenant.counts() for state in ends)


async def until_ended(tenant: Tenant, jobs: int, seconds: float, herd: Herd, alive: int) -> None:
    """Waits, within bounds, until so many jobs have ended; keeps the herd alive meanwhile."""
    end = time.monotonic() + seconds
    while await count_ended(tenant) < jobs:
        assert time.monotonic() < end, [tally.counts for tally in await tenant.counts()]
        herd.revive(alive)
        await asyncio.sleep(0.1)


async def workers_of(tenant: Tenant) -> set[str | None]:
    """Who leased the tenant's jobs, by the event log."""
    names = set()
    page = await tenant._store.events(tenant.name, 0, PAGE_MAX)
    while page.events:
        names |= {event.note for event in page.events if event.kind is EventKind.LEASED}
        page = await tenant._store.events(tenant.name, page.cursor, PAGE_MAX)
    return names


@pytest.mark.slow
async def test_two_hundred_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """P1, P2, P4: kill -9 at 200 random instants of 5,000 jobs; rescue within lease + 2 s."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = make_app(url)
    seeded = random.Random(20)
    step = app.registry.named("step")
    assert step is not None
    async with app:
        tenant = app.tenant("acme")
        with Herd(url) as herd:
            herd.revive(3)
            for _ in range(200):
                await tenant.enqueue_many(step.kind(pause_s=0.1) for _ in range(25))
                await asyncio.sleep(seeded.random() * 0.3)
                herd.revive(3)
                herd.kill(seeded.choice(herd.living))
            await until_ended(tenant, 5_000, 120, herd, 3)
            codes = herd.stop()
        found = await audit(app.store)

        assert codes == [0, 0, 0]
        assert found.breaches == []
        assert len(found.ended(EventKind.COMPLETED)) == found.counts[EventKind.COMPLETED] == 5_000
        assert found.unended == set()
        assert found.counts[EventKind.RESCUED] > 0
        assert found.latest_rescue_us <= LATE_US


@pytest.mark.slow
async def test_a_job_that_kills_its_process_takes_no_other_with_it(tmp_path: Path) -> None:
    """P11: the poison job is dead-lettered after max_attempts; jobs beside it complete."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = make_app(url)
    step, deadly = app.registry.named("step"), app.registry.named("deadly")
    assert step is not None
    assert deadly is not None
    async with app:
        tenant = app.tenant("acme")
        poison = await tenant.enqueue(deadly.kind(), priority=5)
        await tenant.enqueue_many((step.kind(pause_s=0.5) for _ in range(40)), max_attempts=3)
        with Herd(url) as herd:
            herd.revive(1)
            await until_ended(tenant, 41, 60, herd, 1)
            herd.stop()
        record = await tenant.get(poison.id)
        found = await audit(app.store)

        assert (record.state, record.reason) == (State.FAILED, Reason.LEASE_EXPIRED)
        assert record.attempt == 3
        assert len(found.ended(EventKind.COMPLETED)) == 40
        assert found.breaches == []


@pytest.mark.parametrize("processes", [3, 5, 10])
async def test_processes_share_a_thousand_identical_jobs(processes: int, tmp_path: Path) -> None:
    """P2, P4: 1,000 completions from any number of processes, and no overlap of leases (S4.48)."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = make_app(url)
    step = app.registry.named("step")
    assert step is not None
    async with app:
        tenant = app.tenant("acme")
        with Herd(url) as herd:
            herd.revive(processes)
            await until_present(app.store, processes)
            await tenant.enqueue_many(step.kind(pause_s=0.1) for _ in range(1_000))
            await until_ended(tenant, 1_000, 60, herd, processes)
            codes = herd.stop()
        found = await audit(app.store)

        assert codes == [0] * processes
        assert found.breaches == []
        assert len(found.ended(EventKind.COMPLETED)) == found.counts[EventKind.COMPLETED] == 1_000
        # Leases of a second lapse when the disk stalls for as long; each is accounted for.
        given_up = (EventKind.RELEASED, EventKind.RESCUED)
        others = sum(found.counts.get(kind, 0) for kind in given_up)
        assert found.counts[EventKind.LEASED] - others == 1_000
        assert len(await workers_of(tenant)) == processes
