"""What people want done to jobs: cancel, and change by selection."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from holdfast.errors import JobNotFound
from holdfast.job import TERMINAL, EventKind, State, replay_id
from holdfast.store import Act, Canceled, Change, Changed, Ref
from holdfast.stores.foundationdb import gates, places, shares
from holdfast.stores.foundationdb.journey import enter, finish, full, meet, remove, stand
from holdfast.stores.foundationdb.layout import STEP_BYTES_MAX
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.sight import Selecting
from holdfast.stores.foundationdb.step import Step


async def cancel(step: Step, known: Known, refs: Sequence[Ref]) -> list[Canceled]:
    await meet(step, known, refs)
    canceled = [await _cancel(step, ref) for ref in refs]
    await gates.open_up(step)
    return canceled


async def _cancel(step: Step, ref: Ref) -> Canceled:
    row = await step.row(ref.tenant, ref.id)
    if row is None:
        return Canceled(ref.id, False, JobNotFound(id=ref.id))
    if row.state not in TERMINAL:
        row.state = State.CANCELED
        row.token = row.reason = None  # A reason is for the dead letters only.
        row.updated_at = step.now
        await finish(step, row)
        step.note(EventKind.CANCELED, row)
    return Canceled(ref.id, row.state is State.CANCELED)


async def change(step: Step, known: Known, change: Change, most: int) -> Changed:
    """One step; it looks at so many jobs at most, and may stop before its limit."""
    selecting = Selecting(change.select, change.after, newest_first=False)
    done: dict[Ref, str] = {}
    cursor: int | None = change.after
    looked = 0
    async with aclosing(selecting.rows(step)) as rows:
        async for peek in rows:
            if peek.name in step.born:
                continue
            if len(done) >= change.limit or looked >= most or step.bytes >= STEP_BYTES_MAX:
                break
            looked += 1
            cursor = peek.seq
            if not selecting.takes(peek, step.now):
                continue
            await places.learn(step, known, [peek.tenant])
            row = await step.row(*peek.name)
            outcome = None if row is None else await _change(step, change, row)
            if outcome is not None:
                done[Ref(*peek.name)] = outcome
        else:
            cursor = None
    await gates.open_up(step)
    return Changed(done, cursor)


async def _change(step: Step, change: Change, row: Row) -> str | None:
    """The id that came of it, or None when this job cannot be changed so."""
    if change.act is Act.REPLAY:
        return await _replay(step, row)
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
        row.state = State.SCHEDULED if row.run_at > step.now else State.ENQUEUED
    row.updated_at = step.now
    await stand(step, row)
    step.note(EventKind.CHANGED, row, row.run_at, change.act.value)
    return row.id


async def _replay(step: Step, row: Row) -> str | None:
    if row.state not in TERMINAL or row.replayed_as is not None:
        return None
    id = replay_id(row.tenant, row.id)
    if await step.row(row.tenant, id) is None:
        over = await shares.over(step, row.tenant, row.queue, row.group)
        if over is not None or await full(step, row.tenant, row.size) is not None:
            return None  # Its tenant is full.
        await step.number(1)
        await enter(step, _again(row, id, step.now), await step.body(row), None)
    row.replayed_as = id
    step.save(row)
    step.note(EventKind.REPLAYED, row, note=id)
    return id


def _again(row: Row, id: str, now: int) -> Row:
    """A new job like one that has ended."""
    lasting = (row.queue, row.type, row.codec, row.version, row.body, row.rules, row.priority)
    expires_at = None if row.expires_at is None else now + row.expires_at - row.created_at
    return Row(
        row.tenant,
        id,
        *lasting,
        None,
        row.group,
        row.tags,
        row.id,
        State.ENQUEUED,
        now,
        now,
        now,
        expires_at,
        row.size,
        row.max_attempts,
    )
