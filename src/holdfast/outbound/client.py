"""`Outbound`: calls of handlers to one service. `tries.py` says what happens to a call."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Mapping
from typing import Any, Unpack
from weakref import WeakValueDictionary

from holdfast.breaker import Breaker
from holdfast.context import Context
from holdfast.core.bounds import ATTEMPTS_MAX
from holdfast.core.check import check_seconds, check_whole
from holdfast.core.edge_bounds import OUTBOUND_BUDGET_S_MAX, OUTBOUND_CONNECTIONS_MAX
from holdfast.core.errors import InvalidInput, MissingExtra
from holdfast.outbound.address import base_of, host_of
from holdfast.outbound.answer import Answer
from holdfast.outbound.request import CallOptions, Requests
from holdfast.outbound.tries import Caller, Timing, Transport

_breakers: WeakValueDictionary[tuple[str, int, float], Breaker] = WeakValueDictionary()
"""The circuits of this process. One lives as long as a client of its host."""
_breakers_lock = threading.Lock()


class Outbound:
    """A client of one service, for handlers. Make one per process, where the jobs are defined.

    It opens connections at the first call, in each event loop its own, and closes them with it.
    """

    def __init__(
        self,
        base: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        budget: float = 60.0,
        connections: int = 100,
        failures: int = 10,
        rest: float = 10.0,
        lower: bool = False,
        transport: Transport | None = None,
        timing: Timing = Timing(),  # noqa: B008 (it is frozen)
    ) -> None:
        """`failures` in a row leave the host alone for `rest` seconds. `lower` spares a busy
        service; see the guide. `transport` and `timing` are for tests.
        """
        self._base = base_of(base)
        check_whole("connections", connections, 1, OUTBOUND_CONNECTIONS_MAX)
        check_whole("failures", failures, 1, ATTEMPTS_MAX)
        check_seconds("rest", rest, 0.001, OUTBOUND_BUDGET_S_MAX)
        self._requests = Requests(self._base, headers or {}, timeout, budget)
        self._caller = Caller(
            _http(connections) if transport is None else transport,
            _breaker(host_of(self._base), failures, rest, timing),
            timing,
            lower=lower,
        )

    def __repr__(self) -> str:
        return f"Outbound({self._base!r})"  # Headers may be secret.

    @property
    def sync(self) -> SyncOutbound:
        """The same calls without await, for handlers that are no coroutines."""
        return SyncOutbound(self)

    async def get(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return await self.request(ctx, "GET", path, **options)

    async def post(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return await self.request(ctx, "POST", path, **options)

    async def put(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return await self.request(ctx, "PUT", path, **options)

    async def patch(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return await self.request(ctx, "PATCH", path, **options)

    async def delete(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return await self.request(ctx, "DELETE", path, **options)

    async def request(
        self, ctx: Context, method: str, path: str, **options: Unpack[CallOptions]
    ) -> Answer:
        """The answer of the service, whatever its status, if it is not one that is retried.

        Raises InvalidInput for wrong arguments, Retry when the job's own policy is to go on, and
        OutboundLost if no answer came to a call that must not be repeated.
        """
        return await self._caller.call(ctx, self._requests.make(ctx, method, path, options))


class SyncOutbound:
    """`Outbound.sync`."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound

    def get(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return self.request(ctx, "GET", path, **options)

    def post(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return self.request(ctx, "POST", path, **options)

    def put(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return self.request(ctx, "PUT", path, **options)

    def patch(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return self.request(ctx, "PATCH", path, **options)

    def delete(self, ctx: Context, path: str, **options: Unpack[CallOptions]) -> Answer:
        return self.request(ctx, "DELETE", path, **options)

    def request(
        self, ctx: Context, method: str, path: str, **options: Unpack[CallOptions]
    ) -> Answer:
        """As `Outbound.request`: on the worker's event loop, or on one of its own in a process that
        has none (`cpu=True`).
        """
        if asyncio._get_running_loop() is not None:
            why = "was called inside a coroutine and would block its event loop: use await"
            raise InvalidInput(field="sync", why=why)
        try:
            journal = ctx.journal
        except InvalidInput:
            return asyncio.run(self._outbound.request(ctx, method, path, **options))
        return journal.block(self._outbound.request(ctx, method, path, **options))


def _breaker(host: str, failures: int, rest_s: float, timing: Timing) -> Breaker:
    """The circuit of a host, shared by all clients of this process with the same settings."""
    with _breakers_lock:
        key = (host, failures, rest_s)
        return _breakers.setdefault(key, Breaker(failures, rest_s, timing.clock))


def _http(connections: int) -> Transport:
    try:
        module: Any = importlib.import_module("holdfast.outbound.http")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            field="outbound", what="holdfast.outbound", package=error.name, extra="outbound"
        ) from None
    transport: Transport = module.HttpTransport(connections)
    return transport
