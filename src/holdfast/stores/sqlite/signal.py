"""Signal: stores a value for a job, and makes it ready if it awaits that."""

from __future__ import annotations

from collections.abc import Sequence

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
)
from holdfast.stores.sqlite.jobs import Jobs
from holdfast.stores.sqlite.joins_follow import make_ready
from holdfast.stores.sqlite.journal import has, write
from holdfast.stores.sqlite.limits_caps import Caps
from holdfast.stores.sqlite.rows import AWAITING
from holdfast.stores.sqlite.transaction import Transaction


def send_signals(
    transaction: Transaction, signals: Sequence[Signal], signed: str | None
) -> list[Signaled]:
    """`signed` says who sent them, for the events."""
    transaction.signed = signed
    jobs, caps = Jobs(transaction), Caps(transaction, 0)
    sent = [_send(transaction, jobs, caps, signal) for signal in signals]
    jobs.flush()
    return sent


def _send(transaction: Transaction, jobs: Jobs, caps: Caps, signal: Signal) -> Signaled:
    row = jobs.get(signal.tenant, signal.id)
    if row is None:
        return Signaled(signal.id, False, JobNotFound(id=signal.id))
    if row.state in TERMINAL:
        over = JobCanceled if row.state is State.CANCELED else JobAlreadyTerminal
        return Signaled(signal.id, False, over(id=signal.id))
    awaited = await_signal(signal.name)
    if has(transaction.connection, row, awaited):
        return Signaled(signal.id, False)
    if (refused := caps.no_room_for(signal)) is not None:
        return Signaled(signal.id, False, refused)
    entry = Entry(EntryKind.SIGNAL, signal.name, signal.value)
    if (full := write(transaction, row, [entry])) is not None:
        return Signaled(signal.id, False, JournalFull(id=signal.id, why=full))
    jobs.record(EventKind.SIGNALED, row, text=signal.name)
    caps.add_size(signal.tenant, len(signal.value), 0)
    if row.awaits == ENDS_WITH_PARENTS:
        row.awaits = AWAITS_PARENTS
        jobs.save(row)
    elif row.awaits == awaited and row.state in AWAITING:
        make_ready(transaction, [row])
    return Signaled(signal.id, True)
