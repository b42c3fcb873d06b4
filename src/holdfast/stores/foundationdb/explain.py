"""Why a job does not run now: every gate that holds it, the outermost first."""

from __future__ import annotations

from holdfast import gate
from holdfast.errors import JobNotFound
from holdfast.job import TERMINAL, State
from holdfast.limits import AHEAD_MAX, HOLDERS_MAX
from holdfast.scope import (
    Explanation,
    Gate,
    GroupGate,
    Scope,
    ScopeKind,
    ScopeSettings,
)
from holdfast.store import Ref
from holdfast.stores.foundationdb import places
from holdfast.stores.foundationdb.layout import Space, text, texts, whole
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import Step

HELD_MAX = 2000
"""Held jobs that are looked at for those of a scope."""
RING_MAX = 10_000
"""Tenants of a queue that are counted."""


async def explain(step: Step, known: Known, ref: Ref) -> Explanation:
    row = await step.row(ref.tenant, ref.id)
    if row is None:
        raise JobNotFound(id=ref.id)
    await places.learn(step, known, [ref.tenant])
    if row.state in TERMINAL:
        return gate.ended(row.state)
    if row.state is State.PROCESSING and not row.lapsed(step.at):
        return gate.running(row.worker, row.attempt, row.lease_until)
    found = list(gate.own_gates(row, step.now))
    rules = step.rules
    for scope in (Scope(row.tenant), Scope(row.tenant, ScopeKind.QUEUE, row.queue)):
        found += await _scope_gates(step, scope, rules.of(scope))
    if row.group is not None:
        group = Scope(row.tenant, ScopeKind.GROUP, row.group)
        own = rules.group(row.tenant, row.group, row.queue)
        if own.ordered:
            found += await _order_gates(step, row, group)
        found += await _scope_gates(step, group, own)
    ahead = None if found else await _ahead(step, row)
    return gate.explanation(found, ahead, await _tenants(step, known, row.queue))


async def _scope_gates(step: Step, scope: Scope, rules: ScopeSettings | GroupGate) -> list[Gate]:
    room = await places.Room.of(step, scope, rules)
    slots = await places.live_slots(step, scope) if rules.slots_count else []
    holders: tuple[str, ...] = ()
    running = await places.running(step, scope)
    if rules.max_running is not None and running + len(slots) >= rules.max_running:
        ids = await _holders(step, scope)
        holders = (*ids, *(id for id, _ in slots))[:HOLDERS_MAX]
    usage = gate.Usage(
        running=running, slots=len(slots), holders=lambda: holders, token_at=room.token_at()
    )
    return list(gate.scope_gates(scope, rules, usage))


async def _holders(step: Step, scope: Scope) -> list[str]:
    """The ids of jobs that take a scope's places."""
    found: list[str] = []
    for space in (Space.HELD, Space.SPENT):
        pairs = await step.under(step.keys.all(space), HELD_MAX, snapshot=True)
        names = [step.keys.name_of(space, key) for key, _ in pairs]
        mine = [name for name in names if name[0] == scope.tenant]
        for row in await step.peek(mine):
            if row is not None and scope in step.scopes_of(row):
                found.append(row.id)
    return found[:HOLDERS_MAX]


async def _order_gates(step: Step, row: Row, scope: Scope) -> list[Gate]:
    found = await step.under(
        step.keys.own(scope.tenant, Space.ORDER, text(scope.part)), 1, snapshot=True
    )
    if not found or found[0][0].endswith(row.stamp):
        return []
    return [gate.order_gate(scope, found[0][1].decode())]


async def _ahead(step: Step, row: Row) -> int:
    """Ready jobs of its line that rank before it."""
    prefix = step.keys.ready(row.tenant, row.queue)
    end = prefix + whole(-row.priority) + row.stamp
    return len(await step.range(prefix, end, AHEAD_MAX, snapshot=True))


async def _tenants(step: Step, known: Known, queue: str) -> int:
    """Tenants that take turns in a queue: their lines have ready jobs and room."""
    prefix = step.keys.all(Space.QUEUES, text(queue))
    pairs = await step.under(prefix, RING_MAX, snapshot=True)
    lines = [(texts(key[len(prefix) :], 1)[0], queue) for key, _ in pairs]
    count = 0
    async for _, rooms, ready in places.survey(step, known, lines):
        count += ready and all(room.left() > 0 for room in rooms)
    return count
