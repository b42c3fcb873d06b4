"""Why does my job not run? The store's gates, whether anybody is there to run it, and how long."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.clock import Micros, seconds
from holdfast.errors import JobNotFound
from holdfast.job import EventKind, JobRecord, State
from holdfast.limits import PAGE_MAX
from holdfast.roster import nobody_for, roster
from holdfast.scope import Gate, GateKind, ScopeKind
from holdfast.scopes import supported
from holdfast.store import Find, Ref, Selection, Store

WINDOW = 20_000
"""How many of the latest events are looked at for the pace of a line."""
WIDEN = 1000
PAGES = 5
STARTS_MIN = 2
"""Fewer starts tell no pace."""

_MOVING = frozenset({GateKind.TURN, GateKind.LIMIT, GateKind.RATE, GateKind.ORDER})
"""Gates that open as the work goes on."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Every gate that holds a job now. None: it can be claimed at once."""

    tenant: str
    id: str
    state: State
    gates: tuple[Gate, ...]
    ahead: int | None
    """Ready jobs of its line that come first; None when it is not ready."""
    tenants: int | None
    """Tenants that take turns with its own in its queue."""
    not_before: Micros | None
    """When the last of the gates opens that open by themselves."""
    estimate_s: float | None
    """Seconds until it starts, if its line goes on as it did lately; for a job that a limit, a rate
    or an order holds, as if it were the last of its queue. None when nothing tells.
    """

    @property
    def free(self) -> bool:
        """Nothing holds it."""
        return not self.gates


async def explain(store: Store, ref: Ref, *, own: bool = False) -> Explained:
    """JobNotFound as ever, also for another tenant's job. `own` is for the tenant's eyes: other
    tenants and their workers are not counted.
    """
    supported(store)
    page = await store.find(Find(select=Selection(tenant=ref.tenant, ids=(ref.id,)), limit=1))
    if not page.jobs:
        raise JobNotFound(id=ref.id)
    job = page.jobs[0]
    found = await store.explain(ref)
    gates = found.gates
    if not any(gate.kind in (GateKind.ENDED, GateKind.RUNNING) for gate in gates):
        nobody = nobody_for(job, await roster(store, ref.tenant, own=own))
        if nobody is not None:
            gates = (*gates, Gate(kind=GateKind.NO_WORKER, words=nobody))
    untils = [gate.until for gate in gates if gate.until is not None]
    return Explained(
        tenant=job.tenant,
        id=job.id,
        state=job.state,
        gates=gates,
        ahead=found.ahead,
        tenants=None if own else found.tenants,
        not_before=max(untils, default=None),
        estimate_s=await _estimate(store, job, gates, found.ahead),
    )


def unnamed(gates: Iterable[Gate]) -> tuple[Gate, ...]:
    """Gates as somebody is told who may see some queues only. A tenant and a group reach over
    queues: who stands in the way may be in another one.
    """
    return tuple(map(_unnamed, gates))


def _unnamed(gate: Gate) -> Gate:
    if gate.scope is None or gate.scope.kind is ScopeKind.QUEUE:
        return gate
    words = gate.words
    if gate.kind is GateKind.ORDER:
        words = f"group {gate.scope.part} is ordered, another job comes first"
    return msgspec.structs.replace(gate, words=words, holders=())


async def _estimate(
    store: Store, job: JobRecord, gates: tuple[Gate, ...], ahead: int | None
) -> float | None:
    """How many come first, by how fast its line goes."""
    if not {gate.kind for gate in gates} <= _MOVING:
        return None
    starts_per_s = await pace(store, job.tenant, job.queue)
    if starts_per_s is None:
        return None
    if ahead is None:
        tallies = await store.count(job.tenant, by=ScopeKind.QUEUE, part=job.queue, limit=1)
        ahead = max(0, sum(one.counts.get(State.ENQUEUED, 0) for one in tallies) - 1)
    return (ahead + 1) / starts_per_s


async def pace(store: Store, tenant: str, queue: str) -> float | None:
    """Jobs of a line that started per second lately, by the event log; None when it tells none.

    Cursors tell only an order: some stores number events one by one, others by the microsecond. So
    a window that holds too little is widened.
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
