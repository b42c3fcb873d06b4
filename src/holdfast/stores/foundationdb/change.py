"""Change: replays, deletes, reprioritises or reschedules the jobs of a selection."""

from __future__ import annotations

from contextlib import aclosing

from holdfast.core.job import TERMINAL, EventKind, State, replay_id
from holdfast.core.journal import Entry, before_step
from holdfast.core.lifecycle import due_state
from holdfast.store import Act, Change, Changed, Ref
from holdfast.stores.foundationdb import limits_caps, limits_groups
from holdfast.stores.foundationdb.enqueue import insert
from holdfast.stores.foundationdb.find import Matches
from holdfast.stores.foundationdb.joins import release
from holdfast.stores.foundationdb.journal import read_entries, write
from holdfast.stores.foundationdb.layout import STEP_BYTES_MAX
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.step_ends import remove, requeue

ROWS_MAX = 5000
"""Rows that one transaction looks at."""


async def change_jobs(step: Step, change: Change) -> Changed:
    """One transaction's part: it may stop before its limit, and the cursor says where."""
    matches = Matches(change.select, change.after, newest_first=False)
    done: dict[Ref, str] = {}
    cursor: int | None = change.after
    looked = 0
    async with aclosing(matches.rows(step)) as rows:
        async for peek in rows:
            if peek.name in step.born:
                continue
            if len(done) >= change.limit or looked >= ROWS_MAX or step.bytes >= STEP_BYTES_MAX:
                break
            looked += 1
            cursor = peek.seq
            if not matches.takes(peek, step.now):
                continue
            await step.settings.load([peek.tenant])
            row = await step.row(*peek.name)
            outcome = None if row is None else await _change(step, change, row)
            if outcome is not None:
                done[Ref(*peek.name)] = outcome
        else:
            cursor = None
    await release(step)
    await limits_groups.reopen_freed(step)
    return Changed(done, cursor)


async def _change(step: Step, change: Change, row: Row) -> str | None:
    """The id of the changed or new job, or None when this job cannot be changed so."""
    if change.act is Act.REPLAY:
        return await _replay(step, row, change.from_step)
    if row.state is State.PROCESSING:
        return None
    if change.act is Act.DELETE:
        await remove(step, row)
        step.note(EventKind.DELETED, row)
        return row.id
    if row.state in TERMINAL:
        return None
    if change.act is Act.REPRIORITISE:
        row.priority = change.priority
    else:
        row.run_at = change.run_at if change.run_at is not None else step.now + change.delay_us
        if row.state is not State.WAITING:
            row.state = due_state(row.run_at, step.now)
    row.updated_at = step.now
    requeue(step, row)
    step.note(EventKind.CHANGED, row, row.run_at, change.act.value)
    return row.id


async def _replay(step: Step, row: Row, from_step: str | None) -> str | None:
    if row.state not in TERMINAL or row.replayed_as is not None:
        return None
    known: list[Entry] | None = []
    if from_step is not None:
        known = before_step(await read_entries(step, row), from_step)
    if known is None:
        return None
    id = replay_id(row.tenant, row.id)
    if await step.row(row.tenant, id) is None:
        new = row.replay(id, step.now)
        if await limits_caps.over(step, new) is not None:
            return None  # Its tenant is full.
        await step.find_seqs(1)
        await insert(step, new, await step.body(row), None)
        for entry in known:
            await write(step, new, [entry], entry.at)
        if known:
            step.save(new)
    row.replayed_as = id
    step.save(row)
    step.note(EventKind.REPLAYED, row, note=id)
    return id
