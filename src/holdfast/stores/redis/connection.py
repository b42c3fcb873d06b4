"""Connections: clients for each event loop, a time-out on every call, and retries.

Any thread that runs an event loop may call. A connection belongs to the loop it was made in, so
each loop has clients of its own, closed with it. A call that fails because a connection was lost, a
server is loading or a cluster elects a master is repeated, with growing delays, for `retry_s` in
all: every script is safe to repeat.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from holdfast.core.backoff import Delays
from holdfast.core.errors import NOT_OPEN, StoreUnavailable
from holdfast.stores import forks
from holdfast.stores.redis.errors import ours, passing
from holdfast.stores.redis.options import Options
from holdfast.stores.redis.routes import Address, Routes
from holdfast.stores.redis.scripts import script
from holdfast.stores.redis.wire import Wire

RETRY_S_MIN = 0.02
RETRY_S_MAX = 1.0
HEALTH_S = 30.0
"""A connection that was idle this long is tried before it is used."""
REDIRECTS_MAX = 5
SCRIPTS = ("EVALSHA", "EVAL")
"""What goes over the wire; redis-py's client does the rest, and knows what all else answers."""

Args = tuple[Any, ...]


class Links:
    """The clients of one store in one process."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._links: dict[asyncio.AbstractEventLoop, _Link] = {}
        self._routes = Routes(options)
        self._closed = False
        forks.keep(self)

    async def script(
        self,
        name: str,
        tag: str,
        args: tuple[str | bytes, ...],
        replicas: int,
        *,
        long: bool = False,
        patient: bool = False,
    ) -> Any:
        """What the script of a verb answers for one shard, once so many replicas have it; `long`
        and `patient`: see `wire.py`.

        It may run again after its answer was lost: every script is safe to repeat.
        """
        one = script(name)
        # Two keys, of which the first never exists: while a slot moves from one server to another,
        # both answer TRYAGAIN to a call that would see only a part of the shard.
        keys = (2, tag, f"{tag}:heads")
        started = time.monotonic()
        failed: Exception | None = None
        wire = None if replicas else self._link().straight()
        if wire is not None:
            try:
                call = ("EVALSHA", one.sha, *keys, *args)
                return await wire.call(*call, long=long, patient=patient)
            except exceptions.NoScriptError:
                pass  # It did not run.
            except (exceptions.RedisError, OSError) as error:
                failed = error

        async def run(link: _Link) -> Any:
            call = (*keys, *args)
            try:
                return await link.call(("EVALSHA", one.sha, *call), tag, replicas=replicas)
            except exceptions.NoScriptError:
                return await link.call(("EVAL", one.text, *call), tag, replicas=replicas)

        return await self._patiently(run, started, failed)

    async def command(self, *args: Any, key: str = "", address: Address | None = None) -> Any:
        """What a command answers; asked of the server of this key, or of this address."""
        return await self._patiently(lambda link: link.call(args, key, address), time.monotonic())

    async def _patiently(
        self,
        act: Callable[[_Link], Awaitable[Any]],
        started: float,
        failed: Exception | None = None,
    ) -> Any:
        """What it gives, tried again while that may help. Raises errors of our tree.

        `failed` is what a first try came to.
        """
        deadline = started + self.options.retry_s
        delays = Delays(RETRY_S_MIN, RETRY_S_MAX, chance=random.random)
        while True:
            if failed is not None:
                if self._closed or not passing(failed) or time.monotonic() >= deadline:
                    raise ours(failed, self.options.name) from failed
                self._routes.forget()
                await asyncio.sleep(delays.next_s())
            try:
                return await act(self._link())
            except (exceptions.RedisError, OSError) as error:
                failed = error

    async def masters(self) -> list[Address]:
        """The servers that take writes."""
        if self.options.cluster and not self._routes.known:
            await self.command("PING", key="any")  # Finds the way first.
        return self._routes.masters()

    def addresses(self) -> list[Address]:
        """Where servers are, as far as is known."""
        return list(dict.fromkeys([*self._routes.masters(), *self.options.nodes]))

    async def close(self) -> None:
        """Closes the clients of all loops; those of other threads as soon as they can."""
        with self._lock:
            self._closed = True
            links, self._links = self._links, {}
        for loop, link in links.items():
            if loop is asyncio.get_running_loop():
                await link.close()
            else:
                link.close_from_outside(loop)

    def _link(self) -> _Link:
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is None:
            with self._lock:
                if self._closed:
                    raise StoreUnavailable(store=self.options.name, why=NOT_OPEN)
                for old in [old for old in self._links if old.is_closed()]:
                    del self._links[old]
                link = self._links[loop] = _Link(self.options, self._routes)
        return link


class _Link:
    """The clients of one event loop, one for each server."""

    def __init__(self, options: Options, routes: Routes) -> None:
        self._options = options
        self._routes = routes
        self._clients: dict[Address, Redis] = {}
        self._wires: dict[Address, Wire] = {}
        self._opening = asyncio.Lock()
        # Ends with the loop: asyncio.run cancels what is left, and that closes the connections.
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="holdfast-redis")

    def straight(self) -> Wire | None:
        """The wire to the one server, if there is only one and it is open: most calls have nothing
        to choose and nothing to wait for, and need no more than its answer.
        """
        if self._options.cluster:
            return None
        wire = self._wires.get(self._options.nodes[0])
        return None if wire is None or wire.lost else wire

    async def call(
        self, args: Args, key: str, address: Address | None = None, replicas: int = 0
    ) -> Any:
        if not self._options.cluster:
            return await self._at(self._options.nodes[0], args, replicas)
        if not self._routes.known:
            await self._routes.find(lambda address: self._at(address, ("CLUSTER SLOTS",)))
        if address is not None:
            return await self._at(address, args)
        return await self._follow(args, key, replicas)

    async def _follow(self, args: Args, key: str, replicas: int) -> Any:
        """Asks the server that has the key, wherever it has gone."""
        address = self._routes.of(key)
        for _ in range(REDIRECTS_MAX):
            try:
                return await self._at(address, args, replicas)
            except exceptions.MovedError as moved:
                address = self._routes.moved(key, address, moved)
            except exceptions.AskError as asked:
                # The server that a slot is moving to must be told that it was named.
                return await self._at(
                    self._routes.beside(address, asked), args, replicas, asking=True
                )
        raise exceptions.TryAgainError(f"TRYAGAIN the slot of {key} moves too fast")

    async def _at(
        self, address: Address, args: Args, replicas: int = 0, *, asking: bool = False
    ) -> Any:
        if not replicas and not asking and args[0] in SCRIPTS:
            wire = self._wires.get(address)
            if wire is None or wire.lost:
                wire = await self._open_wire(address)
            return await wire.call(*args)
        client: Any = self._client(address)
        if not replicas and not asking:
            return await client.execute_command(*args)
        # On one connection: both words are about what it says before or after.
        async with client.pipeline(transaction=False) as pipe:
            if asking:
                pipe.execute_command("ASKING")
            pipe.execute_command(*args)
            if replicas:
                pipe.execute_command("WAIT", replicas, int(self._options.wait_s * 1000))
            answers = await pipe.execute()
        if replicas and answers[-1] < replicas:
            why = (
                f"{answers[-1]} of {replicas} replicas had it after {self._options.wait_s:g} s; "
                "it may be kept all the same: it is safe to repeat with the same id"
            )
            raise StoreUnavailable(store=self._options.name, why=why)
        return answers[1 if asking else 0]

    def _client(self, address: Address) -> Redis:
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = _open(self._options, address)
        return client

    async def _open_wire(self, address: Address) -> Wire:
        async with self._opening:
            wire = self._wires.get(address)
            if wire is None or wire.lost:  # Nobody has opened it meanwhile.
                wire = self._wires[address] = await Wire.open(self._options, *address)
        return wire

    async def close(self) -> None:
        self._keeper.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeper

    def close_from_outside(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # The loop has closed: its connections went with it.
            loop.call_soon_threadsafe(self._keeper.cancel)

    async def _keep(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for wire in self._wires.values():
                wire.close()
            for client in self._clients.values():
                with suppress(exceptions.RedisError, OSError):
                    await client.aclose()
                    await client.connection_pool.disconnect()


def _open(options: Options, address: Address) -> Redis:
    host, port = address
    tls: dict[str, Any] = {}
    if options.tls:
        tls = {
            "ssl_ca_certs": options.ca,
            "ssl_cert_reqs": "required" if options.verify else "none",
            "ssl_check_hostname": options.verify,
        }
    pool = BlockingConnectionPool(
        max_connections=options.pool,
        timeout=options.timeout_s,
        connection_class=SSLConnection if options.tls else Connection,
        host=host,
        port=port,
        db=options.db,
        username=options.username,
        password=options.password,
        socket_timeout=options.timeout_s,
        socket_connect_timeout=options.connect_s,
        socket_keepalive=True,
        health_check_interval=HEALTH_S,
        client_name="holdfast",
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        **tls,
    )
    return Redis(connection_pool=pool)
