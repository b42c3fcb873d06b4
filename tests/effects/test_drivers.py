"""Every driver that a handler may use: the same transaction, with its writes and the completion."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import asyncpg
import django  # type: ignore[import-untyped]
import psycopg
import pytest
import sqlalchemy
from django.conf import settings  # type: ignore[import-untyped]
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.effects.conftest import Place
from tests.effects.test_exactly_once import TAKE, outcomes

from holdfast import Context, State, SyncContext
from holdfast.core.errors import InvalidInput
from holdfast.effects import exactly_once, guard, guard_sync

TEXT = sqlalchemy.text(TAKE)


def url_of(place: Place, driver: str) -> str:
    if place.is_sqlite:
        return f"sqlite:///{place.dsn}"
    return place.dsn.replace("postgresql:", f"postgresql+{driver}:")


# -- async -----------------------------------------------------------------------------------------


@asynccontextmanager
async def by_asyncpg_pool(place: Place) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(place.dsn, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
    ):
        yield connection


@asynccontextmanager
async def by_psycopg(place: Place) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(place.dsn) as connection:
        yield connection


@asynccontextmanager
async def by_psycopg_autocommit(place: Place) -> AsyncIterator[Any]:
    connection = await psycopg.AsyncConnection.connect(place.dsn, autocommit=True)
    async with connection:
        yield connection


@asynccontextmanager
async def by_sqlalchemy(place: Place) -> AsyncIterator[Any]:
    engine = create_async_engine(url_of(place, "asyncpg"))
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_sqlalchemy_session(place: Place) -> AsyncIterator[Any]:
    engine = create_async_engine(url_of(place, "psycopg"))
    try:
        async with AsyncSession(engine) as session:
            yield session
    finally:
        await engine.dispose()


ASYNC = [
    by_asyncpg_pool,
    by_psycopg,
    by_psycopg_autocommit,
    by_sqlalchemy,
    by_sqlalchemy_session,
]


@pytest.mark.parametrize("where", ["postgres15"], indirect=True)
@pytest.mark.parametrize("opened", ASYNC)
async def test_async_drivers_commit_and_roll_back(place: Place, opened: Any) -> None:
    """P4: an error first, then a success, on one connection; a fence is guarded beside it."""

    @place.app.job
    async def note(ctx: Context[Any]) -> None: ...

    @place.app.job
    async def take(ctx: Context[Any]) -> int:
        async with opened(place) as connection:
            statement: Any = TEXT if "sqlalchemy" in opened.__name__ else TAKE
            with pytest.raises(ZeroDivisionError):
                await _divide(ctx, connection, statement)
            async with exactly_once(ctx, connection) as effect:
                await guard(connection, "accounts", {"id": 1}, ctx.fence)
                await connection.execute(statement)
                await ctx.enqueue(note(), using=connection)
                effect.result = 30
        return 30

    job = await place.app.tenant("acme").enqueue(take())

    assert await outcomes(place.app) == [(State.COMPLETED, type(None))] * 2
    assert (await job.wait(), place.cents()) == (30, [70, 0])


async def _divide(ctx: Any, connection: Any, statement: Any) -> None:
    async with exactly_once(ctx, connection):
        await connection.execute(statement)
        raise ZeroDivisionError


# -- blocking --------------------------------------------------------------------------------------


@contextmanager
def plain(place: Place) -> Iterator[Any]:
    with closing(place.connect()) as connection:
        yield connection


@contextmanager
def autocommit(place: Place) -> Iterator[Any]:
    if place.is_sqlite:
        opened: Any = sqlite3.connect(place.dsn, isolation_level=None)
        opened.row_factory = sqlite3.Row
    else:
        opened = psycopg.connect(place.dsn, autocommit=True, row_factory=psycopg.rows.dict_row)
    with closing(opened) as connection:
        yield connection


@contextmanager
def sqlalchemy_connection(place: Place) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url_of(place, "psycopg"))
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_session(place: Place) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(url_of(place, "psycopg"))
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


@contextmanager
def by_django(place: Place) -> Iterator[Any]:
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    from django.db import connections  # type: ignore[import-untyped]
    from psycopg.conninfo import conninfo_to_dict

    if place.is_sqlite:
        own = {"ENGINE": "django.db.backends.sqlite3", "NAME": place.dsn}
    else:
        found = conninfo_to_dict(place.dsn)
        own = {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": str(found["host"]),
            "PORT": str(found["port"]),
            "USER": str(found["user"]),
            "NAME": str(found["dbname"]),
        }
    known = connections.configure_settings({"default": {}, "effects": own})
    connections.databases["effects"] = known["effects"]
    try:
        yield connections["effects"]
    finally:
        connections["effects"].close()
        del connections["effects"], connections.databases["effects"]


def _execute(connection: Any) -> None:
    if hasattr(connection, "execute"):
        by_text = type(connection).__module__.startswith("sqlalchemy")
        connection.execute(TEXT if by_text else TAKE)
        return
    with connection.cursor() as cursor:
        cursor.execute(TAKE)


@pytest.mark.parametrize(
    "opened", [plain, autocommit, sqlalchemy_connection, sqlalchemy_session, by_django]
)
async def test_blocking_drivers_commit_and_roll_back(
    place: Place, opened: Callable[[Place], Any]
) -> None:
    """P4: the same in the thread of a plain function, on both stores."""

    @place.app.job
    async def note(ctx: Context[Any]) -> None: ...

    @place.app.job
    def take(ctx: SyncContext[Any]) -> int:
        with opened(place) as connection:
            with pytest.raises(ZeroDivisionError):
                _divide_here(ctx, connection)
            with exactly_once(ctx, connection) as effect:
                guard_sync(connection, "accounts", {"id": 1}, ctx.fence)
                _execute(connection)
                ctx.enqueue(note(), using=connection)
                effect.result = 30
        return 30

    job = await place.app.tenant("acme").enqueue(take())

    assert await outcomes(place.app) == [(State.COMPLETED, type(None))] * 2
    assert (await job.wait(), place.cents()) == (30, [70, 0])


def _divide_here(ctx: Any, connection: Any) -> None:
    with exactly_once(ctx, connection):
        _execute(connection)
        raise ZeroDivisionError


@pytest.mark.parametrize("opened", [sqlalchemy_connection, sqlalchemy_session, by_django])
async def test_an_open_transaction_of_these_is_refused_as_well(
    place: Place, opened: Callable[[Place], Any]
) -> None:
    """Its commit belongs to whoever began it."""

    @place.app.job
    def take(ctx: SyncContext[Any]) -> None:
        with opened(place) as connection:
            if opened is by_django:
                connection.set_autocommit(False)
            else:
                connection.execute(sqlalchemy.text("SELECT 1"))
            with pytest.raises(InvalidInput, match="transaction open"):
                _divide_here(ctx, connection)
            connection.rollback()

    await place.app.tenant("acme").enqueue(take())

    assert await outcomes(place.app) == [(State.COMPLETED, type(None))]
