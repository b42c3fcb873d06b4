"""The registry of present workers: each worker keeps a note about itself in the store."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Collection

import msgspec
import uuid_utils

from holdfast.core.bounds import PAGE_MAX, WORKERS_MAX
from holdfast.core.clock import Micros
from holdfast.core.job import JobRecord
from holdfast.core.plural import many
from holdfast.store import Hold, Store

PREFIX = "worker/"
"""Prefix of the holds of present workers."""
TENANT_PREFIX = "tenant-worker/"
"""Prefix of the holds of workers with a token of one tenant; the tenant's name follows."""

Names = Collection[str] | None


def fresh_name(prefix: str = "") -> str:
    """A unique name. Host and pid are not enough: in containers they may all be the same."""
    return f"{prefix}{socket.gethostname()[:60]}-{os.getpid()}-{str(uuid_utils.uuid7())[-8:]}"


class Present(msgspec.Struct, frozen=True):
    """The note in a worker's hold: what the worker says about itself."""

    pid: int
    tenants: tuple[str, ...] | None
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    concurrency: int
    """The current maximum of running jobs."""
    running: int
    held: int
    concurrency_min: int | None = None
    concurrency_max: int | None = None
    """The bounds between which it adapts; None if the worker did not say."""
    why: str = ""
    """The reason for its current concurrency."""
    cut: tuple[str, ...] = ()
    """The lists among `tenants`, `queues` and `types` that were cut to fit into the note. They may
    be longer than shown.
    """
    shared: bool = False
    """True if it also serves other tenants, so that its current work is left out; see `seen_by`."""

    def serves(self, tenant: str, queue: str) -> bool:
        """Whether it claims from this line; True if a cut list leaves that open."""
        return self.serves_any((tenant,), (queue,))

    def serves_any(self, tenants: Names, queues: Names) -> bool:
        """Whether it claims from one of these lines. None: all lines."""
        return self._has("tenants", self.tenants, tenants) and self._has(
            "queues", self.queues, queues
        )

    def seen_by(self, tenant: str) -> Present | None:
        """The note as a tenant may see it, without what the worker does for others. None if it does
        not serve the tenant.
        """
        if not self.serves_any((tenant,), None):
            return None
        if self.tenants == (tenant,) and "tenants" not in self.cut:
            return self
        cut = tuple(field for field in self.cut if field != "tenants")
        return msgspec.structs.replace(
            self, pid=0, running=0, held=0, why="", tenants=(tenant,), cut=cut, shared=True
        )

    def knows(self, type: str) -> bool:
        """Whether it can run the type; True if a cut list leaves that open."""
        return self._has("types", self.types, (type,))

    def _has(self, field: str, mine: Names, asked: Names) -> bool:
        if mine is None or asked is None or field in self.cut:
            return True
        return not set(mine).isdisjoint(asked)


class Worker(msgspec.Struct, frozen=True):
    """A present worker with its note."""

    name: str
    until: Micros
    note: Present


decoder = msgspec.json.Decoder(Present)


def tenant_prefix(tenant: str) -> str:
    """Prefix of the holds of one tenant's own workers."""
    return f"{TENANT_PREFIX}{len(tenant)}:{tenant}/"


async def holds(
    store: Store, tenant: str | None = None, *, after: str = "", most: int = WORKERS_MAX
) -> AsyncIterator[Hold]:
    """A page of the holds of present workers, after a given name: of all tenants or of one. The
    workers of tenants come after the others.
    """
    prefixes = [PREFIX, TENANT_PREFIX if tenant is None else tenant_prefix(tenant)]
    if after.startswith(TENANT_PREFIX):
        del prefixes[0]
    for under in prefixes:
        start, more = after if after.startswith(under) else "", True
        while more and most > 0:
            limit = min(most, PAGE_MAX)
            page = await store.hold(under=under, after=start, limit=limit)
            for one in page:
                yield one
            most -= len(page)
            more = len(page) == limit
            start = page[-1].name if page else start


async def present_workers(
    store: Store, tenant: str | None = None, *, own: bool = False
) -> list[Worker]:
    """The workers that are present, at most WORKERS_MAX: of all tenants, or without the workers of
    other tenants. Workers whose note has an unknown format are left out.

    With `own` only workers that serve the tenant are returned, as the tenant may see them.
    """
    found = [worker_of(one) async for one in holds(store, tenant)]
    known = [one for one in found if one is not None]
    if not own or tenant is None:
        return known
    notes = ((one, one.note.seen_by(tenant)) for one in known)
    return [Worker(one.name, one.until, note) for one, note in notes if note is not None]


def worker_of(hold: Hold) -> Worker | None:
    """None if its note cannot be read."""
    try:
        note = decoder.decode(hold.note)
    except msgspec.MsgspecError:
        return None
    return Worker(hold.owner, hold.until, note)


def nobody_for(job: JobRecord, workers: list[Worker]) -> str | None:
    """Why none of the workers can run the job, as text; None if one can."""
    if not workers:
        return "no worker is present"
    if len(workers) >= WORKERS_MAX:
        return None  # There may be more workers.
    serving = [one for one in workers if one.note.serves(job.tenant, job.queue)]
    if not serving:
        present = many(len(workers), "worker")
        return f"no worker serves queue {job.queue!r} of {job.tenant!r} ({present} present)"
    if not any(one.note.knows(job.type) for one in serving):
        return f"no worker of its queue knows type {job.type!r} ({many(len(serving), 'worker')})"
    return None
