"""Connections: a small pool for each event loop, filled when needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import asyncpg

from holdfast.core.errors import NOT_OPEN, StoreUnavailable
from holdfast.stores import forks
from holdfast.stores.postgres.options import Options

Connection: TypeAlias = "asyncpg.Connection[Any]"

STATEMENTS_MAX = 100
"""Statements that a connection keeps prepared."""
CLOSE_S = 2.0
"""How long a connection may take to close."""


async def connect(options: Options) -> Connection:
    """A new connection. The driver's errors come as they are."""
    return await asyncpg.connect(
        options.dsn,
        timeout=options.timeout_s,
        command_timeout=options.timeout_s,
        statement_cache_size=STATEMENTS_MAX if options.prepared else 0,
    )


class Pool:
    """The connections of one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._free: list[Connection] = []
        self._room = asyncio.Semaphore(options.connections)
        self._closed = False
        self.loop = asyncio.get_running_loop()
        self._closing = self._until_loop_ends()

    async def start(self) -> None:
        await anext(self._closing)

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        # A loop that ends closes its async generators: the only hook to close connections in time.
        try:
            yield
        finally:
            await self._close_all()

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[Connection]:
        """A connection for one call. One on which anything but an SQL error happened is dropped."""
        async with self._room:
            connection = await self._take()
            try:
                yield connection
            except asyncpg.PostgresError:
                self._give_back(connection)
                raise
            except BaseException:
                connection.terminate()
                raise
            else:
                self._give_back(connection)

    async def _take(self) -> Connection:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        return await connect(self._options)

    def _give_back(self, connection: Connection) -> None:
        if self._closed or connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
        else:
            self._free.append(connection)

    async def close(self) -> None:
        await self._closing.aclose()

    async def _close_all(self) -> None:
        self._closed = True
        free, self._free = self._free, []
        for connection in free:
            with suppress(Exception):
                await connection.close(timeout=CLOSE_S)


class Pools:
    """The pools of all event loops that use a store."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._closed = False
        forks.keep(self)

    async def pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is not None:
            return pool
        with self._lock:
            if self._closed:
                raise StoreUnavailable(store=self._options.place, why=NOT_OPEN)
            for old in [each for each in self._pools if each.is_closed()]:
                del self._pools[old]
            pool = self._pools[loop] = Pool(self._options)
        await pool.start()
        return pool

    async def close(self) -> None:
        """Closes the connections of this loop at once, those of others in their own loops."""
        with self._lock:
            self._closed = True
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            if pool.loop is asyncio.get_running_loop():
                await pool.close()
            elif not pool.loop.is_closed():
                with suppress(RuntimeError):
                    closing = asyncio.run_coroutine_threadsafe(pool.close(), pool.loop)
                    with suppress(Exception):
                        await asyncio.wait_for(asyncio.wrap_future(closing), CLOSE_S)
