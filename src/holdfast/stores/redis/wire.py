"""One connection to one server, for scripts: calls are written as they come, answered in order.

redis-py's client took 181 us of processor time and four turns of the event loop for a call, this 36
us and two, side by side on a busy machine.

Challenge: a server sends at most 64 KiB of an answer before it runs what it has read of the next
calls. The rest of a long answer, like that of a claim of 200 jobs, came after the next script, and
the worker had nothing to do meanwhile. Pattern: while a call is under way whose answer may be long,
calls that nobody waits for to go on, as acks, wait here, and are sent the moment it is answered.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from typing import Any, Self

import hiredis
from redis import exceptions
from redis.connection import DefaultParser

from holdfast.stores.redis.options import Options

Waiting = tuple[asyncio.Future[Any], float]
"""A call under way, and when it is too late for its answer."""
Held = tuple[asyncio.Future[Any], tuple[Any, ...]]
"""A call that is not sent yet."""


READ_MAX = 256 * 1024
"""Bytes that are read at once."""


class Wire(asyncio.BufferedProtocol):
    """Belongs to the event loop it was opened in. Once lost it stays so; open another."""

    name = "holdfast"
    """What the server lists it as."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=exceptions.InvalidResponse, replyError=DefaultParser.parse_error
        )
        # A protocol without a buffer has asyncio allocate READ_MAX bytes for each answer, which the
        # system maps and unmaps: 15 us for a short answer instead of 2.
        self._buffer: Any = bytearray(READ_MAX)  # hiredis reads buffers; its types say bytes only.
        self._waiting: deque[Waiting] = deque()
        self._long: asyncio.Future[Any] | None = None
        """A call under way whose answer may be long."""
        self._held: deque[Held] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._transport: Any = None
        self.lost = False

    @classmethod
    async def open(cls, options: Options, host: str, port: int) -> Self:
        loop = asyncio.get_running_loop()
        context = _context(options) if options.tls else None
        try:
            async with asyncio.timeout(options.connect_s):
                _, wire = await loop.create_connection(
                    lambda: cls(options.timeout_s), host, port, ssl=context
                )
                try:
                    await wire._greet(options)
                except BaseException:
                    wire.close()
                    raise
        except TimeoutError:
            raise exceptions.TimeoutError(f"Timeout connecting to {host}:{port}") from None
        return wire

    async def _greet(self, options: Options) -> None:
        if options.password is not None:
            name = () if options.username is None else (options.username,)
            await self.call("AUTH", *name, options.password)
        if options.db:
            await self.call("SELECT", options.db)
        await self.call("CLIENT", "SETNAME", self.name)

    def call(self, *args: Any, long: bool = False, patient: bool = False) -> asyncio.Future[Any]:
        """What the server will answer; `long`: it may be more than the server sends at once. A call
        that is given up is made all the same, unless it is `patient` and was not sent yet.
        """
        if self.lost:
            raise exceptions.ConnectionError("Connection closed by server.")
        future: asyncio.Future[Any] = self._loop.create_future()
        if patient and self._long is not None:
            self._held.append((future, args))
            return future
        if long:
            self._long = future
        self._send(future, args)
        return future

    def _send(self, future: asyncio.Future[Any], args: tuple[Any, ...]) -> None:
        self._waiting.append((future, self._loop.time() + self._timeout_s))
        self._transport.write(hiredis.pack_command(args))
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout_s, self._look)

    def close(self) -> None:
        self.lose(exceptions.ConnectionError("Connection closed."))

    # -- what the transport tells ----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> Any:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.feed(self._buffer, 0, nbytes)
        try:
            while (answer := self._reader.gets()) is not False:
                self.answered(answer)
        except (exceptions.InvalidResponse, IndexError) as error:
            self.lose(exceptions.ConnectionError(f"answers out of step: {error}"))

    def answered(self, answer: Any) -> None:
        future, _ = self._waiting.popleft()
        if future is self._long:
            self._long = None
            for held, args in self._held:
                if not held.done():
                    self._send(held, args)
            self._held.clear()
        if future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self.lose(exceptions.ConnectionError(f"Connection closed by server. {error or ''}"))

    # -- inside ----------------------------------------------------------------------------------

    def _look(self) -> None:
        """One timer for all calls: the first has waited the longest."""
        self._watch = None
        if not self._waiting:
            return
        late_s = self._waiting[0][1] - self._loop.time()
        if late_s <= 0:
            self.lose(exceptions.TimeoutError("Timeout reading from socket"))
        else:
            self._watch = self._loop.call_later(late_s, self._look)

    def lose(self, error: exceptions.RedisError) -> None:
        """Fails what waits: whether it was done cannot be known."""
        self.lost = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._transport is not None:
            self._transport.abort()
        self._long = None
        for future, _ in [*self._waiting, *self._held]:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
        self._held.clear()


def _context(options: Options) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.ca)
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
