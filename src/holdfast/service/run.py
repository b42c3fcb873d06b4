"""Runs a service: sockets, the server, the upkeep, an optional worker, and the shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import uvicorn

from holdfast.app import App
from holdfast.core.errors import ConfigError
from holdfast.service.app import Mount, application
from holdfast.service.protocol import bounded
from holdfast.service.service import Service
from holdfast.upkeep.leader import Upkeep
from holdfast.worker.signals import draining
from holdfast.worker.worker import Worker
from holdfast.worker_registry import fresh_name

Beside = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""Further work that runs until the event is set."""
BACKLOG = 1024
KEEP_ALIVE_S = 30
DRAIN_S = 15
"""How long running requests may take to finish at shutdown."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket. With `shared`, other processes can bind the same port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name the protocol: only then asyncio sets TCP_NODELAY, and
    # without it each answer waits about 40 ms for the client's acknowledgement.
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
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(uvicorn.Server):
    """Tells the service of the shutdown at once, so that long polls end and are not waited for."""

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
    """Serves until a signal. Then ends waiting calls, lets others finish, and drains the worker."""
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
        blobs = service.app_blobs
        bucket = None if blobs is None else blobs.bucket
        duties = Upkeep(service.store, service.config, fresh_name("service-"), bucket)
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
