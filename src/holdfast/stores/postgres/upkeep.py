"""What upkeep reads and clears away."""

from __future__ import annotations

from holdfast.clock import Micros
from holdfast.store import Lapsed, Pruned
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.rows import record
from holdfast.stores.postgres.step import Step, columns

FOLD_MAX = 100_000
"""Deltas that one step of upkeep adds to the counts."""


async def expired(step: Step, limit: int) -> list[Lapsed]:
    await step.begin()
    now = step.now
    lapsed = [
        Lapsed(record(row, now), token, now - deadline)
        for statement in sql.LAPSED
        for deadline, token, *row in await step.rows(statement, now, limit)
    ]
    return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]


async def prune(step: Step, limit: int, events_keep_us: Micros) -> Pruned:
    await step.begin()
    now = step.now
    jobs = await _prune_jobs(step, limit)
    keys = await step.value(sql.PRUNE_KEYS, now, limit)
    events = await _prune_events(step, limit, now - events_keep_us)
    await step.run(sql.PRUNE_HOLDS, now, limit)
    await step.flush()
    await step.run(sql.LOCK_CLAIMS)
    await step.run(sql.FOLD, FOLD_MAX)
    await step.run(sql.PRUNE_COUNTS, limit)
    await step.run(sql.PRUNE_BUCKETS, now, limit)
    return Pruned(jobs, events, more=limit in (jobs, keys, events))


async def _prune_jobs(step: Step, limit: int) -> int:
    pruned = await step.rows(sql.PRUNE_JOBS, step.now, limit)
    keys = []
    for tenant, queue, type, key, id, state, group in pruned:
        step.count((tenant, queue, group), state, None)
        if key is not None:
            keys.append((tenant, queue, type, key, id))
    if keys:
        await step.run(sql.KEYS_RELEASE, *columns(keys), step.now)
    return len(pruned)


async def _prune_events(step: Step, limit: int, horizon: Micros) -> int:
    """Cuts the log's oldest facts off and remembers where it begins now."""
    head = await step.value(sql.HORIZON)
    found = await step.row(sql.PRUNE_EVENTS_TO, limit, horizon, head)
    if found is None or found[0] is None:
        return 0
    await step.run(sql.PRUNE_EVENTS, found[0])
    await step.run(sql.FLOOR_SAVE, found[0])
    return int(found[1])
