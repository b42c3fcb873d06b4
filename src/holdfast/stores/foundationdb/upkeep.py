"""What upkeep reads and clears away."""

from __future__ import annotations

from holdfast.clock import SECOND, Micros
from holdfast.job import State
from holdfast.store import Lapsed, Pruned
from holdfast.stores.foundationdb import gates, log, names, places
from holdfast.stores.foundationdb.journey import held_key, release_key
from holdfast.stores.foundationdb.layout import Space, number, text, texts, whole
from holdfast.stores.foundationdb.rows import Row, lease_of, pack
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import Step

PRUNE_STEP = 500
"""Jobs that one transaction deletes."""
MARKS_KEPT = 600 * SECOND
"""Versions after which nobody tries a call again."""


async def expired(step: Step, limit: int) -> list[Lapsed]:
    found: list[tuple[Micros, Row, str | None]] = []
    for space in (Space.SPENT, Space.HELD):
        for row in await _rows(step, space, step.at.horizon, limit):
            if row.state is State.PROCESSING and row.lapsed(step.at):
                assert row.lease_until is not None
                found.append((step.now - row.lease_until, row, row.token))
    for space in (Space.LATE, Space.TTL):
        for row in await _rows(step, space, step.now, limit):
            if row.expires_at is not None:
                found.append((step.now - row.expires_at, row, None))
    found.sort(key=lambda one: -one[0])
    return [
        Lapsed(row.record(step.now, await step.body(row)), token, max(0, overdue))
        for overdue, row, token in found[:limit]
    ]


async def _rows(step: Step, space: Space, horizon: int, limit: int) -> list[Row]:
    begin = step.keys.all(space)
    pairs = await step.range(begin, begin + whole(horizon + 1), limit, snapshot=True)
    if space in (Space.SPENT, Space.HELD):
        pairs = [pair for pair in pairs if _is_over(step, space, *pair)]
    names = [step.keys.name_of(space, key) for key, _ in pairs]
    return [row for row in await step.peek(names) if row is not None]


def _is_over(step: Step, space: Space, key: bytes, value: bytes) -> bool:
    until, length = lease_of(value)
    return step.at.lapsed(until, step.keys.instant_of(space, key), length)


async def prune(step: Step, known: Known, limit: int, events_keep_us: Micros) -> Pruned:
    """One transaction's part of it."""
    most = min(limit, PRUNE_STEP)
    jobs = await _prune_jobs(step, known, most)
    keys = await _prune_keys(step, most)
    events = await log.prune(step, most, step.now - events_keep_us)
    await names.prune(step, most)
    await gates.reopen(step, known, most)  # As a claim does, where nobody claims.
    _prune_marks(step)
    await gates.open_up(step)
    return Pruned(jobs, events, more=most in (jobs, keys) or events >= most)


async def _prune_jobs(step: Step, known: Known, limit: int) -> int:
    begin = step.keys.all(Space.DONE)
    pairs = await step.range(begin, begin + whole(step.now + 1), limit, snapshot=True)
    named = [step.keys.name_of(Space.DONE, key) for key, _ in pairs]
    await places.learn(step, known, (tenant for tenant, _ in named))
    count = 0
    for row in await step.rows(named):
        if row is not None and not row.alive and row.keep_until() <= step.now:
            step.remove(row)
            await release_key(step, row)
            count += 1
    return count


async def _prune_keys(step: Step, limit: int) -> int:
    begin = step.keys.all(Space.KEY_ENDS)
    pairs = await step.range(begin, begin + whole(step.now + 1), limit, snapshot=True)
    for entry, _ in pairs:
        step.drop(entry)
        until = number(entry[len(begin) :])
        tenant, queue, type, key = texts(entry[len(begin) + 8 :], 4)
        name = step.keys.own(tenant, Space.NAMES, text(queue), text(type), text(key))
        found = await step.get(name)
        if found is None or held_key(found)[1] != until:
            continue
        id, _ = held_key(found)
        row = await step.row(tenant, id)
        same = row is not None and (row.queue, row.type, row.key) == (queue, type, key)
        if row is not None and same and row.alive:
            step.put(name, pack((id, None)))  # Untimed from now on: it holds while the job lives.
        else:
            step.drop(name)
    return len(pairs)


def _prune_marks(step: Step) -> None:
    begin = step.keys.all(Space.MARKS)
    step.clear_range(begin, begin + whole(max(0, step.at.version - MARKS_KEPT)))
