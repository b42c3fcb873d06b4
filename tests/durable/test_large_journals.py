"""Journals that a claim leaves out: the run reads them first, all of them or it does not begin."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import App, Context
from holdfast.core.bounds import STEP_BYTES_MAX
from holdfast.core.clock import micros
from holdfast.core.job import Completed, Failed, Lease, Outcome, Reason, Released
from holdfast.lifespan import opened
from holdfast.store import Claim
from holdfast.stores import open_store
from holdfast.testing import ManualClock, drain
from holdfast.testing.faults import Faults
from holdfast.worker.lease import ActiveJob
from holdfast.worker.pool import Threads
from holdfast.worker.run import Runner

ACME = "acme"
LARGE = "x" * (STEP_BYTES_MAX - 2)


class Place:
    """An app on a file, with one job whose three steps have large results and ran once."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.path = path
        self.faults = Faults(open_store(f"sqlite:///{path}", self.clock))
        self.app = App(self.faults.store)
        self.calls: list[int] = []
        self.id = ""

    async def prepare(self) -> None:
        @self.app.job(max_attempts=3)
        async def reader(ctx: Context) -> int:
            for number in range(3):
                await ctx.step(f"s{number}", self._work, number)
            if ctx.attempt == 1:
                raise RuntimeError("not yet")
            return len(self.calls)

        self.id = (await self.app.tenant(ACME).enqueue(reader())).id
        assert len(await drain(self.app)) == 1
        self.clock.advance(3600)

    def _work(self, number: int) -> str:
        self.calls.append(number)
        return LARGE

    async def lease(self) -> Lease:
        claim = Claim(
            worker="w", nonce=secrets.token_hex(16), limit=1, lease_us=micros(60), tenants=(ACME,)
        )
        [lease] = await self.app.store.claim(claim)
        assert lease.left_out == 3
        return lease

    async def run(self, lease: Lease) -> Outcome | None:
        """What a worker makes of the lease."""
        threads = Threads(1)
        try:
            async with opened(self.app.lifespan, self.app) as state:
                runner = Runner(self.app, threads, state=state)
                return await runner.run(ActiveJob(lease, time.monotonic() + 60))
        finally:
            threads.close()

    def damage(self) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            changed = connection.execute("UPDATE entries SET kind = 'none' WHERE name = 's1'")
            assert changed.rowcount == 1


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path / "jobs.db")
    async with place.app:
        await place.prepare()
        yield place


async def test_a_run_reads_what_its_lease_leaves_out(place: Place) -> None:
    """P16: each step runs once, however large the journal is."""
    [ran] = await drain(place.app)

    assert isinstance(ran.outcome, Completed)
    assert await place.app.tenant(ACME).wait(place.id) == 3
    assert place.calls == [0, 1, 2]


async def test_a_journal_with_missing_entries_is_not_run(place: Place) -> None:
    """P16: the steps that are missing would be done again."""
    place.damage()

    outcome = await place.run(await place.lease())

    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retryable) == (Reason.DECODE, False)
    assert "2 of the 3 entries" in outcome.error
    assert place.calls == [0, 1, 2]


async def test_a_job_whose_journal_cannot_be_read_now_is_given_back(place: Place) -> None:
    """P16: it costs no attempt, and the next run has the steps."""
    lease = await place.lease()
    place.faults.fail("find")

    assert isinstance(await place.run(lease), Released)
    assert isinstance(await place.run(lease), Completed)
    assert place.calls == [0, 1, 2]


async def test_a_job_that_was_canceled_meanwhile_is_not_run(place: Place) -> None:
    """P5: nothing is done for a lease that is lost."""
    lease = await place.lease()
    await place.app.tenant(ACME).cancel(place.id)

    assert await place.run(lease) is None
    assert place.calls == [0, 1, 2]
