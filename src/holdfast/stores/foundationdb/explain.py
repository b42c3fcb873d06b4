"""Explain: why a job does not run now, with every blocker, the outermost first.

Due jobs and lapsed leases that no claim has made ready yet are taken as ready: what a claim does
first is no blocker.
"""

from __future__ import annotations

from collections import Counter

from holdfast.core import blockers
from holdfast.core.bounds import AHEAD_MAX, HOLDERS_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL, State
from holdfast.core.scope import (
    Blocker,
    Explanation,
    GroupSettings,
    Scope,
    ScopeKind,
    ScopeSettings,
    platform_scopes,
)
from holdfast.store import Ref
from holdfast.stores.foundationdb import limits
from holdfast.stores.foundationdb.claim_repair import past
from holdfast.stores.foundationdb.layout import Space, text, texts, whole
from holdfast.stores.foundationdb.rows import Row, candidate
from holdfast.stores.foundationdb.step import Step

HELD_MAX = 2000
"""Held jobs that are read to find those of a scope, and jobs that a claim would make ready."""
TENANTS_MAX = 10_000
"""Tenants of a queue that are counted."""


async def explain_job(step: Step, ref: Ref) -> Explanation:
    [row] = await step.peek([(ref.tenant, ref.id)])
    if row is None:
        raise JobNotFound(id=ref.id)
    await step.settings.load([ref.tenant])
    if row.state in TERMINAL:
        return blockers.ended(row.state)
    if row.state is State.PROCESSING and not row.lapsed(step.at):
        return blockers.running(row.worker, row.attempt, row.lease_until)
    lapsed = await _rows(step, Space.HELD)
    if row.state is State.PROCESSING and row.attempt < row.max_attempts:
        row.state = State.ENQUEUED
    found = list(blockers.own_blockers(row, step.now))
    over_all = platform_scopes(row.queue, row.type) if step.settings.platform else ()
    for scope in (*over_all, *step.scopes(row.tenant, row.queue, None)):
        found += await _scope_blockers(step, scope, step.settings.of(scope), lapsed)
    if row.group is not None:
        group = Scope(row.tenant, ScopeKind.GROUP, row.group)
        settings = step.settings.group(row.tenant, row.group, row.queue)
        if settings.ordered:
            found += await _order_blockers(step, row, group)
        found += await _scope_blockers(step, group, settings, lapsed)
    unready = [*lapsed, *await _rows(step, Space.DUE)]
    ahead = None if found else await _ahead(step, row, unready)
    turns = {each.tenant for each in unready if each.queue == row.queue and not found}
    return blockers.explanation(found, ahead, len(turns | await _tenants(step, row.queue)))


async def _rows(step: Step, space: Space) -> list[Row]:
    """The jobs that a claim would make ready first."""
    pairs = await past(step, space, HELD_MAX)
    found = await step.peek([step.keys.name_of(space, key) for key, _ in pairs])
    return [row for row in found if row is not None]


async def _scope_blockers(
    step: Step, scope: Scope, settings: ScopeSettings | GroupSettings, lapsed: list[Row]
) -> list[Blocker]:
    room = await limits.Room.of(step, scope, settings)
    slots = await limits.live_slots(step, scope) if settings.slots_count else []
    holders: tuple[str, ...] = ()
    running = await limits.running(step, scope)
    running -= sum(_is_inside(step, row, scope) for row in lapsed)
    if settings.max_running is not None and running + len(slots) >= settings.max_running:
        ids = await _holders(step, scope, {row.name for row in lapsed})
        holders = (*ids, *(id for id, _ in slots))[:HOLDERS_MAX]
    usage = blockers.Usage(
        running=running, slots=len(slots), holders=lambda: holders, token_at=room.token_at()
    )
    return list(blockers.scope_blockers(scope, settings, usage))


def _is_inside(step: Step, row: Row, scope: Scope) -> bool:
    if scope.of_platform:
        return scope in platform_scopes(row.queue, row.type)
    return scope in step.scopes_of(row)


async def _holders(step: Step, scope: Scope, lapsed: set[tuple[str, str]]) -> list[str]:
    """The ids of jobs that take a scope's places; over all tenants, how many each has."""
    found: list[Row] = []
    for space in (Space.HELD, Space.SPENT):
        pairs = await step.under(step.keys.all(space), HELD_MAX, snapshot=True)
        names = [step.keys.name_of(space, key) for key, _ in pairs]
        mine = [name for name in names if scope.tenant in ("", name[0]) and name not in lapsed]
        for row in await step.peek(mine):
            if row is not None and _is_inside(step, row, scope):
                found.append(row)
    if scope.of_platform:
        return blockers.by_tenant(Counter(row.tenant for row in found))
    return [row.id for row in found[:HOLDERS_MAX]]


async def _order_blockers(step: Step, row: Row, scope: Scope) -> list[Blocker]:
    found = await step.under(
        step.keys.own(scope.tenant, Space.GROUP_ORDER, text(scope.part)), 1, snapshot=True
    )
    if not found or found[0][0].endswith(row.stamp):
        return []
    return [blockers.order_blocker(scope, found[0][1].decode())]


async def _ahead(step: Step, row: Row, unready: list[Row]) -> int:
    """Ready jobs of its line that rank before it."""
    prefix = step.keys.ready(row.tenant, row.queue)
    end = prefix + whole(-row.priority) + row.stamp
    pairs = await step.range(prefix, end, AHEAD_MAX, snapshot=True)
    ends = [candidate(*pair).expires_at for pair in pairs]
    if step.settings.marked:
        ends += await _aside(step, row)
    ready = sum(at is None or at > step.now for at in ends)
    ready += sum(
        (each.tenant, each.queue) == (row.tenant, row.queue)
        and (-each.priority, each.seq) < (-row.priority, row.seq)
        for each in unready
    )
    return min(ready, AHEAD_MAX)


async def _aside(step: Step, row: Row) -> list[Micros | None]:
    """Until when those live that rank before it, and wait at the limits of their types."""
    prefix = step.keys.own(row.tenant, Space.ASIDE_JOBS, text(row.queue))
    pairs = await step.under(prefix, AHEAD_MAX, snapshot=True)
    rank = whole(-row.priority) + row.stamp
    return [candidate(*pair).expires_at for pair in pairs if pair[0][-len(rank) :] < rank]


async def _tenants(step: Step, queue: str) -> set[str]:
    """Tenants that take turns in a queue: their lines have ready jobs and room."""
    prefix = step.keys.all(Space.QUEUES, text(queue))
    pairs = await step.under(prefix, TENANTS_MAX, snapshot=True)
    lines = [(texts(key[len(prefix) :], 1)[0], queue) for key, _ in pairs]
    return {
        line[0]
        async for line, rooms, ready in limits.survey(step, lines)
        if ready and all(room.left() > 0 for room in rooms)
    }
