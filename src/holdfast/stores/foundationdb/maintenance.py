"""Maintenance: `expired` reads what has lapsed; `prune` deletes what has outlived its keeping."""

from __future__ import annotations

import msgspec

from holdfast.core.bounds import KEEP_AGAIN_S
from holdfast.core.clock import SECOND, Micros, micros
from holdfast.core.job import State
from holdfast.store import Lapsed, Pruned
from holdfast.stores.foundationdb import limits_groups
from holdfast.stores.foundationdb.claim_repair import past
from holdfast.stores.foundationdb.events import prune_events
from holdfast.stores.foundationdb.holds import prune_holds
from holdfast.stores.foundationdb.idempotency import prune_keys, release_key
from holdfast.stores.foundationdb.joins_edges import drop_edges, read_edges, releasing_key
from holdfast.stores.foundationdb.layout import EDGES_PART, Space, whole
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.step import Step

PRUNE_STEP = 500
"""Jobs that one transaction deletes."""
TARGETS_MAX = 5000
"""Jobs that one transaction looks at, to see whether they live and may want the result of one that
they awaited."""
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


class PrunedPart(msgspec.Struct, frozen=True):
    """What one transaction did."""

    pruned: Pruned
    looked: int
    """Ended jobs that it has looked at, or events that it deleted."""


async def prune(step: Step, limit: int, events_keep_us: Micros) -> PrunedPart:
    most = min(limit, PRUNE_STEP)
    jobs, looked, more = await _prune_jobs(step, most)
    keys = await prune_keys(step, most)
    events = await prune_events(step, most, step.now - events_keep_us)
    await prune_holds(step, most)
    await limits_groups.reopen_due(step, most)  # As a claim does, where nobody claims.
    begin = step.keys.all(Space.MARKS)
    step.clear_range(begin, begin + whole(max(0, step.at.version - MARKS_KEPT)))
    await limits_groups.reopen_freed(step)
    pruned = Pruned(jobs, events, more=more or most in (looked, keys) or events >= most)
    return PrunedPart(pruned, max(looked, events))


async def _prune_jobs(step: Step, limit: int) -> tuple[int, int, bool]:
    """How many jobs it deleted, how many it looked at, and whether it left some for the next."""
    names = [step.keys.name_of(Space.DONE, key) for key, _ in await past(step, Space.DONE, limit)]
    await step.settings.load(tenant for tenant, _ in names)
    count, left = 0, TARGETS_MAX
    for place, row in enumerate(await step.rows(names)):
        if row is None or row.alive or row.keep_until() > step.now:
            continue
        if row.edges:
            before = row.looked
            wanted = await _is_wanted(step, row, left)
            left -= 1 + row.looked - before
            if wanted is None:
                step.save(row)
                return count, place + 1, True
            if wanted:
                row.again = step.now + micros(KEEP_AGAIN_S)
                step.save(row)
                continue
            await drop_edges(step, row)
        step.remove(row)
        await release_key(step, row)
        count += 1
    return count, len(names), False


async def _is_wanted(step: Step, row: Row, most: int) -> bool | None:
    """Whether a living job may still read the result of this one, or it has edges to follow; None
    if that takes more than a look at so many jobs. The row remembers which have ended.
    """
    if await step.get(releasing_key(step, row), snapshot=True) is not None:
        return True
    while row.looked < row.edges:
        if most <= 0:
            return None
        end = min(row.edges, row.looked + EDGES_PART)
        edges = await read_edges(step, row, row.looked, end)
        targets = await step.peek([(row.tenant, edge.target) for edge in edges])
        if any(target is not None and target.alive for target in targets):
            return True
        most -= EDGES_PART
        row.looked = end
    return False
