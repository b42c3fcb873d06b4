"""Enqueue in the caller's transaction: kept when it commits, gone when it does not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import django  # type: ignore[import-untyped]
import psycopg
import pytest
import sqlalchemy
from django.conf import settings  # type: ignore[import-untyped]
from django.db.utils import ConnectionHandler  # type: ignore[import-untyped]
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import App, Context, Job
from holdfast.core.errors import IdConflict, InvalidInput, QueueFull
from holdfast.testing import drain

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Desk


class Send(Job[None]):
    def run(self, ctx: Context) -> None: ...


class Undo(Exception):
    """Rolls the transaction back."""


# Each gives a connection inside a transaction: committed at the end, rolled back by an exception.


@asynccontextmanager
async def by_asyncpg(desk: Desk) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(desk.dsn)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(desk: Desk) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(desk.dsn, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def by_psycopg(desk: Desk) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(desk.dsn) as connection:
        yield connection


@asynccontextmanager
async def by_sqlalchemy(desk: Desk) -> AsyncIterator[Any]:
    engine = create_async_engine(desk.dsn.replace("postgresql:", "postgresql+asyncpg:"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_sqlalchemy_session(desk: Desk) -> AsyncIterator[Any]:
    engine = create_async_engine(desk.dsn.replace("postgresql:", "postgresql+psycopg:"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@contextmanager
def sync_psycopg(desk: Desk) -> Iterator[Any]:
    with psycopg.connect(desk.dsn, row_factory=psycopg.rows.dict_row) as connection:
        yield connection


@contextmanager
def sync_sqlalchemy(desk: Desk) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(desk.dsn.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def sync_sqlalchemy_session(desk: Desk) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(desk.dsn.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def sync_django(desk: Desk) -> Iterator[Any]:
    connection = django_connection(desk)
    try:
        connection.set_autocommit(False)
        yield connection
        connection.commit()
    finally:
        connection.close()  # What was not committed is rolled back.


def django_connection(desk: Desk) -> Any:
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    place = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": "127.0.0.1",
        "PORT": desk.server.port,
        "USER": "holdfast",
        "NAME": "holdfast_test",
    }
    return ConnectionHandler({"default": place})["default"]


ASYNC = [by_asyncpg, by_asyncpg_pool, by_psycopg, by_sqlalchemy, by_sqlalchemy_session]
SYNC = [sync_psycopg, sync_sqlalchemy, sync_sqlalchemy_session, sync_django]


@pytest.mark.parametrize("opened", ASYNC)
async def test_a_commit_keeps_the_job_and_a_rollback_leaves_nothing(
    desk: Desk, opened: Callable[[Desk], AbstractAsyncContextManager[Any]]
) -> None:
    """P1, for every async driver; nobody sees the job before the commit."""
    tenant = desk.app.tenant("acme")

    async with opened(desk) as connection:
        kept = await tenant.enqueue(desk.send(to="a"), using=connection, key="k")
        assert kept.created
        assert await desk.claimable() == []
    with suppress(Undo):
        async with opened(desk) as connection:
            await tenant.enqueue(desk.send(to="b"), using=connection)
            raise Undo

    assert await desk.claimable() == [kept.id]
    assert not (await tenant.enqueue(desk.send(to="a"), key="k")).created


@pytest.mark.parametrize("opened", SYNC)
def test_blocking_drivers_keep_and_leave_likewise(server: Any, opened: Any) -> None:
    """P1: in the thread that owns the connection, by `app.sync`."""
    from tests.stores.postgres.conftest import Desk

    desk = Desk(server)
    with desk.app.sync as bridge:
        tenant = bridge.tenant("acme")
        with opened(desk) as connection:
            kept = tenant.enqueue(desk.send(to="a"), using=connection)
            assert kept.created
            assert list(tenant.find().jobs) == []
        with suppress(Undo), opened(desk) as connection:
            tenant.enqueue(desk.send(to="b"), using=connection)
            raise Undo

        assert [job.id for job in tenant.find().jobs] == [kept.id]


async def test_a_job_of_the_transaction_has_the_key_of_its_type_and_can_be_awaited(
    desk: Desk,
) -> None:
    """As with any enqueue: the key is derived before the store is asked."""

    @desk.app.job(key="count:{to}")
    async def count(ctx: Context, to: str) -> int:
        return len(to)

    tenant = desk.app.tenant("acme")
    async with by_psycopg(desk) as connection:
        kept = await tenant.enqueue(count("ada"), using=connection)
        assert (await tenant.enqueue(count("ada"), using=connection)).id == kept.id
    await drain(desk.app)

    assert await kept.wait() == 3


async def test_what_is_refused_is_told_as_ever(desk: Desk) -> None:
    """Known ids, conflicts and caps come back through any connection."""
    tenant = desk.app.tenant("acme")
    await tenant.enqueue(desk.send(to="a"), id="j1")
    await tenant.scope().set(max_queued=1)

    async with by_psycopg(desk) as connection:
        assert not (await tenant.enqueue(desk.send(to="a"), id="j1", using=connection)).created
        with pytest.raises(IdConflict):
            await tenant.enqueue(desk.send(to="a"), id="j1", queue="other", using=connection)
        with pytest.raises(QueueFull):
            await tenant.enqueue(desk.send(to="a"), using=connection)


@pytest.fixture
async def elsewhere(desk: Desk) -> AsyncIterator[Any]:
    """Another database of the server, as `desk.dsn` names its own."""
    name = "elsewhere"
    connection = await asyncpg.connect(desk.server.admin_url)
    try:
        await connection.execute(f"CREATE DATABASE {name} OWNER holdfast")
        yield SimpleNamespace(dsn=urlsplit(desk.dsn)._replace(path=f"/{name}").geturl())
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


@pytest.mark.parametrize("opened", ASYNC)
async def test_a_connection_to_another_database_is_refused(
    desk: Desk, elsewhere: Any, opened: Callable[[Any], AbstractAsyncContextManager[Any]]
) -> None:
    """P1: the job would be kept where no worker of this store looks, even if there is a store."""
    there = App(f"{elsewhere.dsn}?schema={desk.schema}&migrate=auto")
    async with there:
        with pytest.raises(InvalidInput, match="another database, 'elsewhere'"):
            async with opened(elsewhere) as connection:
                await desk.app.tenant("acme").enqueue(desk.send(to="a"), using=connection)

        assert list((await there.tenant("acme").find()).jobs) == []


@pytest.mark.parametrize("opened", [by_asyncpg, by_psycopg, by_sqlalchemy])
async def test_a_database_without_the_schema_is_named(
    desk: Desk, elsewhere: Any, opened: Callable[[Any], AbstractAsyncContextManager[Any]]
) -> None:
    """Also by an app that was never opened, and so cannot know where its store is."""
    closed = App(desk.url)
    send = closed.job(name="send")(Send)

    with pytest.raises(InvalidInput, match="without the schema"):
        async with opened(elsewhere) as connection:
            await closed.tenant("acme").enqueue(send(), using=connection)


async def test_what_is_no_connection_is_refused_by_name(desk: Desk) -> None:
    """And so is one that this side cannot await."""
    tenant = desk.app.tenant("acme")
    with pytest.raises(InvalidInput, match="using"):
        await tenant.enqueue(desk.send(to="a"), using=object())
    async with asyncpg.create_pool(desk.dsn, min_size=1, max_size=1) as pool:
        with pytest.raises(InvalidInput, match="pool"):
            await tenant.enqueue(desk.send(to="a"), using=pool)


def test_an_async_connection_is_no_use_to_blocking_code(server: Any) -> None:
    """Told before anything is sent."""
    import asyncio

    from tests.stores.postgres.conftest import Desk

    desk = Desk(server)
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(desk.dsn))
    try:
        with desk.app.sync as bridge, pytest.raises(InvalidInput, match="async connection"):
            bridge.tenant("acme").enqueue(desk.send(to="a"), using=connection)
    finally:
        loop.run_until_complete(connection.close())
        loop.close()
