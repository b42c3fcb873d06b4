"""What a claim does first: makes due jobs and lapsed leases ready, and opens what time has opened.

A read does none of it: `find`, `count` and `explain` compute what a claim would find.
"""

from __future__ import annotations

from holdfast.core.bounds import REPAIR_MAX
from holdfast.core.job import EventKind, Reason, State
from holdfast.core.lifecycle import clip, why
from holdfast.stores.foundationdb.joins import left_key
from holdfast.stores.foundationdb.layout import Space, whole
from holdfast.stores.foundationdb.limits_groups import reopen_due, reopen_freed
from holdfast.stores.foundationdb.limits_platform import count_uncounted, uncounted
from holdfast.stores.foundationdb.overlay import Pair
from holdfast.stores.foundationdb.rows import Row, lease_of, plain
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.step_ends import finish, requeue

REPAIRED = (Space.DUE, Space.HELD, Space.REOPEN, Space.TTL)
"""The indexes by instants that a claim looks at first."""


def ask_overdue(step: Step) -> None:
    """Requests what `overdue` reads."""
    step.settings.ask()
    for space in REPAIRED:
        step.ask_under(step.keys.all(space), 1)


async def edges_left(step: Step) -> bool:
    """Whether there are edges to follow. `overdue` has read it."""
    pairs = await step.under(step.keys.all(Space.REOPEN), 1, snapshot=True)
    return bool(pairs) and pairs[0][0] == left_key(step)


async def overdue(step: Step) -> bool:
    """Whether there is something to repair."""
    for space in REPAIRED:
        horizon = step.at.horizon if space is Space.HELD else step.now
        for key, _ in await step.under(step.keys.all(space), 1, snapshot=True):
            if step.keys.instant_of(space, key) <= horizon:
                return True
    await step.settings.load()
    return bool(uncounted(step) or step.settings.tiers.looks)


async def repair(step: Step) -> int:
    """Repairs REPAIR_MAX of each; returns how many it moved."""
    await count_uncounted(step)
    moved = await _promote(step)
    moved += await _rescue(step)
    moved += await reopen_due(step, REPAIR_MAX)
    # Last, for the jobs made ready a moment ago may have outlived their time too.
    moved += await _retire(step)
    await reopen_freed(step)
    return moved


async def past(step: Step, space: Space, limit: int = REPAIR_MAX) -> list[Pair]:
    """The first entries of an index by instants that are past; of leases, those that are over."""
    leases = space in (Space.HELD, Space.SPENT)
    begin, horizon = step.keys.all(space), step.at.horizon if leases else step.now
    pairs = await step.range(begin, begin + whole(horizon + 1), limit, snapshot=True)
    return [pair for pair in pairs if not leases or is_over(step, space, *pair)]


def is_over(step: Step, space: Space, key: bytes, value: bytes) -> bool:
    """Whether the lease of an entry of HELD or SPENT has lapsed."""
    until, length = lease_of(value)
    return step.at.lapsed(until, step.keys.instant_of(space, key), length)


async def _past_rows(step: Step, space: Space) -> list[Row]:
    names = [step.keys.name_of(space, key) for key, _ in await past(step, space)]
    await step.settings.load(tenant for tenant, _ in names)
    return [row for row in await step.rows(names) if row is not None]


async def _promote(step: Step) -> int:
    """Makes due jobs ready."""
    moved = 0
    for row in await _past_rows(step, Space.DUE):
        if row.state in (State.SCHEDULED, State.RETRYING) and row.run_at <= step.now:
            row.state = State.ENQUEUED
            requeue(step, row)
            moved += 1
    return moved


async def _rescue(step: Step) -> int:
    """Makes jobs ready whose lease has lapsed and that have attempts left."""
    moved = 0
    for row in await _past_rows(step, Space.HELD):
        if row.state is State.PROCESSING and row.lapsed(step.at):
            row.state = State.ENQUEUED
            row.lapses += 1
            row.updated_at = step.now
            requeue(step, row)
            step.note(EventKind.RESCUED, row)
            moved += 1
    return moved


async def _retire(step: Step) -> int:
    """Takes jobs out of their lines that are past their time to live."""
    moved = 0
    for row in await _past_rows(step, Space.TTL):
        if not row.late and row.expires_at is not None and row.expires_at <= step.now:
            retire(step, row)
            moved += 1
    return moved


def retire(step: Step, row: Row) -> None:
    """Takes a job out of its line that is past its time to live: upkeep will fail it."""
    row.late, row.gate, row.granted, row.aside = True, 0, False, False
    step.save(row)


async def fail_unreadable(step: Step, row: Row, fault: str) -> None:
    """Fails a job that nobody could run, before it costs an attempt."""
    row.state, row.reason, row.error = State.FAILED, Reason.DECODE, plain(clip(fault))
    row.updated_at = step.now
    await finish(step, row)
    step.note(EventKind.FAILED, row, note=why(row))
