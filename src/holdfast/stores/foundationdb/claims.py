"""What a claim does first: repair. And what a sleeper waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.clock import SECOND, Micros, seconds
from holdfast.job import EventKind, Reason, State
from holdfast.lifecycle import clip, why
from holdfast.limits import REPAIR_MAX, WAIT_S_MAX
from holdfast.store import Watch
from holdfast.stores.foundationdb import gates, places
from holdfast.stores.foundationdb.journey import finish, stand
from holdfast.stores.foundationdb.layout import (
    Space,
    whole,
)
from holdfast.stores.foundationdb.lines import open_lines
from holdfast.stores.foundationdb.rows import Row, lease_of, plain
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.turns import Turns

REPAIRED = (Space.DUE, Space.HELD, Space.REOPEN, Space.TTL)
"""The indexes by instants that a claim looks at first."""

# -- repair ----------------------------------------------------------------------------------------


async def due(step: Step) -> bool:
    """True when there are due jobs to make ready."""
    return bool(await _past(step, Space.DUE, step.now, 1))


class Overdue(Exception):
    """There is something to repair before a claim looks."""


def ask_overdue(step: Step) -> None:
    """Asks for what `overdue` will need."""
    for space in REPAIRED:
        step.ask_under(step.keys.all(space), 1)


async def overdue(step: Step) -> bool:
    """True when there is something to repair."""
    ask_overdue(step)
    for space in REPAIRED:
        horizon = step.at.horizon if space is Space.HELD else step.now
        for key, _ in await step.under(step.keys.all(space), 1, snapshot=True):
            if step.keys.instant_of(space, key) <= horizon:
                return True
    return False


async def repair(step: Step, known: Known) -> int:
    """Makes due jobs and lapsed leases ready, and opens what time has opened: REPAIR_MAX of each.

    Returns how many it moved.
    """
    moved = await _promote(step, known)
    moved += await _rescue(step, known)
    moved += await gates.reopen(step, known, REPAIR_MAX)
    # Last, for the jobs made ready just now may have outlived their time too.
    moved += await _retire(step, known)
    await gates.open_up(step)
    return moved


async def _past(
    step: Step, space: Space, horizon: int, most: int = REPAIR_MAX
) -> list[tuple[bytes, bytes]]:
    begin = step.keys.all(space)
    return await step.range(begin, begin + whole(horizon + 1), most, snapshot=True)


async def _named(
    step: Step, known: Known, space: Space, pairs: list[tuple[bytes, bytes]]
) -> list[Row]:
    names = [step.keys.name_of(space, key) for key, _ in pairs]
    await places.learn(step, known, (tenant for tenant, _ in names))
    return [row for row in await step.rows(names) if row is not None]


async def promote(step: Step, known: Known) -> int:
    """Makes due jobs ready."""
    moved = await _promote(step, known)
    await gates.open_up(step)
    return moved


async def _promote(step: Step, known: Known) -> int:
    moved = 0
    for row in await _named(step, known, Space.DUE, await _past(step, Space.DUE, step.now)):
        if row.state in (State.SCHEDULED, State.RETRYING) and row.run_at <= step.now:
            row.state = State.ENQUEUED
            await stand(step, row)
            moved += 1
    return moved


async def _rescue(step: Step, known: Known) -> int:
    moved, space = 0, Space.HELD
    pairs = [
        (key, value)
        for key, value in await _past(step, space, step.at.horizon)
        if _is_over(step, space, key, value)
    ]
    for row in await _named(step, known, space, pairs):
        if row.state is State.PROCESSING and row.lapsed(step.at):
            row.state = State.ENQUEUED
            row.lapses += 1
            row.updated_at = step.now
            await stand(step, row)
            step.note(EventKind.RESCUED, row)
            moved += 1
    return moved


def _is_over(step: Step, space: Space, key: bytes, value: bytes) -> bool:
    until, length = lease_of(value)
    return step.at.lapsed(until, step.keys.instant_of(space, key), length)


async def _retire(step: Step, known: Known) -> int:
    moved = 0
    for row in await _named(step, known, Space.TTL, await _past(step, Space.TTL, step.now)):
        if not row.late and row.expires_at is not None and row.expires_at <= step.now:
            retire(step, row)
            moved += 1
    return moved


def retire(step: Step, row: Row) -> None:
    """Takes a job out of its line that is past its time to live: upkeep will fail it."""
    row.late, row.gate, row.granted = True, 0, False
    step.save(row)


async def fail_unreadable(step: Step, row: Row, fault: str) -> None:
    """Fails a job that nobody could run: by itself, before it costs anybody an attempt."""
    row.state, row.reason, row.error = State.FAILED, Reason.DECODE, plain(clip(fault))
    row.updated_at = step.now
    await finish(step, row)
    step.note(EventKind.FAILED, row, note=why(row))


# -- what a sleeper waits for ----------------------------------------------------------------------


async def soonest(step: Step, known: Known, watch: Watch) -> float:
    """Seconds until something known will be worth a look; 0 when it already is."""
    if watch.news:
        return WAIT_S_MAX
    if watch.job is not None:
        row = await step.row(watch.job.tenant, watch.job.id)
        return WAIT_S_MAX if row is not None and row.alive else 0.0
    instants = []
    lines = await open_lines(step, Turns(), (watch.tenants, watch.queues))
    async for _, rooms, ready in places.survey(step, known, lines):
        if all(room.left() > 0 for room in rooms):
            if ready:
                return 0.0
        else:
            opens = [room.opens_at() for room in rooms]
            instants += [at for at in opens if at is not None]
    instants += [at async for at in _heads(step)]
    return max(0.0, seconds(min(instants, default=step.now + 3600 * SECOND) - step.now))


async def _heads(step: Step) -> AsyncIterator[Micros]:
    """When the next job is due, when the next lease lapses that repair would make ready, and when
    time next opens a group.
    """
    for space in (Space.DUE, Space.REOPEN, Space.HELD):
        for key, value in await step.under(step.keys.all(space), 1, snapshot=True):
            at = step.keys.instant_of(space, key)
            if space is not Space.HELD:
                yield at
            elif at > step.at.horizon:
                # The index of leases may be by versions, which are as many as microseconds.
                yield step.now + at - step.at.horizon
            else:
                # One that only seems to be over is looked at again, but not without end.
                yield step.now + (0 if _is_over(step, space, key, value) else SECOND)
