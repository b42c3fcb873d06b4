"""Workers that move money between two rows of the store's own database, for tests that kill them.

As a module: a process that forks such a worker for each line that it reads, and writes its pid. A
fork is ready in milliseconds, so that hundreds of workers can be killed in a minute.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg

from holdfast import App, Context, RetryPolicy, SyncContext
from holdfast.effects import exactly_once
from holdfast.worker import Worker

ROOT = Path(__file__).parent.parent.parent
TABLES = (
    "CREATE TABLE accounts (id integer PRIMARY KEY, cents bigint NOT NULL)",
    "CREATE TABLE ledger (job text NOT NULL, cents bigint NOT NULL)",
    "INSERT INTO accounts VALUES (1, 0), (2, 0)",
)
AT_ONCE = 4
RULES: Any = {"retry": RetryPolicy(base_s=0.0, cap_s=0.0), "max_attempts": 1000}


class Bank:
    """The app, with handlers of either kind for the driver of its store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        self.place = url.partition("sqlite:///")[2] if self.sqlite else url.partition("?")[0]
        self.app = App(
            url, lease_s=1.0, concurrency=AT_ONCE, leader_s=1.0, lifespan=self._connected
        )

        @self.app.job(**RULES)
        async def receipt(ctx: Context[Any]) -> None: ...

        self.moves = (self._mover(receipt), self._thread_mover(receipt))

    def _mover(self, receipt: Any) -> Any:
        @self.app.job(**RULES)
        async def move(ctx: Context[Any], cents: int) -> None:
            async with self._connection(ctx) as connection, exactly_once(ctx, connection) as effect:
                for statement, *values in _statements(ctx.job_id, cents):
                    if self.sqlite:
                        connection.execute(statement.format("?", "?"), values)
                    else:
                        await connection.execute(statement.format("$1", "$2"), *values)
                    await asyncio.sleep(0)
                await ctx.enqueue(receipt(), id=f"receipt-{ctx.job_id}", using=connection)
                effect.result = cents

        return move

    def _thread_mover(self, receipt: Any) -> Any:
        @self.app.job(**RULES)
        def move_in_thread(ctx: SyncContext[Any], cents: int) -> None:
            mark = "?" if self.sqlite else "%s"
            with self._opened() as connection, exactly_once(ctx, connection) as effect:
                for statement, *values in _statements(ctx.job_id, cents):
                    connection.execute(statement.format(mark, mark), values)
                ctx.enqueue(receipt(), id=f"receipt-{ctx.job_id}", using=connection)
                effect.result = cents

        return move_in_thread

    @asynccontextmanager
    async def _connected(self, app: App) -> AsyncIterator[Any]:
        if self.sqlite:
            yield None
            return
        async with asyncpg.create_pool(self.place, min_size=1, max_size=AT_ONCE) as pool:
            yield pool

    @asynccontextmanager
    async def _connection(self, ctx: Context[Any]) -> AsyncIterator[Any]:
        if self.sqlite:
            with self._opened() as connection:
                yield connection
            return
        async with ctx.state.acquire() as connection:
            yield connection

    def _opened(self) -> Any:
        """A blocking connection; it is closed at the end, without a commit."""
        if self.sqlite:
            return closing(sqlite3.connect(self.place))
        return closing(psycopg.connect(self.place))

    def prepare(self) -> None:
        with self._opened() as connection:
            for statement in TABLES:
                connection.execute(statement)
            connection.commit()

    def read(self, statement: str) -> list[Any]:
        with self._opened() as connection:
            return list(connection.execute(statement).fetchall())


def _statements(job: str, cents: int) -> list[tuple[Any, ...]]:
    """Each writes; the rows come in one order, so that no two transactions deadlock."""
    return [
        ("UPDATE accounts SET cents = cents - {} WHERE id = 1", cents),
        ("UPDATE accounts SET cents = cents + {} WHERE id = 2", cents),
        ("INSERT INTO ledger VALUES ({}, {})", job, cents),
    ]


class Forks:
    """Starts workers and kills them; leaves none behind."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "tests.chaos.money", url]
        self._parent = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.living: list[int] = []

    def start(self) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write("\n")
        self._parent.stdin.flush()
        self.living.append(int(self._parent.stdout.readline()))

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.living.remove(pid)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in list(self.living):
            self.kill(pid)
        self._parent.communicate()


def _serve(url: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The dead are not waited for.
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(Worker(Bank(url).app, upkeep=True).run())
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
