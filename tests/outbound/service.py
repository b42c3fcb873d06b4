"""A service of our own on loopback: it does what a test plans, and records what it was sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

RESET = 0
"""The connection is reset after the call was done: its answer is lost."""
NEVER = -1
"""The call is done, and no answer comes."""


class Seen(msgspec.Struct, frozen=True):
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at_s: float

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


class Service:
    """Creates an object for each new idempotency key, as payment services do."""

    def __init__(self) -> None:
        self.url = ""
        self.plan: list[int | tuple[int, dict[str, str]]] = []
        """What it does with the next requests: a status, with headers, RESET or NEVER; then 200."""
        self.seen: list[Seen] = []
        self.objects: dict[str, str] = {}
        """Bodies by their keys."""
        self.body = b""
        """If set, what it answers."""
        self._over = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.path_qs, headers, body, time.monotonic()))
        planned = self.plan.pop(0) if self.plan else 200
        status, extra = planned if isinstance(planned, tuple) else (planned, {})
        if status in (RESET, NEVER, 200) and request.method != "GET":
            key = headers.get("idempotency-key", f"none-{len(self.seen)}")
            self.objects.setdefault(key, body.decode())
        if status == RESET:
            assert request.transport is not None
            request.transport.abort()
        if status == NEVER:
            await self._over.wait()
        told = self.body or msgspec.json.encode({"id": f"object {len(self.objects)}"})
        return web.Response(status=status if status > 0 else 200, headers=extra, body=told)

    def end(self) -> None:
        self._over.set()


@asynccontextmanager
async def serving() -> AsyncIterator[Service]:
    """The service on a free port of loopback."""
    service = Service()
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_route("*", "/{tail:.*}", service.handle)
    runner: Any = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        service.url = f"http://{host}:{port}"
        yield service
    finally:
        service.end()
        await runner.cleanup()
