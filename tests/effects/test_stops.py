"""A run that is stopped inside its block: the transaction is rolled back, the connection is fit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.effects.conftest import Place
from tests.effects.test_exactly_once import Opened, write

from holdfast import App, Context, State
from holdfast.core.errors import JobCanceled, JobFailed
from holdfast.effects import exactly_once
from holdfast.worker import Worker

BOUND_S = 60.0


@asynccontextmanager
async def working(place: Place, app: App) -> AsyncIterator[Any]:
    """A worker on the store of the place, with the real clock."""
    async with app, asyncio.timeout(BOUND_S):
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        try:
            yield app.tenant("acme")
        finally:
            worker.stop()
            await running


class Block:
    """A handler that stays in its block until it is stopped."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.inside = asyncio.Event()
        self.usable = asyncio.Event()

    async def run(self, ctx: Context[Any]) -> None:
        async with Opened(self.place) as connection:
            try:
                async with exactly_once(ctx, connection):
                    await write(connection)
                    self.inside.set()
                    await asyncio.Event().wait()
            finally:
                await write(connection, "SELECT 1")
                self.usable.set()


@pytest.mark.parametrize("where", ["postgres15"], indirect=True)
async def test_a_cancel_rolls_the_block_back(place: Place) -> None:
    """P5: the handler is told while it waits, and nothing of it is kept."""
    app, block = App(place.url), Block(place)

    @app.job
    async def take(ctx: Context[Any]) -> None:
        await block.run(ctx)

    async with working(place, app) as acme:
        job = await acme.enqueue(take())
        await block.inside.wait()
        assert await acme.cancel(job.id)
        await block.usable.wait()
        with pytest.raises(JobCanceled):
            await job.wait()

    assert place.cents() == [100, 0]


async def test_a_time_out_rolls_the_block_back(place: Place) -> None:
    """P4: it counts as a failed attempt, on both stores."""
    app, block = App(place.url, max_attempts=1), Block(place)

    @app.job(timeout=1.0)
    async def take(ctx: Context[Any]) -> None:
        await block.run(ctx)

    async with working(place, app) as acme:
        job = await acme.enqueue(take())
        await block.usable.wait()
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await job.wait()

    assert place.cents() == [100, 0]


async def test_a_stopped_worker_rolls_the_block_back_and_gives_the_job_back(place: Place) -> None:
    """P11: without using the attempt."""
    app, block = App(place.url, drain_s=0.0), Block(place)

    @app.job
    async def take(ctx: Context[Any]) -> None:
        await block.run(ctx)

    async with working(place, app) as acme:
        job = await acme.enqueue(take())
        await block.inside.wait()
    async with app:
        record = await acme.get(job.id)

    assert (record.state, record.attempt) == (State.ENQUEUED, 0)
    assert place.cents() == [100, 0]
