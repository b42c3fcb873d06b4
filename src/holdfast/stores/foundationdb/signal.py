"""Signal: stores values for jobs, and makes those ready that await them."""

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
from holdfast.stores.foundationdb import limits_caps, limits_groups
from holdfast.stores.foundationdb.enqueue import ROW_BYTES
from holdfast.stores.foundationdb.joins import make_ready
from holdfast.stores.foundationdb.journal import awaited_key, has, write
from holdfast.stores.foundationdb.step import Step


def signal_bytes(signal: Signal) -> int:
    """What a signal writes, about."""
    return ROW_BYTES + len(signal.value)


def ask_signals(step: Step, signals: Sequence[Signal]) -> None:
    """Requests what `send_signals` reads."""
    step.settings.ask(each.tenant for each in signals)
    step.ask_rows((each.tenant, each.id) for each in signals)
    step.ask(awaited_key(step, (each.tenant, each.id), await_signal(each.name)) for each in signals)


async def send_signals(step: Step, signals: Sequence[Signal]) -> list[Signaled]:
    await step.settings.load(each.tenant for each in signals)
    await step.rows([(each.tenant, each.id) for each in signals])
    sent = [await _send(step, each) for each in signals]
    await limits_groups.reopen_freed(step)
    return sent


async def _send(step: Step, signal: Signal) -> Signaled:
    row = await step.row(signal.tenant, signal.id)
    if row is None:
        return Signaled(signal.id, False, JobNotFound(id=signal.id))
    if row.state in TERMINAL:
        refused = JobCanceled if row.state is State.CANCELED else JobAlreadyTerminal
        return Signaled(signal.id, False, refused(id=signal.id))
    awaited = await_signal(signal.name)
    if await has(step, row, awaited):
        return Signaled(signal.id, False)
    if (no_room := await limits_caps.no_room_for(step, signal)) is not None:
        return Signaled(signal.id, False, no_room)
    entry = Entry(EntryKind.SIGNAL, signal.name, signal.value)
    if (full := await write(step, row, [entry])) is not None:
        return Signaled(signal.id, False, JournalFull(id=signal.id, why=full))
    step.note(EventKind.SIGNALED, row, note=signal.name)
    if row.awaits == ENDS_WITH_PARENTS:
        row.awaits = AWAITS_PARENTS
    if not make_ready(step, row, awaited):
        step.save(row)
    return Signaled(signal.id, True)
