"""Signal: stores a value for a job, and makes it ready if it awaits that."""

from __future__ import annotations

from holdfast.core.errors import JobAlreadyTerminal, JobCanceled, JobNotFound, JournalFull
from holdfast.core.job import TERMINAL, EventKind, State
from holdfast.core.journal import (
    AWAITS_PARENTS,
    ENDS_WITH_PARENTS,
    Entry,
    EntryKind,
    Signal,
    Signaled,
    await_signal,
    no_room,
)
from holdfast.core.scope import Scope
from holdfast.stores.memory.joins import ready
from holdfast.stores.memory.journal import write
from holdfast.stores.memory.layout import Tables


def send(tables: Tables, signal: Signal) -> Signaled:
    row = tables.rows.get((signal.tenant, signal.id))
    if row is None:
        return Signaled(signal.id, False, JobNotFound(id=signal.id))
    if row.state in TERMINAL:
        over = JobCanceled if row.state is State.CANCELED else JobAlreadyTerminal
        return Signaled(signal.id, False, over(id=signal.id))
    awaited = await_signal(signal.name)
    if row.journal is not None and row.journal.has(awaited):
        return Signaled(signal.id, False)
    max_bytes = tables.limits.of(Scope(signal.tenant)).max_bytes if tables.limits.any else None
    refused = no_room(signal.tenant, tables.bytes[signal.tenant], max_bytes, signal)
    if refused is not None:
        return Signaled(signal.id, False, refused)
    entry = Entry(EntryKind.SIGNAL, signal.name, signal.value)
    if (full := write(tables, row, [entry], tables.now)) is not None:
        return Signaled(signal.id, False, JournalFull(id=signal.id, why=full))
    tables.note(EventKind.SIGNALED, row, note=signal.name)
    if row.awaits == ENDS_WITH_PARENTS:
        row.awaits = AWAITS_PARENTS
    ready(tables, row, awaited)
    return Signaled(signal.id, True)
