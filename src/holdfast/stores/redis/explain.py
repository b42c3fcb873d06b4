"""Why a job does not run now: the facts of explain.lua, in the words of `gate.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast import gate
from holdfast.clock import Micros
from holdfast.errors import JobNotFound
from holdfast.job import TERMINAL, JobRecord, State
from holdfast.limits import AHEAD_MAX, HOLDERS_MAX
from holdfast.scope import (
    NO_SETTINGS,
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
from holdfast.stores.redis.rows import record
from holdfast.stores.redis.shards import Shards


async def explain(shards: Shards, ref: Ref, now: Micros | None) -> Explanation:
    args = (ref.tenant, ref.id, AHEAD_MAX, HOLDERS_MAX)
    answer = await shards.call("explain", shards.of(ref.tenant), args, now)
    if answer is None:
        raise JobNotFound(id=ref.id)
    told, rank, ring, head, scopes, seen = answer
    job = record(told, 0)  # As it is kept: a job that is due later is not shown as enqueued.
    at = int(seen)
    if job.state in TERMINAL:
        return gate.ended(job.state)
    if job.state is State.PROCESSING and (job.lease_until or 0) > at:
        return gate.running(job.worker, job.attempt, job.lease_until)
    gates = [*gate.own_gates(job, at), *_scope_gates(job, scopes, head.decode())]
    ahead = None if gates else min(max(rank, 0), AHEAD_MAX)
    tenants = ring if shards.number == 1 else await shards.sizes(f"ring:{job.queue}")
    return gate.explanation(gates, ahead, tenants)


def _scope_gates(job: JobRecord, told: list[Any], head: str) -> Iterator[Gate]:
    tenant = Scope(job.tenant)
    queue = Scope(job.tenant, ScopeKind.QUEUE, job.queue)
    of_queue = _settings(queue, told[1][0])
    yield from _gates(tenant, _settings(tenant, told[0][0]), told[0])
    yield from _gates(queue, of_queue, told[1])
    if job.group is not None:
        group = Scope(job.tenant, ScopeKind.GROUP, job.group)
        rules = group_gate(_settings(group, told[2][0]), of_queue)
        if rules.ordered and head:
            yield gate.order_gate(group, head)
        yield from _gates(group, rules, told[2])


def _settings(scope: Scope, text: bytes) -> ScopeSettings:
    return decode(scope.name, text) if text else NO_SETTINGS


def _gates(scope: Scope, rules: ScopeSettings | GroupGate, told: list[Any]) -> Iterator[Gate]:
    _, running, slots, token_at, holders, ids = told
    names = tuple(each.decode() for each in (*holders, *ids))[:HOLDERS_MAX]
    usage = gate.Usage(
        running=running,
        slots=slots,
        holders=lambda: names,
        token_at=int(token_at) if token_at else None,
    )
    return gate.scope_gates(scope, rules, usage)
