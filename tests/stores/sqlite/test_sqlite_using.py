"""The caller's own connection to the file (P1): in every mode of sqlite3, and inside of others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from holdfast import App, Context
from holdfast.core.errors import InvalidInput, StoreUnavailable
from holdfast.testing import drain


class Desk:
    """An app on a file that also has a table of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = f"{folder}/jobs.db"
        self.app = App(f"sqlite:///{self.path}")
        self.acme = self.app.tenant("acme")

        @self.app.job
        async def send(ctx: Context, to: str) -> None: ...

        self.send = send

    def connect(self, **options: Any) -> Any:
        return closing(sqlite3.connect(self.path, **options))

    async def ids(self) -> list[str]:
        return [job.id for job in (await self.acme.find(newest_first=False)).jobs]

    def orders(self) -> int:
        with self.connect() as connection:
            found: int = connection.execute("SELECT count(*) FROM orders").fetchone()[0]
        return found


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    async with desk.app:
        with desk.connect() as connection:
            connection.execute("CREATE TABLE orders (number)")
        yield desk


async def test_an_enqueue_begins_the_transaction_as_any_write_does(desk: Desk) -> None:
    """In Python's default mode: what follows belongs to it, and so does the rollback."""
    with desk.connect() as connection:
        await desk.acme.enqueue(desk.send("a"), using=connection)
        connection.execute("INSERT INTO orders VALUES (1)")
        connection.rollback()
        assert (await desk.ids(), desk.orders()) == ([], 0)

        made = await desk.acme.enqueue(desk.send("a"), using=connection)
        connection.execute("INSERT INTO orders VALUES (1)")
        connection.commit()

    assert (await desk.ids(), desk.orders()) == ([made.id], 1)


async def test_a_connection_that_commits_each_statement_commits_the_enqueue(desk: Desk) -> None:
    """With `isolation_level=None`, unless the caller has begun a transaction."""
    with desk.connect(isolation_level=None) as connection:
        alone = await desk.acme.enqueue(desk.send("a"), using=connection)
        assert await desk.ids() == [alone.id]
        connection.execute("BEGIN")
        await desk.acme.enqueue(desk.send("b"), using=connection)
        connection.execute("ROLLBACK")

    assert await desk.ids() == [alone.id]


@contextmanager
def by_engine(desk: Desk) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{desk.path}")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def by_session(desk: Desk) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{desk.path}")
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@pytest.mark.parametrize("opened", [by_engine, by_session])
async def test_connections_of_sqlalchemy_are_used_in_their_transaction(
    desk: Desk, opened: Callable[[Desk], Any]
) -> None:
    """Also where the enqueue is the first statement of it."""
    with opened(desk) as connection:
        await desk.acme.enqueue(desk.send("a"), using=connection)
        connection.rollback()
    with opened(desk) as connection:
        made = await desk.acme.enqueue(desk.send("b"), using=connection)
        connection.execute(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
        assert await desk.ids() == []

    assert (await desk.ids(), desk.orders()) == ([made.id], 1)


def test_blocking_code_enqueues_in_its_own_thread(tmp_path: Path) -> None:
    """A connection of sqlite3 belongs to its thread."""
    desk = Desk(tmp_path)
    with desk.app.sync as bridge, desk.connect() as connection:
        made = bridge.tenant("acme").enqueue(desk.send("a"), using=connection)
        connection.commit()

        assert [job.id for job in bridge.tenant("acme").find().jobs] == [made.id]


async def test_an_app_that_was_never_opened_may_enqueue(desk: Desk) -> None:
    """As a web process that only writes orders."""
    closed = Desk(Path(desk.path).parent)
    with desk.connect() as connection:
        made = await closed.acme.enqueue(closed.send("a"), using=connection)
        connection.commit()

    assert await desk.ids() == [made.id]


async def test_what_the_connection_is_set_to_does_not_matter(desk: Desk) -> None:
    """Rows as dictionaries and texts as bytes; they are so again afterwards."""

    def named(cursor: Any, row: Any) -> Any:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    with desk.connect() as connection:
        connection.row_factory, connection.text_factory = named, bytes
        for key in ("k", "k", None):
            await desk.acme.enqueue(desk.send("a"), using=connection, key=key)
        connection.commit()
        assert (connection.row_factory, connection.text_factory) == (named, bytes)

    assert len(await drain(desk.app)) == 2


async def test_connections_to_other_places_are_refused(desk: Desk, tmp_path: Path) -> None:
    """P1: the job would be where no worker looks; the error names both."""
    for place in (":memory:", f"{tmp_path}/other.db"):
        with closing(sqlite3.connect(place)) as connection:
            with pytest.raises(InvalidInput, match=r"another database.*jobs\.db"):
                await desk.acme.enqueue(desk.send("a"), using=connection)
            assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    with pytest.raises(InvalidInput, match="must be a connection of django, sqlalchemy, sqlite3"):
        await desk.acme.enqueue(desk.send("a"), using=object())
    with pytest.raises(InvalidInput, match="is an engine"):
        await desk.acme.enqueue(desk.send("a"), using=sqlalchemy.create_engine("sqlite://"))

    assert await desk.ids() == []


async def test_a_connection_of_another_thread_is_refused(desk: Desk) -> None:
    """The error names the argument; sqlite3's own names no argument of ours."""
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(sqlite3.connect(desk.path)))
    thread.start()
    thread.join()

    with pytest.raises(InvalidInput, match="using"):
        await desk.acme.enqueue(desk.send("a"), using=made[0])


async def test_a_locked_file_is_said_to_be_locked(desk: Desk) -> None:
    """After the time-out of the caller's connection, with advice; its transaction is as it was."""
    with desk.connect() as holder, desk.connect(timeout=0) as connection:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="BEGIN IMMEDIATE"):
            await desk.acme.enqueue(desk.send("a"), using=connection)
        holder.execute("COMMIT")

        made = await desk.acme.enqueue(desk.send("a"), using=connection)
        connection.commit()

    assert await desk.ids() == [made.id]


async def test_a_refused_value_leaves_the_callers_writes(desk: Desk) -> None:
    """The call is undone alone."""
    with desk.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(InvalidInput):
            await desk.acme.enqueue(desk.send("a"), using=connection, id="\ud800")
        made = await desk.acme.enqueue(desk.send("b"), using=connection)
        connection.commit()

    assert (await desk.ids(), desk.orders()) == ([made.id], 1)


async def test_other_calls_wait_for_the_transaction_and_then_go_on(desk: Desk) -> None:
    """Its numbers and counts are read again by the store's own connection."""
    with desk.connect() as connection:
        first = await desk.acme.enqueue(desk.send("a"), using=connection)
        waiting = asyncio.create_task(desk.acme.enqueue(desk.send("b")))
        await asyncio.sleep(0)
        connection.commit()
    second = await waiting

    assert await desk.ids() == [first.id, second.id]
    assert [run.job.id for run in await drain(desk.app)] == [first.id, second.id]
