"""Who is there to work? The notes that present workers leave in the store."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Collection

import msgspec
import uuid_utils

from holdfast.clock import Micros
from holdfast.job import JobRecord
from holdfast.limits import PAGE_MAX, ROSTER_MAX
from holdfast.plural import many
from holdfast.store import Hold, Store

PREFIX = "worker/"
"""Names of present workers in the store's holds."""
TENANT_PREFIX = "tenant-worker/"
"""The same, of workers that came with a token of one tenant; the tenant's name follows."""

Names = Collection[str] | None


def fresh_name(prefix: str = "") -> str:
    """A name that no other process has: in containers every host may be `app` and every pid 1."""
    return f"{prefix}{socket.gethostname()[:60]}-{os.getpid()}-{str(uuid_utils.uuid7())[-8:]}"


class Present(msgspec.Struct, frozen=True):
    """The note of a worker's hold."""

    pid: int
    tenants: tuple[str, ...] | None
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    concurrency: int
    """Jobs at a time, now."""
    running: int
    held: int
    concurrency_min: int | None = None
    concurrency_max: int | None = None
    """Between these it adapts; None from a worker that did not say."""
    why: str = ""
    """Why it has its present concurrency."""
    cut: tuple[str, ...] = ()
    """Which of `tenants`, `queues` and `types` were too long for a note: others may belong to them
    too.
    """
    shared: bool = False
    """It serves other tenants too, and what it does now is left out; see `seen_by`."""

    def serves(self, tenant: str, queue: str) -> bool:
        """Whether it claims from this line; True where a cut list does not tell."""
        return self.serves_any((tenant,), (queue,))

    def serves_any(self, tenants: Names, queues: Names) -> bool:
        """Whether it claims from one of these lines; None is all of them."""
        return self._has("tenants", self.tenants, tenants) and self._has(
            "queues", self.queues, queues
        )

    def seen_by(self, tenant: str) -> Present | None:
        """As a tenant may see it: that it serves this tenant, and nothing of what it does for
        others. None when it does not serve the tenant.
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
        """Whether it can run the type; True where a cut list does not tell."""
        return self._has("types", self.types, (type,))

    def _has(self, field: str, mine: Names, asked: Names) -> bool:
        if mine is None or asked is None or field in self.cut:
            return True
        return not set(mine).isdisjoint(asked)


class Worker(msgspec.Struct, frozen=True):
    """A worker that is there, and what it says of itself."""

    name: str
    until: Micros
    note: Present


decoder = msgspec.json.Decoder(Present)


def tenant_prefix(tenant: str) -> str:
    """What the names of one tenant's own workers start with."""
    return f"{TENANT_PREFIX}{len(tenant)}:{tenant}/"


async def holds(
    store: Store, tenant: str | None = None, *, after: str = "", most: int = ROSTER_MAX
) -> AsyncIterator[Hold]:
    """The holds of present workers, the tenants' own after the others: of all tenants or of one,
    on from a name.
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


async def roster(store: Store, tenant: str | None = None, *, own: bool = False) -> list[Worker]:
    """The workers that are present, ROSTER_MAX of them at most: of all tenants, or without other
    tenants' own. Those that speak another version's language are left out.

    `own` is for the tenant's eyes: only those that serve it, and as it may see them.
    """
    found = [worker_of(one) async for one in holds(store, tenant)]
    known = [one for one in found if one is not None]
    if not own or tenant is None:
        return known
    notes = ((one, one.note.seen_by(tenant)) for one in known)
    return [Worker(one.name, one.until, note) for one, note in notes if note is not None]


def worker_of(hold: Hold) -> Worker | None:
    """None when its note cannot be read."""
    try:
        note = decoder.decode(hold.note)
    except msgspec.MsgspecError:
        return None
    return Worker(hold.owner, hold.until, note)


def nobody_for(job: JobRecord, workers: list[Worker]) -> str | None:
    """Why none of the workers will run the job, in words; None when one can."""
    if not workers:
        return "no worker is present"
    if len(workers) >= ROSTER_MAX:
        return None  # There may be others.
    serving = [one for one in workers if one.note.serves(job.tenant, job.queue)]
    if not serving:
        present = many(len(workers), "worker")
        return f"no worker serves queue {job.queue!r} of {job.tenant!r} ({present} present)"
    if not any(one.note.knows(job.type) for one in serving):
        return f"no worker of its queue knows type {job.type!r} ({many(len(serving), 'worker')})"
    return None
