"""Maintenance: jobs past their deadline, and the deletion of what was kept long enough."""

from __future__ import annotations

from holdfast.core.clock import Micros
from holdfast.store import Lapsed, Pruned
from holdfast.stores.redis.rows import record, rows_of
from holdfast.stores.redis.settings_copies import settle
from holdfast.stores.redis.shards import Shards

PRUNE_STEP = 500
"""Jobs, keys or events that one call deletes: the server does nothing else meanwhile."""


async def find_expired(shards: Shards, limit: int, now: Micros | None) -> list[Lapsed]:
    answers = await shards.each("expired", shards.all(), (limit,), now)
    lapsed = [
        Lapsed(record(row, int(seen)), token.decode() or None, int(overdue))
        for seen, late, answer in answers
        for (overdue, token), row in zip(late, rows_of(answer), strict=True)
    ]
    return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]


async def prune_ended(
    shards: Shards, limit: int, events_keep_us: Micros, now: Micros | None
) -> Pruned:
    """Deletes in short steps, shard by shard. First the copies of settings are brought up to date,
    if somebody died before that.
    """
    await settle(shards, now, reopen=True)
    sums = [0, 0, 0, 0]
    for shard in shards.all():
        while True:
            step = min(PRUNE_STEP, limit - max(sums))
            if step <= 0:
                return Pruned(sums[0], sums[2], more=True)
            numbers = await shards.call("prune", shard, (step, events_keep_us), now)
            sums = [sum(each) for each in zip(sums, numbers, strict=True)]
            if step not in numbers:
                break
    return Pruned(sums[0], sums[2], more=limit in sums)
