"""A commit whose outcome nobody was told (P4): the store knows, and no effect is repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from tests.effects.conftest import Place
from tests.effects.cutting import Cut
from tests.effects.test_exactly_once import TAKE

from holdfast import Context, RetryPolicy, State, SyncContext
from holdfast.core.job import Completed
from holdfast.effects import exactly_once
from holdfast.testing import drain

AT_ONCE: Any = {"retry": RetryPolicy(base_s=0.0, cap_s=0.0), "max_attempts": 5}

pytestmark = pytest.mark.parametrize("where", ["postgres15"], indirect=True)


@pytest.fixture(params=["early", "late"])
def cut(request: pytest.FixtureRequest, place: Place) -> Cut:
    return Cut(place.dsn, early=request.param == "early")


@pytest.fixture
async def way(cut: Cut) -> AsyncIterator[str]:
    async with cut.opened() as way:
        yield way


async def by_asyncpg(ctx: Any, way: str) -> None:
    connection = await asyncpg.connect(way)
    try:
        async with exactly_once(ctx, connection) as effect:
            await connection.execute(TAKE)
            effect.result = ctx.attempt
    finally:
        connection.terminate()


async def by_psycopg(ctx: Any, way: str) -> None:
    connection = await psycopg.AsyncConnection.connect(way)
    try:
        async with exactly_once(ctx, connection) as effect:
            await connection.execute(TAKE)
            effect.result = ctx.attempt
    finally:
        await connection.close()


async def by_sqlalchemy(ctx: Any, way: str) -> None:
    engine = create_async_engine(way.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with engine.connect() as connection, exactly_once(ctx, connection) as effect:
            await connection.execute(sqlalchemy.text(TAKE))
            effect.result = ctx.attempt
    finally:
        await engine.dispose()


async def _ended(place: Place, cut: Cut, job: Any) -> None:
    """The money has moved once, in the attempt whose commit was done."""
    runs = await drain(place.app)

    early = len(runs) == 2
    assert (cut.number, place.cents()) == (1, [70, 0])
    assert [type(run.outcome) is Completed for run in runs] == [False, True][2 - len(runs) :]
    assert await job.wait() == (2 if early else 1)
    record = await place.app.tenant("acme").get(job.id)
    assert (record.state, record.attempt) == (State.COMPLETED, len(runs))


@pytest.mark.parametrize("handler", [by_asyncpg, by_psycopg, by_sqlalchemy])
async def test_a_connection_that_is_lost_at_the_commit(
    place: Place, cut: Cut, way: str, handler: Any
) -> None:
    """The run goes on as completed if it was done; else the next attempt does it."""

    @place.app.job(**AT_ONCE)
    async def take(ctx: Context[Any]) -> None:
        await handler(ctx, way)

    await _ended(place, cut, await place.app.tenant("acme").enqueue(take()))


async def test_a_connection_of_a_plain_function_that_is_lost_at_the_commit(
    place: Place, cut: Cut, way: str
) -> None:
    """The same in a thread, which asks the store by the worker's loop."""

    @place.app.job(**AT_ONCE)
    def take(ctx: SyncContext[Any]) -> None:
        with closing(psycopg.connect(way)) as connection, exactly_once(ctx, connection) as effect:
            connection.execute(TAKE)
            effect.result = ctx.attempt

    await _ended(place, cut, await place.app.tenant("acme").enqueue(take()))


async def test_a_job_that_is_not_kept_is_known_by_being_gone(
    place: Place, cut: Cut, way: str
) -> None:
    """A completed job without a record cannot be asked: nothing else removes it under its lease."""

    @place.app.job(**AT_ONCE, keep=0.0)
    async def take(ctx: Context[Any]) -> None:
        await by_asyncpg(ctx, way)

    job = await place.app.tenant("acme").enqueue(take())
    await drain(place.app)

    assert place.cents() == [70, 0]
    assert list((await place.app.tenant("acme").find(key=None)).jobs) == []
    assert job.created
