"""Change: replays, deletes, reprioritises or reschedules the jobs of a selection."""

from __future__ import annotations

import msgspec

from holdfast.core.job import TERMINAL, EventKind, State, replay_id
from holdfast.core.journal import Entry, before_step
from holdfast.core.lifecycle import due_state
from holdfast.store import Act, Change, Changed, Ref
from holdfast.stores.memory.enqueue import enqueue
from holdfast.stores.memory.find import selects
from holdfast.stores.memory.joins import ended
from holdfast.stores.memory.journal import write
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row


def change_jobs(tables: Tables, change: Change) -> Changed:
    done: dict[Ref, str] = {}
    cursor: int | None = change.after
    for row in tables.pages(change.after, newest_first=False):
        if len(done) >= change.limit:
            return Changed(done, cursor)
        cursor = row.seq
        if selects(change.select, row, tables.now):
            outcome = _change(tables, change, row)
            if outcome is not None:
                done[Ref(row.new.tenant, row.new.id)] = outcome
    return Changed(done, None)


def _change(tables: Tables, change: Change, row: Row) -> str | None:
    """The id of the changed or new job, or None when this job cannot be changed so."""
    now = tables.now
    if change.act is Act.REPLAY:
        return _replay(tables, row, change.from_step)
    if row.state is State.PROCESSING:
        return None
    if change.act is Act.DELETE:
        if row.state not in TERMINAL:
            ended(tables, row)
        tables.remove(row, now)
        tables.note(EventKind.DELETED, row)
        return row.new.id
    if row.state in TERMINAL:
        return None
    if change.act is Act.REPRIORITISE:
        row.priority = change.priority
    else:
        row.run_at = change.run_at if change.run_at is not None else now + change.delay_us
        if row.state is not State.WAITING:
            row.state = due_state(row.run_at, now)
    row.updated_at = now
    tables.place(row)
    tables.note(EventKind.CHANGED, row, row.run_at, change.act.value)
    return row.new.id


def _replay(tables: Tables, row: Row, from_step: str | None) -> str | None:
    if row.state not in TERMINAL or row.replayed_as is not None:
        return None
    known: list[Entry] | None = []
    if from_step is not None:
        known = before_step(() if row.journal is None else row.journal.all(), from_step)
    if known is None:
        return None
    new = msgspec.structs.replace(
        row.new,
        id=replay_id(row.new.tenant, row.new.id),
        origin=row.new.id,
        priority=row.priority,
        delay_us=0,
        run_at=None,
        key=None,
        edges=(),
        parents=0,
        ends_with_parents=False,
    )
    answer = enqueue(tables, new)
    if answer.error is not None:
        return None  # Its tenant is full.
    for entry in known if answer.created else ():
        write(tables, tables.rows[new.tenant, new.id], [entry], entry.at)
    row.replayed_as = new.id
    tables.note(EventKind.REPLAYED, row, note=new.id)
    return new.id
