"""The service itself: liveness, readiness, OpenAPI document, metrics, and routes about every
tenant.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime

from starlette.responses import Response

from holdfast import operate
from holdfast.core.errors import HoldfastError
from holdfast.core.job import State
from holdfast.service.api.scopes import Listing
from holdfast.service.call import Call
from holdfast.service.endpoint import Status
from holdfast.service.metrics import MEDIA
from holdfast.service.render import when
from holdfast.service.shapes import Out
from holdfast.worker_registry import holds, worker_of

logger = logging.getLogger("holdfast")

READY_S = 2.0
"""How long the store may take to answer a readiness probe."""


class HealthOut(Out):
    status: str


class ReadyOut(Out):
    ready: bool
    why: str | None = None


async def alive(call: Call) -> HealthOut:
    """Liveness: the process answers."""
    return HealthOut(status="ok")


async def ready(call: Call) -> Status:
    """Readiness: 200 if the store answers, else 503. The store's error is only logged."""
    service = call.service
    if service.closing:
        return Status(503, ReadyOut(ready=False, why="the service is stopping"))
    try:
        async with asyncio.timeout(READY_S):
            await service.store.settings(under="holdfast/ready", limit=1)
    except TimeoutError:
        return Status(503, ReadyOut(ready=False, why=f"no answer in {READY_S:g} s"))
    except HoldfastError as error:
        logger.warning("not ready: %s", error)
        return Status(503, ReadyOut(ready=False, why="the store does not answer; see the log"))
    return Status(200, ReadyOut(ready=True))


async def metrics(call: Call) -> Response:
    """Metrics for Prometheus, over all tenants."""
    return Response(await call.service.metrics.text(call.service), media_type=MEDIA)


class TenantOut(Out):
    tenant: str
    queues: int
    counts: Mapping[State, int]
    oldest_at: datetime | None = None


class TenantsOut(Out):
    tenants: Sequence[TenantOut]


async def tenants(call: Call) -> TenantsOut:
    """Every tenant with jobs."""
    found = await operate.tenants(call.service.store)
    return TenantsOut(
        tenants=[
            TenantOut(
                tenant=one.tenant,
                queues=one.queues,
                counts=one.counts,
                oldest_at=when(one.oldest_at),
            )
            for one in found
        ]
    )


class WorkerOut(Out):
    name: str
    until: datetime
    pid: int
    types: tuple[str, ...]
    concurrency: int
    running: int
    held: int
    queues: tuple[str, ...] | None = None
    tenants: tuple[str, ...] | None = None
    why: str = ""


class WorkersOut(Out):
    workers: Sequence[WorkerOut]
    cursor: str | None = None


async def workers(call: Call) -> WorkersOut:
    """The workers that are present, with their notes."""
    query: Listing = call.query
    found, last, number = [], None, 0
    async for hold in holds(call.service.store, after=query.start(), most=query.limit):
        number, last = number + 1, hold.name
        one = worker_of(hold)
        if one is None:
            continue  # Another version wrote it in an unknown format.
        until = when(one.until)
        assert until is not None
        found.append(
            WorkerOut(
                name=one.name,
                until=until,
                pid=one.note.pid,
                types=one.note.types,
                concurrency=one.note.concurrency,
                running=one.note.running,
                held=one.note.held,
                queues=one.note.queues,
                tenants=one.note.tenants,
                why=one.note.why,
            )
        )
    return WorkersOut(workers=found, cursor=last if number == query.limit else None)
