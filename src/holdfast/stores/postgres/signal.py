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
from holdfast.stores.postgres.joins import make_ready
from holdfast.stores.postgres.journal import Journals
from holdfast.stores.postgres.rows import Row
from holdfast.stores.postgres.step import Step


async def send_signals(step: Step, signals: Sequence[Signal]) -> list[Signaled]:
    await step.begin()
    # A park of such a job comes before this, and is seen, or after it, and sees the signal.
    rows = await step.lock_jobs((signal.tenant, signal.id) for signal in signals)
    journals = Journals(step)
    found = ((rows.get((each.tenant, each.id)), each) for each in signals)
    await journals.read(
        (row, (_entry(each),), None) for row, each in found if row is not None and row.lived
    )
    changed: dict[int, Row] = {}
    sent = [_send(step, rows, journals, changed, signal) for signal in signals]
    await journals.flush()
    if changed:
        await step.write(list(changed.values()))
    await step.flush()
    return sent


def _entry(signal: Signal) -> Entry:
    return Entry(EntryKind.SIGNAL, signal.name, signal.value)


def _send(
    step: Step,
    rows: dict[tuple[str, str], Row],
    journals: Journals,
    changed: dict[int, Row],
    signal: Signal,
) -> Signaled:
    row = rows.get((signal.tenant, signal.id))
    if row is None:
        return Signaled(signal.id, False, JobNotFound(id=signal.id))
    if row.state in TERMINAL:
        refused = JobCanceled if row.state is State.CANCELED else JobAlreadyTerminal
        return Signaled(signal.id, False, refused(id=signal.id))
    awaited = await_signal(signal.name)
    if journals.has(row, awaited):
        return Signaled(signal.id, False)
    if (full := journals.write(row, [_entry(signal)])) is not None:
        return Signaled(signal.id, False, JournalFull(id=signal.id, why=full))
    step.record(EventKind.SIGNALED, row, text=signal.name)
    if row.awaits == ENDS_WITH_PARENTS:
        row.awaits = AWAITS_PARENTS  # It runs then, to do what the signal says.
        changed[row.seq] = row
    if make_ready(step, row, awaited):
        changed[row.seq] = row
    return Signaled(signal.id, True)
