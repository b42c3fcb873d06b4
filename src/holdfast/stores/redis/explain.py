"""Explain: why a job does not run now, from what explain.lua read. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.core import blockers
from holdfast.core.bounds import AHEAD_MAX, HOLDERS_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL, JobRecord, State
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
from holdfast.core.tiers import Layer, effective, name_of
from holdfast.core.tiers import decode as decode_defaults
from holdfast.store import Ref
from holdfast.stores.redis.rows import record, rows_of
from holdfast.stores.redis.shards import Shards


async def explain_job(shards: Shards, ref: Ref, now: Micros | None) -> Explanation:
    args = (ref.tenant, ref.id, HOLDERS_MAX)
    answer = await shards.call("explain", shards.of(ref.tenant), args, now)
    if answer is None:
        raise JobNotFound(id=ref.id)
    rows, rank, ring, head, scopes, seen, texts, of_platform = answer
    (row,) = rows_of(rows)
    job = record(row, 0)  # As it is stored: a job that is due later is not shown as enqueued.
    at = int(seen)
    if job.state in TERMINAL:
        return blockers.ended(job.state)
    if job.state is State.PROCESSING and (job.lease_until or 0) > at:
        return blockers.running(job.worker, job.attempt, job.lease_until)
    if job.state is State.PROCESSING and job.attempt < job.rules.max_attempts:
        job = msgspec.structs.replace(job, state=State.ENQUEUED)  # The next claim finds it so.
    if of_platform and shards.number > 1:
        scopes = [*await _over_all(shards, job, now), *scopes]
    blocked = _scope_blockers(job, scopes, head.decode(), _layers(texts))
    found = [*blockers.own_blockers(job, at), *blocked]
    ahead = None if found else min(rank, AHEAD_MAX)
    tenants = ring if shards.number == 1 else await shards.sizes(f"ring:{job.queue}")
    return blockers.explanation(found, ahead, tenants)


async def _over_all(shards: Shards, job: JobRecord, now: Micros | None) -> list[Any]:
    """The scopes of the platform as one server answers: their home's settings, all that runs."""
    args = ("", job.queue, job.envelope.type)
    home: list[Any]
    home, *others = await shards.each("explain", shards.all(), args, now)
    for other in others:
        for mine, more in zip(home, other, strict=True):
            mine[1] += more[1]
            mine[4] += more[4]
    return home


def _layers(texts: list[bytes]) -> list[Layer]:
    """What concerns the tenant beside its own settings, the strongest first."""
    names = (name.decode() for name in texts[::2])
    return [
        Layer(name, decode_defaults(name_of(name), text))
        for name, text in zip(names, texts[1::2], strict=True)
    ]


def _scope_blockers(
    job: JobRecord, answer: list[Any], head: str, layers: list[Layer]
) -> Iterator[Blocker]:
    over_all: tuple[Scope, ...] = platform_scopes(job.queue, job.envelope.type)
    if len(answer) < len(over_all) + 2:
        over_all = ()  # The platform has no settings.
    of_platform, answer = answer[: len(over_all)], answer[len(over_all) :]
    for scope, of_scope in zip(over_all, of_platform, strict=True):
        yield from _blockers(scope, _settings(scope, of_scope[0]), of_scope)
    tenant = Scope(job.tenant)
    queue = Scope(job.tenant, ScopeKind.QUEUE, job.queue)
    of_tenant = effective(_settings(tenant, answer[0][0]), tenant.kind, layers)
    of_queue = effective(_settings(queue, answer[1][0]), queue.kind, layers)
    yield from _blockers(tenant, of_tenant, answer[0])
    yield from _blockers(queue, of_queue, answer[1])
    if job.group is not None:
        group = Scope(job.tenant, ScopeKind.GROUP, job.group)
        rules = group_settings(_settings(group, answer[2][0]), of_queue)
        if rules.ordered and head:
            yield blockers.order_blocker(group, head)
        yield from _blockers(group, rules, answer[2])


def _settings(scope: Scope, text: bytes) -> ScopeSettings:
    return decode(scope.name, text) if text else NO_SETTINGS


def _blockers(
    scope: Scope, rules: ScopeSettings | GroupSettings, answer: list[Any]
) -> Iterator[Blocker]:
    _, running, slots, token_at, holders, ids = answer
    if scope.of_platform:
        pairs = zip(holders[::2], holders[1::2], strict=True)
        names = tuple(blockers.by_tenant(Counter({name.decode(): n for name, n in pairs})))
    else:
        names = tuple(each.decode() for each in (*holders, *ids))[:HOLDERS_MAX]
    usage = blockers.Usage(
        running=running,
        slots=slots,
        holders=lambda: names,
        token_at=int(token_at) if token_at else None,
    )
    return blockers.scope_blockers(scope, rules, usage)
