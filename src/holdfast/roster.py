"""Who is there to work? The notes that present workers leave in the store."""

from __future__ import annotations

import msgspec

from holdfast.clock import Micros
from holdfast.job import JobRecord
from holdfast.store import Store

PREFIX = "worker/"
"""Names of present workers in the store's holds."""
TYPES_MAX = 200
"""Job types a worker names in its note."""


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
    shared: bool = False
    """It serves other tenants too, and what it does now is left out; see `seen_by`."""

    def serves(self, tenant: str, queue: str) -> bool:
        """Whether it claims from this line."""
        return (self.tenants is None or tenant in self.tenants) and (
            self.queues is None or queue in self.queues
        )

    def seen_by(self, tenant: str) -> Present | None:
        """As a tenant may see it: that it serves this tenant, and nothing of what it does for
        others. None when it does not serve the tenant.
        """
        if self.tenants is not None and tenant not in self.tenants:
            return None
        if self.tenants == (tenant,):
            return self
        return msgspec.structs.replace(
            self, pid=0, running=0, held=0, why="", tenants=(tenant,), shared=True
        )

    def knows(self, type: str) -> bool:
        """Whether it can run the type; a full list may have left it out."""
        return type in self.types or len(self.types) >= TYPES_MAX


class Worker(msgspec.Struct, frozen=True):
    """A worker that is there, and what it says of itself."""

    name: str
    until: Micros
    note: Present


_decoder = msgspec.json.Decoder(Present)


async def roster(store: Store, tenant: str | None = None) -> list[Worker]:
    """The workers that are present, as everybody may see them or as a tenant may; those that speak
    another version's language are left out.
    """
    found = []
    for hold in await store.hold(under=PREFIX):
        try:
            note = _decoder.decode(hold.note)
        except msgspec.MsgspecError:
            continue
        seen = note if tenant is None else note.seen_by(tenant)
        if seen is not None:
            found.append(Worker(hold.owner, hold.until, seen))
    return found


def nobody_for(job: JobRecord, workers: list[Worker]) -> str | None:
    """Why none of the workers will run the job, in words; None when one can."""
    if not workers:
        return "no worker is present"
    serving = [one for one in workers if one.note.serves(job.tenant, job.queue)]
    if not serving:
        return f"none of {len(workers)} workers serves queue {job.queue!r} of {job.tenant!r}"
    if not any(one.note.knows(job.type) for one in serving):
        return f"none of {len(serving)} workers that serve its queue knows type {job.type!r}"
    return None
