"""Transactions of callers beside a store: on connections of their own to its database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

import asyncpg
from tests.servers.engines import Engines

from holdfast.dispatch import inner_of
from holdfast.store import Store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sqlite.store import SqliteStore

Begin = Callable[[], AbstractAsyncContextManager[Any]]


def beginning(store: Store, server: Any) -> Begin | None:
    """What begins a transaction beside this store; None where callers cannot have one."""
    inner = inner_of(store)
    if isinstance(inner, SqliteStore):
        return lambda: of_sqlite(inner.options.path)
    if isinstance(inner, PostgresStore):
        return lambda: of_postgres(server.url)
    if isinstance(server, Engines):
        return lambda: of_foundationdb(server)
    return None


@asynccontextmanager
async def of_sqlite(path: str) -> AsyncIterator[sqlite3.Connection]:
    """In a mode in which each write begins a transaction, as Python has it by default."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection


@asynccontextmanager
async def of_postgres(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def of_foundationdb(engines: Engines) -> AsyncIterator[Any]:
    transaction = engines.transaction("jobs")
    yield transaction
    await asyncio.to_thread(transaction.commit().wait)
