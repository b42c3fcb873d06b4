"""Who is there to work? The notes that present workers leave in the store."""

from __future__ import annotations

import msgspec

from holdfast.clock import Micros
from holdfast.job import JobRecord
from holdfast.plural import many
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

    def serves(self, tenant: str, queue: str) -> bool:
        """Whether it claims from this line."""
        return (self.tenants is None or tenant in self.tenants) and (
            self.queues is None or queue in self.queues
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


async def roster(store: Store) -> list[Worker]:
    """The workers that are present; those that speak another version's language are left out."""
    found = []
    for hold in await store.hold(under=PREFIX):
        try:
            found.append(Worker(hold.owner, hold.until, _decoder.decode(hold.note)))
        except msgspec.MsgspecError:
            continue
    return found


def nobody_for(job: JobRecord, workers: list[Worker]) -> str | None:
    """Why none of the workers will run the job, in words; None when one can."""
    if not workers:
        return "no worker is present"
    serving = [one for one in workers if one.note.serves(job.tenant, job.queue)]
    if not serving:
        present = many(len(workers), "worker")
        return f"no worker serves queue {job.queue!r} of {job.tenant!r} ({present} present)"
    if not any(one.note.knows(job.type) for one in serving):
        return f"no worker of its queue knows type {job.type!r} ({many(len(serving), 'worker')})"
    return None
