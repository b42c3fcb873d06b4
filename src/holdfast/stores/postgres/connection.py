"""Connections: a few for each event loop, made when needed and given back after each call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import asyncpg

from holdfast.errors import NOT_OPEN, StoreUnavailable
from holdfast.stores.postgres.options import Options

Connection: TypeAlias = "asyncpg.Connection[Any]"

STATEMENTS_MAX = 100
"""Statements that a connection keeps prepared."""
CLOSE_S = 2.0
"""How long a connection may take to say goodbye."""


async def connect(options: Options) -> Connection:
    """A new connection. The driver's errors come as they are."""
    return await asyncpg.connect(
        options.dsn,
        timeout=options.timeout_s,
        command_timeout=options.timeout_s,
        statement_cache_size=STATEMENTS_MAX if options.prepared else 0,
    )


class Lane:
    """The connections of one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._free: list[Connection] = []
        self._room = asyncio.Semaphore(options.connections)
        self._closed = False
        self.loop = asyncio.get_running_loop()
        self._goodbye = self._until_loop_ends()

    async def start(self) -> None:
        await anext(self._goodbye)

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        # A loop that ends closes its generators: the one hook to close connections in time.
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
        await self._goodbye.aclose()

    async def _close_all(self) -> None:
        self._closed = True
        free, self._free = self._free, []
        for connection in free:
            with suppress(Exception):
                await connection.close(timeout=CLOSE_S)


class Lanes:
    """The lanes of all event loops that use a store."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._lanes: dict[asyncio.AbstractEventLoop, Lane] = {}
        self._closed = False

    async def lane(self) -> Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is not None:
            return lane
        with self._lock:
            if self._closed:
                raise StoreUnavailable(store=self._options.place, why=NOT_OPEN)
            for old in [each for each in self._lanes if each.is_closed()]:
                del self._lanes[old]
            lane = self._lanes[loop] = Lane(self._options)
        await lane.start()
        return lane

    async def close(self) -> None:
        """Closes the connections of this loop at once, those of others in their own loops."""
        with self._lock:
            self._closed = True
            lanes, self._lanes = list(self._lanes.values()), {}
        for lane in lanes:
            if lane.loop is asyncio.get_running_loop():
                await lane.close()
            elif not lane.loop.is_closed():
                with suppress(RuntimeError):
                    closing = asyncio.run_coroutine_threadsafe(lane.close(), lane.loop)
                    with suppress(Exception):
                        await asyncio.wait_for(asyncio.wrap_future(closing), CLOSE_S)
