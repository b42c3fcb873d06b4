"""Why a job does not run now: every gate that holds it, the outermost first."""

from __future__ import annotations

from collections import Counter

from holdfast.core import blockers
from holdfast.core.bounds import AHEAD_MAX, HOLDERS_MAX
from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL, State
from holdfast.core.rate import Bucket
from holdfast.core.scope import (
    NO_SETTINGS,
    Blocker,
    Explanation,
    GroupSettings,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    group_settings,
    platform_scopes,
)
from holdfast.core.tiers import Layer, effective, layers_of, name_of
from holdfast.core.tiers import decode as decode_tier
from holdfast.store import Ref
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.limits_tiers import TIER
from holdfast.stores.postgres.rows import Row
from holdfast.stores.postgres.step import Step

BUCKET = (
    "SELECT holdfast.bucket_full_at($1, $2, $3, ROW(NULL, $4::bigint, $5::bigint, false, false,"
    " t.rated, t.rated_at)::holdfast.limits) FROM holdfast.tier_of_tenant($2) t"
)
_INSIDE = {
    ScopeKind.TENANT: "tenant = $1 AND $2 = ''",
    ScopeKind.QUEUE: "($1 = '' OR tenant = $1) AND queue = $2",
    ScopeKind.GROUP: "tenant = $1 AND group_name = $2",
    ScopeKind.PLATFORM: "$1 = $2",
    ScopeKind.TYPE: "$1 = '' AND type = $2",
}


async def explain_job(step: Step, ref: Ref) -> Explanation:
    await step.begin()
    row = await step.read_job(ref)
    if row is None:
        raise JobNotFound(id=ref.id)
    if row.state in TERMINAL:
        return blockers.ended(row.state)
    if row.state is State.PROCESSING and (row.lease_until or 0) > step.now:
        worker = await step.value(sql.WORKER, row.seq)
        return blockers.running(worker, row.attempt, row.lease_until)
    if row.state is State.PROCESSING and row.attempt < row.max_attempts:
        row.state = State.ENQUEUED  # The next claim makes it ready, so its old lease holds nothing.
    gates = [*blockers.own_blockers(row, step.now), *await _all_scope_gates(step, row)]
    ahead = None
    if not gates:
        place = (row.queue, row.tenant, row.priority, row.seq, AHEAD_MAX, step.now)
        ahead = await step.value(sql.AHEAD, *place)
    tenants = await step.value(sql.TENANTS_OF_QUEUE, row.queue)
    return blockers.explanation(gates, ahead, tenants)


async def _all_scope_gates(step: Step, row: Row) -> list[Blocker]:
    tenant = Scope(row.tenant)
    queue = Scope(row.tenant, ScopeKind.QUEUE, row.queue)
    of_tenant, of_queue = await _settings(step, tenant), await _settings(step, queue)
    layers = await _layers(step, of_tenant.tier)
    of_tenant = effective(of_tenant, tenant.kind, layers)
    of_queue = effective(of_queue, queue.kind, layers)
    gates: list[Blocker] = []
    for scope in platform_scopes(row.queue, row.type):
        gates += await _scope_gates(step, scope, await _settings(step, scope))
    gates += await _scope_gates(step, tenant, of_tenant)
    gates += await _scope_gates(step, queue, of_queue)
    if row.group is not None:
        group = Scope(row.tenant, ScopeKind.GROUP, row.group)
        rules = group_settings(await _settings(step, group), of_queue)
        if rules.ordered:
            head = await step.row(sql.HEAD, group.tenant, group.part)
            if head is not None and head[0] != row.seq:
                gates.append(blockers.order_blocker(group, head[1]))
        gates += await _scope_gates(step, group, rules)
    return gates


async def _settings(step: Step, scope: Scope) -> ScopeSettings:
    found = await step.value(sql.SCOPE, scope.name)
    return NO_SETTINGS if found is None else decode(scope.name, found)


async def _layers(step: Step, tier: str | None) -> list[Layer]:
    """The tier of a tenant and the platform's defaults, as far as they exist."""
    tiers = {}
    for name in {tier or "", ""}:
        found = await step.value(TIER, name_of(name))
        if found is not None:
            tiers[name] = decode_tier(name_of(name), found)
    return layers_of(tier, tiers)


async def _scope_gates(
    step: Step, scope: Scope, rules: ScopeSettings | GroupSettings
) -> list[Blocker]:
    if rules == NO_SETTINGS and scope.of_platform:
        return []
    key = (scope.kind.value, scope.tenant, scope.part)
    inside = _INSIDE[scope.kind]
    lapsed = sql.LAPSED_IN.replace("{inside}", inside)
    running = await _running(step, scope)
    running -= await step.value(lapsed, scope.tenant, scope.part, step.now)
    slots = await step.value(sql.SLOTS, *key, step.now) if rules.slots_count else 0
    full = rules.max_running is not None and running + slots >= rules.max_running
    holders = await _holders(step, scope, slots > 0) if full else ()
    token_at = None
    if rules.rate is not None:
        bucket = Bucket(await step.value(BUCKET, *key, rules.rate.price_us, rules.rate.burst))
        if bucket.tokens(rules.rate, step.now) <= 0:
            token_at = bucket.next_at(rules.rate, step.now)
    usage = blockers.Usage(running, slots, lambda: holders, token_at)
    return list(blockers.scope_blockers(scope, rules, usage))


async def _running(step: Step, scope: Scope) -> int:
    if scope.of_platform:
        found = await step.row(sql.PLATFORM_COUNTS, scope.kind.value, scope.part, None, 1)
        return 0 if found is None else int(found[1])
    counts = await step.row(sql.TALLY, scope.kind.value, scope.tenant, scope.part)
    assert counts is not None, "sums have a row"
    return int(counts[0])


async def _holders(step: Step, scope: Scope, slots: bool) -> tuple[str, ...]:
    """The ids of the jobs and slots that take a scope's places; over all tenants, how many each
    has.
    """
    if scope.of_platform:
        query = sql.HOLDING_TENANTS.replace("{inside}", _INSIDE[scope.kind])
        running = Counter[str]()
        for tenant, number in await step.rows(query, scope.tenant, scope.part, step.now):
            running[tenant] = number
        return tuple(blockers.by_tenant(running))
    query = sql.HOLDERS.replace("{inside}", _INSIDE[scope.kind])
    values: tuple[object, ...] = (scope.tenant, scope.part, step.now, HOLDERS_MAX)
    ids = [row[0] for row in await step.rows(query, *values)]
    if slots and len(ids) < HOLDERS_MAX:
        values = (scope.kind.value, scope.tenant, scope.part, step.now, HOLDERS_MAX - len(ids))
        for (name,) in await step.rows(sql.SLOT_NAMES, *values):
            ids.append(name.removeprefix(scope.slots))
    return tuple(ids)
