"""Explains why a job does not run: its blockers, missing workers, and an estimate."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import Micros, seconds
from holdfast.core.errors import JobNotFound
from holdfast.core.job import EventKind, JobRecord, State
from holdfast.core.scope import Blocker, BlockerKind, ScopeKind
from holdfast.scopes import supported
from holdfast.store import Find, Ref, Selection, Store
from holdfast.worker_registry import nobody_for, present_workers

WINDOW = 20_000
"""The number of latest events used to measure the start rate of a line."""
WIDEN = 1000
PAGES = 5
STARTS_MIN = 2
"""The minimum number of starts needed to measure a rate."""

_MOVING = frozenset({BlockerKind.TURN, BlockerKind.LIMIT, BlockerKind.RATE, BlockerKind.ORDER})
"""Blockers that end as other jobs finish."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The blockers of a job now. Without blockers the job can be claimed at once."""

    tenant: str
    id: str
    state: State
    gates: tuple[Blocker, ...]
    ahead: int | None
    """The number of ready jobs ahead of it in its line; None if it is not ready."""
    tenants: int | None
    """The number of tenants that take turns in its queue, its own included."""
    not_before: Micros | None
    """The latest instant at which a timed blocker ends."""
    estimate_s: float | None
    """Estimated seconds until it starts, by the recent start rate of its line. A job that a limit,
    a rate or an order blocks is treated as the last one of its queue. None if unknown.
    """

    @property
    def free(self) -> bool:
        """Whether nothing blocks it."""
        return not self.gates


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads an explanation, and so what it may contain."""

    own: bool = False
    """A tenant: no number of other tenants, and none of their workers."""
    platform: bool = True
    """It acts for the platform, and may see who uses the limits that all tenants share."""
    all_queues: bool = True
    """Its token is not only for some queues."""


EVERYTHING = Reader()


async def explain(store: Store, ref: Ref, reader: Reader = EVERYTHING) -> Explained:
    """Explains why a job does not run. Raises JobNotFound, also for another tenant's job."""
    supported(store)
    page = await store.find(Find(select=Selection(tenant=ref.tenant, ids=(ref.id,)), limit=1))
    if not page.jobs:
        raise JobNotFound(id=ref.id)
    job = page.jobs[0]
    found = await store.explain(ref)
    blockers = told(found.gates, reader)
    if not any(blocker.kind in (BlockerKind.ENDED, BlockerKind.RUNNING) for blocker in blockers):
        nobody = nobody_for(job, await present_workers(store, ref.tenant, own=reader.own))
        if nobody is not None:
            blockers = (*blockers, Blocker(kind=BlockerKind.NO_WORKER, words=nobody))
    untils = [blocker.until for blocker in blockers if blocker.until is not None]
    return Explained(
        tenant=job.tenant,
        id=job.id,
        state=job.state,
        gates=blockers,
        ahead=found.ahead,
        tenants=None if reader.own else found.tenants,
        not_before=max(untils, default=None),
        estimate_s=await _estimate(store, job, blockers, found.ahead),
    )


_OF_PLATFORM = {
    BlockerKind.PAUSE: "the platform's pause",
    BlockerKind.LIMIT: "the platform's limit",
    BlockerKind.RATE: "the platform's rate",
}


def told(blockers: Iterable[Blocker], reader: Reader) -> tuple[Blocker, ...]:
    """The blockers as the reader may see them. Every answer with blockers is made here.

    - Only the platform sees numbers, holders, reason and author of a blocker over all tenants, and
      when it ends: all of that tells of other tenants (P7).
    - A token for some queues is not told which jobs use up the limit of its tenant or of a group,
      because these jobs may be in other queues.
    """
    return tuple(_told(blocker, reader) for blocker in blockers)


def _told(blocker: Blocker, reader: Reader) -> Blocker:
    scope = blocker.scope
    if scope is None:
        return blocker
    whole = reader.all_queues or scope.kind is ScopeKind.QUEUE
    if scope.of_platform and not (reader.platform and whole):
        words = _OF_PLATFORM.get(blocker.kind, "the platform's limit")
        return Blocker(kind=blocker.kind, words=words, scope=scope)
    if whole:
        return blocker
    words = blocker.words
    if blocker.kind is BlockerKind.ORDER:
        words = f"group {scope.part} is ordered, another job comes first"
    return msgspec.structs.replace(blocker, words=words, holders=())


async def _estimate(
    store: Store, job: JobRecord, blockers: tuple[Blocker, ...], ahead: int | None
) -> float | None:
    """The number of jobs ahead, divided by the start rate of the line."""
    if not {blocker.kind for blocker in blockers} <= _MOVING:
        return None
    starts_per_s = await pace(store, job.tenant, job.queue)
    if starts_per_s is None:
        return None
    if ahead is None:
        tallies = await store.count(job.tenant, by=ScopeKind.QUEUE, part=job.queue, limit=1)
        ahead = max(0, sum(one.counts.get(State.ENQUEUED, 0) for one in tallies) - 1)
    return (ahead + 1) / starts_per_s


async def pace(store: Store, tenant: str, queue: str) -> float | None:
    """The recent job starts per second of a line, from the event log; None if there are too few.

    Cursors give only an order: some stores number events one by one, others by the microsecond. So
    a window with too few events is widened.
    """
    end = (await store.events(tenant, -1, 0)).cursor
    for width in (WINDOW, WINDOW * WIDEN, WINDOW * WIDEN**2):
        starts = await _starts(store, tenant, queue, max(0, end - width))
        if len(starts) >= STARTS_MIN and starts[-1] > starts[0]:
            return (len(starts) - 1) / seconds(starts[-1] - starts[0])
        if width >= end:
            return None
    return None


async def _starts(store: Store, tenant: str, queue: str, after: int) -> list[Micros]:
    found: list[Micros] = []
    for _ in range(PAGES):
        page = await store.events(tenant, after, PAGE_MAX)
        found += [
            event.at
            for event in page.events
            if event.kind is EventKind.LEASED and event.queue == queue
        ]
        after = page.cursor
        if len(page.events) < PAGE_MAX:
            break
    return found
