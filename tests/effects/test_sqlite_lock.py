"""The write lock of an SQLite file in a handler's block: nobody waits for himself (P19)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, State, SyncContext
from holdfast.core.errors import InvalidInput
from holdfast.effects import exactly_once
from holdfast.store import Ref
from holdfast.stores import open_store
from holdfast.testing import drain
from holdfast.worker import Worker

BOUND_S = 30.0


@pytest.fixture
async def path(tmp_path: Path) -> str:
    """Of a file that a store has made, and that has a table of the handlers."""
    path = f"{tmp_path}/jobs.db"
    await open_store(f"sqlite:///{path}").migrate()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    return path


def notes(path: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT text FROM notes")]


async def test_two_blocks_on_one_loop_come_one_after_the_other(path: str) -> None:
    """The second waits for the lock without blocking the loop, on which the first must go on."""
    app = App(f"sqlite:///{path}", concurrency=2)
    inside, go_on = asyncio.Event(), asyncio.Event()

    @app.job
    async def first(ctx: Context[Any]) -> None:
        with closing(sqlite3.connect(path)) as connection:
            async with exactly_once(ctx, connection):
                inside.set()
                await go_on.wait()
                connection.execute("INSERT INTO notes VALUES ('first')")

    @app.job
    async def second(ctx: Context[Any]) -> None:
        await inside.wait()
        asyncio.get_running_loop().call_soon(go_on.set)
        with closing(sqlite3.connect(path)) as connection:
            async with exactly_once(ctx, connection):
                connection.execute("INSERT INTO notes VALUES ('second')")

    async with app, asyncio.timeout(BOUND_S):
        acme = app.tenant("acme")
        jobs = [await acme.enqueue(first()), await acme.enqueue(second())]
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        for job in jobs:
            await job.wait()
        worker.stop()
        await running

    assert notes(path) == ["first", "second"]


async def _step(ctx: Context[Any], app: App) -> object:
    return await ctx.step("one", lambda: 1)


async def _enqueue(ctx: Context[Any], app: App) -> object:
    note: Any = app.registry.called("note").kind()
    return await ctx.enqueue(note)


async def _enqueue_many(ctx: Context[Any], app: App) -> object:
    note: Any = app.registry.called("note").kind()
    return await app.tenant("acme").enqueue_many([note, note])


async def _cancel(ctx: Context[Any], app: App) -> object:
    return await app.store.cancel([Ref("acme", ctx.job_id)])


async def _pause(ctx: Context[Any], app: App) -> object:
    return await app.tenant("acme").scope().pause("why", "me")


@pytest.mark.parametrize("call", [_step, _enqueue, _enqueue_many, _cancel, _pause])
async def test_a_call_that_would_wait_for_its_own_block_is_refused(path: str, call: Any) -> None:
    """At once, with what to do instead; reads are not, and afterwards all is as ever."""
    app = App(f"sqlite:///{path}")
    refused: list[str] = []

    @app.job
    async def note(ctx: Context[Any]) -> None: ...

    @app.job
    async def take(ctx: Context[Any]) -> None:
        with closing(sqlite3.connect(path)) as connection:
            async with exactly_once(ctx, connection):
                connection.execute("INSERT INTO notes VALUES ('a')")
                assert (await app.tenant("acme").get(ctx.job_id)).state is State.PROCESSING
                try:
                    await call(ctx, app)
                except InvalidInput as error:
                    refused.append(str(error))
        await ctx.enqueue(note())

    async with app, asyncio.timeout(BOUND_S):
        await app.tenant("acme").enqueue(take())
        runs = await drain(app)

    assert [run.answer.state for run in runs] == [State.COMPLETED] * 2
    assert notes(path) == ["a"]
    assert len(refused) == 1
    assert "using=connection" in refused[0]


async def test_plain_functions_are_told_so_too(path: str) -> None:
    """Their calls run on the worker's loop, in the name of their thread."""
    app = App(f"sqlite:///{path}")

    @app.job
    def take(ctx: SyncContext[Any]) -> None:
        with closing(sqlite3.connect(path)) as connection, exactly_once(ctx, connection):
            connection.execute("INSERT INTO notes VALUES ('a')")
            with pytest.raises(InvalidInput, match="using=connection"):
                ctx.step("one", int)
            ctx.enqueue(take(), using=connection, delay=60)

    async with app, asyncio.timeout(BOUND_S):
        await app.tenant("acme").enqueue(take())
        [run] = await drain(app)

    assert (run.answer.state, notes(path)) == (State.COMPLETED, ["a"])


async def test_a_block_that_was_left_open_stops_nobody_else(path: str) -> None:
    """A handler that enters without `with` and dies: its transaction ends with its connection."""
    app = App(f"sqlite:///{path}", max_attempts=1)

    @app.job
    async def take(ctx: Context[Any]) -> None:
        with closing(sqlite3.connect(path)) as connection:
            await exactly_once(ctx, connection).__aenter__()
            raise ValueError("left open")

    async with app, asyncio.timeout(BOUND_S):
        job = await app.tenant("acme").enqueue(take())
        await drain(app)

        assert (await app.tenant("acme").get(job.id)).state is State.FAILED
