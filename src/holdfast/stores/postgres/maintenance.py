"""Maintenance: expired leases and jobs are found, records past their keeping are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.core import bounds
from holdfast.core.bounds import KEEP_AGAIN_S
from holdfast.core.clock import SECOND, Micros, micros
from holdfast.store import Lapsed, Pruned
from holdfast.stores.postgres import maintenance_statements as sql
from holdfast.stores.postgres import statements
from holdfast.stores.postgres.events import prune_events
from holdfast.stores.postgres.journal_statements import LEFTOVERS_PUT
from holdfast.stores.postgres.rows import record
from holdfast.stores.postgres.step import Step, columns
from holdfast.stores.sql_rows import Columns

FOLD_MAX = 100_000
"""Deltas that one step of upkeep adds to the counts."""

DAY: Micros = 24 * 3600 * SECOND
WHOLE_MIN = 50_000
"""Jobs of a day of the history from which on they wait for its end, to go all at once."""
SLICE = 50_000
"""Jobs of such a day that one statement counts."""
LOOK_MAX = 20_000
"""About how many edges one call looks at to see whether ended jobs are still wanted."""
LEFTOVERS_MAX = 1000
"""Deleted jobs whose journals and edges one call looks up."""
DROP_MAX = 10_000
"""Rows of such jobs that one call deletes, of each kind."""
LOCK_TRIES = 10
LOCK_PAUSE_S = 0.2


class _Busy(Exception):
    """Somebody uses that day of the history: another time, then."""


async def find_expired(step: Step, limit: int) -> list[Lapsed]:
    await step.begin()
    now = step.now
    lapsed = [
        Lapsed(record(row, now), token, now - deadline)
        for statement in sql.LAPSED
        for deadline, token, *row in await step.rows(statement, now, limit)
    ]
    return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]


async def prune_records(step: Step, limit: int, events_keep_us: Micros) -> Pruned:
    await step.begin()
    await step.announce()
    now = step.now
    small, whole = await _days_past(step)
    for day in whole:
        if dropped := await _drop(step, day):
            # Nothing else in this transaction: nobody can read that day until it ends.
            return Pruned(dropped, 0, more=True)
    looked, parents = await _prune_parents(step, limit)
    jobs = parents + await _prune_jobs(step, limit, small)
    left = await _drop_leftovers(step)
    keys = await step.value(sql.PRUNE_KEYS, now, limit)
    old = await prune_events(step, limit, now - events_keep_us)
    await step.run(sql.PRUNE_HOLDS, now, limit)
    await step.run(sql.PRUNE_LEASES, now, limit)
    await step.flush()
    await step.run(statements.LOCK_CLAIMS)
    await step.run(statements.FOLD, FOLD_MAX)
    await step.run(sql.PRUNE_COUNTS, limit)
    await step.run(sql.FIND_FULL_TENANTS, bounds.QUEUES_MAX, bounds.GROUPS_MAX)
    await step.run(sql.DELETE_OLD_CLAIMS, now)
    await step.run(sql.PRUNE_BUCKETS, now, limit)
    return Pruned(jobs, old, more=left or max(looked, jobs, keys, old) >= limit)


async def _days_past(step: Step) -> tuple[list[int], list[int]]:
    """Days of the history to prune job by job, and those that can go as a whole.

    A large day that is not over yet is among neither.
    """
    small, whole = [], []
    for day, first, last, may_empty in await step.rows(sql.DAYS_PAST, step.now):
        # Where upkeep did not run for days, a place of the round may hold two of them.
        is_one = first // DAY == last // DAY
        if not (is_one and may_empty) or await step.value(sql.DAY_SIZE[day], WHOLE_MIN) < WHOLE_MIN:
            small.append(day)
        elif last <= step.now:
            whole.append(day)
    return small, whole


async def _drop(step: Step, day: int) -> int:
    """Removes a day of the history; 0 if somebody uses it."""
    if not await step.value(sql.LOCK_DAY, day, "probe"):
        return 0  # Before all the counting.
    try:
        async with step.connection.transaction():
            return await _count_and_empty(step, day)
    except _Busy:
        return 0


async def _count_and_empty(step: Step, day: int) -> int:
    # While it is counted others may read, which every enqueue does; but what is counted must stay.
    if not await step.value(sql.LOCK_DAY, day, "writers"):
        raise _Busy
    if await step.value(sql.DAY_HAS_PARENTS[day]):
        raise _Busy  # These are pruned one by one.
    last = await step.value(sql.DAY_LAST[day])
    if last is None or last > step.now:
        raise _Busy
    counted, at = 0, -1
    while at < last:
        found = await step.row(sql.DAY_UNCOUNT[day], at, SLICE, step.now)
        assert found is not None, "an aggregate has a row"
        counted, at = counted + found[0], found[1]
    for _ in range(LOCK_TRIES):
        if await step.value(sql.LOCK_DAY, day, "all"):
            await step.run(sql.DAY_EMPTY[day])
            return counted
        await asyncio.sleep(LOCK_PAUSE_S)
    raise _Busy


async def _prune_jobs(step: Step, limit: int, days: list[int]) -> int:
    done = 0
    for place in (sql.REST, *map(str, days)):
        if done < limit:
            done += await _prune_place(step, limit - done, place)
    return done


async def _prune_place(step: Step, limit: int, place: str) -> int:
    return await _count_pruned(step, await step.rows(sql.PRUNE_JOBS[place], step.now, limit))


async def _count_pruned(step: Step, pruned: Sequence[Columns]) -> int:
    keys, others = [], []
    for tenant, queue, type, key, id, state, group, seq, journal in pruned:
        step.count((tenant, queue, group, None), state, None)
        if key is not None:
            keys.append((tenant, queue, type, key, id))
        if journal is not None:
            others.append(seq)
    if others:
        await step.run(LEFTOVERS_PUT, others)
    if keys:
        await step.run(statements.KEYS_RELEASE, *columns(keys), step.now)
    return len(pruned)


# -- journals and edges ----------------------------------------------------------------------------


async def _prune_parents(step: Step, limit: int) -> tuple[int, int]:
    """Prunes ended jobs with edges, unless a living job may still read their results. Returns at
    how many it has looked, and how many it has deleted.
    """
    found = await step.rows(sql.PARENTS_PAST, step.now, limit)
    looked, left = list[int](), LOOK_MAX
    for seq, edges in found:
        if looked and edges > left:
            break
        looked.append(seq)
        left -= edges
    if not looked:
        return 0, 0
    wanted = {row[0] for row in await step.rows(sql.PARENTS_WANTED, looked)}
    if wanted:
        await step.run(sql.PARENTS_KEEP, sorted(wanted), step.now + micros(KEEP_AGAIN_S))
    gone = [seq for seq in looked if seq not in wanted]
    pruned = await _count_pruned(step, await step.rows(sql.PARENTS_PRUNE, gone, step.now))
    return limit if len(looked) < len(found) else len(found), pruned


async def _drop_leftovers(step: Step) -> bool:
    """Deletes what belonged to deleted jobs, a bounded part of it; whether there may be more."""
    seqs = [row[0] for row in await step.rows(sql.LEFTOVERS, LEFTOVERS_MAX)]
    if not seqs:
        return False
    for statement in sql.LEFTOVERS_DROP:
        await step.run(statement, seqs, DROP_MAX)
    await step.run(sql.LEFTOVERS_DONE, seqs)
    return bool(await step.rows(sql.LEFTOVERS, 1))
