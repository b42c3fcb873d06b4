"""Why a job does not run now: every gate that holds it, the outermost first."""

from __future__ import annotations

from holdfast import gate
from holdfast.errors import JobNotFound
from holdfast.job import TERMINAL, State
from holdfast.limits import AHEAD_MAX, HOLDERS_MAX, REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.scope import (
    NO_SETTINGS,
    Bucket,
    Explanation,
    Gate,
    GroupGate,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    group_gate,
)
from holdfast.store import Ref
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.rows import Row
from holdfast.stores.postgres.step import Step

_INSIDE = {
    ScopeKind.TENANT: "tenant = $1 AND $2 = ''",
    ScopeKind.QUEUE: "tenant = $1 AND queue = $2",
    ScopeKind.GROUP: "tenant = $1 AND group_name = $2",
}


async def explain(step: Step, ref: Ref) -> Explanation:
    # What a claim would do first is no gate.
    await step.run(sql.LOCK_CLAIMS)
    await step.begin()
    await step.run(sql.REPAIR, step.now, step.events_on, REPAIR_MAX, REPAIR_PASSES_MAX)
    row = (await step.look([(ref.tenant, ref.id)])).get((ref.tenant, ref.id))
    if row is None:
        raise JobNotFound(id=ref.id)
    if row.state in TERMINAL:
        return gate.ended(row.state)
    if row.state is State.PROCESSING and (row.lease_until or 0) > step.now:
        worker = await step.value(sql.WORKER, row.seq)
        return gate.running(worker, row.attempt, row.lease_until)
    gates = [*gate.own_gates(row, step.now), *await _all_scope_gates(step, row)]
    ahead = None
    if not gates:
        place = (row.queue, row.tenant, row.priority, row.seq, AHEAD_MAX)
        ahead = await step.value(sql.AHEAD, *place)
    tenants = await step.value(sql.TENANTS_OF_QUEUE, row.queue)
    return gate.explanation(gates, ahead, tenants)


async def _all_scope_gates(step: Step, row: Row) -> list[Gate]:
    tenant = Scope(row.tenant)
    queue = Scope(row.tenant, ScopeKind.QUEUE, row.queue)
    of_queue = await _settings(step, queue)
    gates = await _scope_gates(step, tenant, await _settings(step, tenant))
    gates += await _scope_gates(step, queue, of_queue)
    if row.group is not None:
        group = Scope(row.tenant, ScopeKind.GROUP, row.group)
        rules = group_gate(await _settings(step, group), of_queue)
        if rules.ordered:
            head = await step.row(sql.HEAD, group.tenant, group.part)
            if head is not None and head[0] != row.seq:
                gates.append(gate.order_gate(group, head[1]))
        gates += await _scope_gates(step, group, rules)
    return gates


async def _settings(step: Step, scope: Scope) -> ScopeSettings:
    found = await step.value(sql.SCOPE, scope.name)
    return NO_SETTINGS if found is None else decode(scope.name, found)


async def _scope_gates(step: Step, scope: Scope, rules: ScopeSettings | GroupGate) -> list[Gate]:
    key = (scope.kind.value, scope.tenant, scope.part)
    running = await step.row(sql.TALLY, *key)
    assert running is not None, "sums have a row"
    slots = await step.value(sql.SLOTS, *key, step.now) if rules.slots_count else 0
    full = rules.max_running is not None and running[0] + slots >= rules.max_running
    holders = await _holders(step, scope, slots > 0) if full else ()
    token_at = None
    if rules.rate is not None:
        bucket = Bucket(await step.value(sql.BUCKET, *key) or 0)
        if bucket.tokens(rules.rate, step.now) <= 0:
            token_at = bucket.next_at(rules.rate, step.now)
    usage = gate.Usage(running[0], slots, lambda: holders, token_at)
    return list(gate.scope_gates(scope, rules, usage))


async def _holders(step: Step, scope: Scope, slots: bool) -> tuple[str, ...]:
    """The ids of the jobs and slots that take a scope's places."""
    query = sql.HOLDERS.replace("{inside}", _INSIDE[scope.kind])
    ids = [row[0] for row in await step.rows(query, scope.tenant, scope.part, HOLDERS_MAX)]
    if slots and len(ids) < HOLDERS_MAX:
        values = (scope.kind.value, scope.tenant, scope.part, step.now, HOLDERS_MAX - len(ids))
        for (name,) in await step.rows(sql.SLOT_NAMES, *values):
            ids.append(name.removeprefix(scope.slots))
    return tuple(ids)
