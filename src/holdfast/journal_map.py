"""The children of a run: jobs that it makes of items, and whose end it awaits."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from holdfast.context import Fail
from holdfast.core.blob import offloaded_bytes
from holdfast.core.bounds import BATCH_MAX, INSTANT_MAX, JOIN_MAX, RESOLVED_BYTES_MAX
from holdfast.core.errors import HoldfastError, InvalidInput, JobCanceled, JobFailed, JobNotFound
from holdfast.core.job import JobRecord, NewJob, Parked, State, effect_key
from holdfast.core.journal import Edge, Entry, EntryKind, OnFailure, await_join, join_of, new_join
from holdfast.lookup import find_jobs
from holdfast.store import Store
from holdfast.typed import Job, Planned

NAMED_MAX = 10
"""Failed children that the text of an error names."""

Keep = Callable[[bytes | None], None]


class ChildrenFailed(Fail):
    """Jobs that `ctx.map` made have failed. Unless it is caught, the parent fails for good."""

    def __init__(self, name: str, total: int, failed: dict[str, HoldfastError]) -> None:
        self.failed = failed
        """The error of each failed child, by its id."""
        some = [f"{id}: {error}" for id, error in list(failed.items())[:NAMED_MAX]]
        more = f" and {len(failed) - NAMED_MAX} more" if len(failed) > NAMED_MAX else ""
        super().__init__(
            f"{len(failed)} of {total} jobs of {name!r} failed: {'; '.join(some)}{more}"
        )


class Unmade(msgspec.Struct, frozen=True):
    """How many children have not been made yet, the last ones: a position of the job."""

    first: str
    """The id of the first child. A replay has the positions of its origin, but other children."""
    left: int


class Making(msgspec.Struct, frozen=True):
    """What a run knows and writes about the children that it makes."""

    join: Entry | None
    """Written when an earlier attempt has begun to make them."""
    position: Entry | None
    """How far earlier attempts have come at least."""
    write: Callable[..., Awaitable[None]]
    """Stores entries."""
    keep: Keep
    """Told the position for the next heartbeat to store; None, when it is no longer of use."""


class Children(msgspec.Struct, frozen=True):
    """What makes and reads the children of one job."""

    parent: JobRecord
    store: Store
    plan: Callable[[Any], NewJob]
    """The job of an item in the form for the store."""
    result: Callable[[JobRecord], Awaitable[Any]]
    """The decoded result of a completed job."""

    async def prepare(self, name: str, job_type: Any, items: Iterable[Any], making: Making) -> int:
        """Makes the children, but those that earlier attempts have made; returns how many there
        are.
        """
        join = None if making.join is None else join_of(making.join)
        if join is not None and join.left == 0:
            return join.total
        listed = list(items)
        if len(listed) > JOIN_MAX:
            raise InvalidInput(field="items", why=f"has {len(listed)}, at most {JOIN_MAX}")
        if join is not None and join.total != len(listed):
            why = f"of {name!r} were {join.total} in an earlier attempt, now {len(listed)}"
            raise InvalidInput(field="items", why=why)
        if not listed:
            return 0
        made = await self._begin(name, job_type, listed, making)
        await self._make(name, job_type, listed, made, making.keep)
        return len(listed)

    async def _begin(self, name: str, job_type: Any, listed: list[Any], making: Making) -> int:
        """Writes the join, unless it is there; returns how many children are there already."""
        head = child_id(self.parent, name, 0)
        if making.join is not None:
            return _made_of(making, head, len(listed))
        for number, item in enumerate(listed):  # If one is wrong, none is made.
            self._child(name, number, job_type, item)
            if number % BATCH_MAX == BATCH_MAX - 1:
                await asyncio.sleep(0)
        entries = [new_join(name, len(listed))]
        if len(listed) > BATCH_MAX:  # So there is room for the position, which never grows.
            entries.append(Entry(EntryKind.POSITION, name, _position(head, len(listed))))
        await making.write(*entries)
        return 0

    async def _make(
        self, name: str, job_type: Any, listed: list[Any], made: int, keep: Keep
    ) -> None:
        """Makes the children from this number on."""
        head = child_id(self.parent, name, 0)
        for first in range(made, len(listed), BATCH_MAX):
            part = enumerate(listed[first : first + BATCH_MAX], first)
            batch = [self._child(name, number, job_type, item) for number, item in part]
            for answer in await self.store.enqueue(batch):
                if answer.error is not None:
                    raise answer.error
            left = len(listed) - first - len(batch)
            keep(_position(head, left) if left else None)

    def complete(self, join: Entry | None) -> bool:
        """Whether all of them had ended when this run began."""
        return join is not None and join_of(join).left == 0

    def parked(self, name: str) -> Parked:
        """The outcome of a run that awaits them."""
        return Parked(run_at=INSTANT_MAX, awaits=await_join(name))

    async def results(self, name: str, total: int, *, collect: bool) -> list[Any]:
        """Their results in the order of the items. Raises ChildrenFailed, unless the errors are to
        be collected.
        """
        found: list[Any] = []
        failed: dict[str, HoldfastError] = {}
        size = 0
        for first in range(0, total, BATCH_MAX):
            numbers = range(first, min(total, first + BATCH_MAX))
            ids = tuple(child_id(self.parent, name, number) for number in numbers)
            jobs = await find_jobs(self.store, self.parent.tenant, ids)
            records = {job.id: job for job in jobs}
            for id in ids:
                error = _error_of(id, records.get(id))
                if error is not None:
                    failed[id] = error
                    found.append(error)
                    continue
                size += offloaded_bytes(records[id].result)
                if size > RESOLVED_BYTES_MAX:
                    why = f"results of {name!r} have more than {RESOLVED_BYTES_MAX} bytes together"
                    raise Fail(f"the {why}; return references (BlobRef)")
                found.append(await self.result(records[id]))
        if failed and not collect:
            raise ChildrenFailed(name, total, failed)
        return found

    def _child(self, name: str, number: int, job_type: Any, item: Any) -> NewJob:
        ready = item if isinstance(item, Job | Planned) else _made(job_type, item)
        planned = ready if isinstance(ready, NewJob) else self.plan(ready)
        return msgspec.structs.replace(
            planned,
            id=child_id(self.parent, name, number),
            key=None,
            fresh=False,
            edges=(Edge(self.parent.id, name, OnFailure.RUN), *planned.edges),
        )


def child_id(parent: JobRecord, name: str, number: int) -> str:
    """The id of a child: the same in every attempt, different for any other parent."""
    text = f"{effect_key(parent)}:{len(name)}:{name}:{number}"
    return f"map-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _position(head: str, left: int) -> bytes:
    return msgspec.json.encode(Unmade(head, left))


def _made_of(making: Making, head: str, total: int) -> int:
    """How many children earlier attempts have certainly made."""
    if making.position is None:
        return 0
    try:
        found = msgspec.json.decode(making.position.value, type=Unmade)
    except msgspec.MsgspecError:
        return 0
    return total - found.left if found.first == head and 0 <= found.left <= total else 0


def _made(job_type: Any, item: Any) -> Any:
    """A job of an item, which is the first argument of its type."""
    if isinstance(job_type, type) and issubclass(job_type, Job):
        return job_type(**{job_type.__struct_fields__[0]: item})
    if not callable(job_type):
        why = f"must be a job type, not {type(job_type).__name__}"
        raise InvalidInput(field="job_type", why=why)
    return job_type(item)


def _error_of(id: str, job: JobRecord | None) -> HoldfastError | None:
    if job is None:
        return JobNotFound(id=id)
    if job.state is State.COMPLETED:
        return None
    if job.state is State.CANCELED:
        return JobCanceled(id=id)
    return JobFailed(id=id, reason=job.reason, error=job.error)
