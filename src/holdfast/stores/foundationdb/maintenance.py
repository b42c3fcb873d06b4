"""Maintenance: `expired` reads what has lapsed; `prune` deletes what has outlived its keeping."""

from __future__ import annotations

from holdfast.core.clock import SECOND, Micros
from holdfast.core.job import State
from holdfast.store import Lapsed, Pruned
from holdfast.stores.foundationdb import limits_groups
from holdfast.stores.foundationdb.claim_repair import past
from holdfast.stores.foundationdb.events import prune_events
from holdfast.stores.foundationdb.holds import prune_holds
from holdfast.stores.foundationdb.idempotency import prune_keys, release_key
from holdfast.stores.foundationdb.layout import Space, whole
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.step import Step

PRUNE_STEP = 500
"""Jobs that one transaction deletes."""
MARKS_KEPT = 600 * SECOND
"""Versions after which nobody repeats a call."""


async def expired_jobs(step: Step, limit: int) -> list[Lapsed]:
    found: list[tuple[Micros, Row, str | None]] = []
    for space in (Space.SPENT, Space.HELD):
        for row in await _past_rows(step, space, limit):
            if row.state is State.PROCESSING and row.lapsed(step.at):
                assert row.lease_until is not None
                found.append((step.now - row.lease_until, row, row.token))
    for space in (Space.LATE, Space.TTL):
        for row in await _past_rows(step, space, limit):
            if row.expires_at is not None:
                found.append((step.now - row.expires_at, row, None))
    found.sort(key=lambda one: -one[0])
    return [
        Lapsed(row.record(step.now, await step.body(row)), token, max(0, overdue))
        for overdue, row, token in found[:limit]
    ]


async def _past_rows(step: Step, space: Space, limit: int) -> list[Row]:
    names = [step.keys.name_of(space, key) for key, _ in await past(step, space, limit)]
    return [row for row in await step.peek(names) if row is not None]


async def prune(step: Step, limit: int, events_keep_us: Micros) -> Pruned:
    """One transaction's part of it."""
    most = min(limit, PRUNE_STEP)
    jobs = await _prune_jobs(step, most)
    keys = await prune_keys(step, most)
    events = await prune_events(step, most, step.now - events_keep_us)
    await prune_holds(step, most)
    await limits_groups.reopen_due(step, most)  # As a claim does, where nobody claims.
    begin = step.keys.all(Space.MARKS)
    step.clear_range(begin, begin + whole(max(0, step.at.version - MARKS_KEPT)))
    await limits_groups.reopen_freed(step)
    return Pruned(jobs, events, more=most in (jobs, keys) or events >= most)


async def _prune_jobs(step: Step, limit: int) -> int:
    names = [step.keys.name_of(Space.DONE, key) for key, _ in await past(step, Space.DONE, limit)]
    await step.settings.load(tenant for tenant, _ in names)
    count = 0
    for row in await step.rows(names):
        if row is not None and not row.alive and row.keep_until() <= step.now:
            step.remove(row)
            await release_key(step, row)
            count += 1
    return count
