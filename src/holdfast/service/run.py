"""From a service to an open port: sockets, the server, the upkeep, a worker beside it, the end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import uvicorn

from holdfast.app import App
from holdfast.errors import ConfigError
from holdfast.roster import fresh_name
from holdfast.service.app import Mount, application
from holdfast.service.protocol import bounded
from holdfast.service.service import Service
from holdfast.upkeep.leader import Upkeep
from holdfast.worker.signals import draining
from holdfast.worker.worker import Worker

Beside = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""What else is to run until the event is set."""
BACKLOG = 1024
KEEP_ALIVE_S = 30
DRAIN_S = 15
"""How long requests under way may take to end."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket; `shared` with other processes that bind the same."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio sends without delay (TCP_NODELAY) only where it sees it, and
    # without that each answer waits some 40 ms for the client's acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(field="port", why=f"cannot listen on {host}:{port}: {error}") from None
    return bound


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(uvicorn.Server):
    """Tells the service of the end at once, so that nobody is waited for who only waits."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with draining(self.end):
            yield

    def end(self) -> None:
        self._service.close()
        self.should_exit = True


async def serve(
    service: Service,
    bound: socket.socket,
    *,
    mounts: Sequence[Mount] = (),
    worker: App | None = None,
    upkeep: bool = True,
    beside: Sequence[Beside] = (),
) -> None:
    """Serves until a signal; then ends what waits, lets the rest finish, and drains the worker."""
    config = uvicorn.Config(
        application(service, mounts=mounts, owns_store=False),
        http=bounded(service.limits),
        loop="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        backlog=BACKLOG,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    server = _Server(config, service)
    stop = asyncio.Event()
    await service.store.open()
    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    running = None
    if worker is not None:
        running = Worker(worker)
        tasks.append(loop.create_task(running.run()))
    elif upkeep:
        duties = Upkeep(service.store, service.config, fresh_name("service-"))
        tasks.append(loop.create_task(duties.run(stop)))
    tasks += [loop.create_task(one(stop)) for one in beside]
    try:
        await server.serve(sockets=[bound])
    finally:
        stop.set()
        if running is not None:
            running.stop()
        await asyncio.gather(*tasks)
        await service.store.close()
