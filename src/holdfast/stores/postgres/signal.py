"""Signal: stores a value for a job, and makes it ready if it awaits that."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import (
    HoldfastError,
    JobAlreadyTerminal,
    JobCanceled,
    JobNotFound,
    JournalFull,
)
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
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.joins import make_ready
from holdfast.stores.postgres.journal import Journals
from holdfast.stores.postgres.rows import Row, asked
from holdfast.stores.postgres.step import Step


async def send_signals(step: Step, signals: Sequence[Signal]) -> list[Signaled]:
    await step.begin()
    # A park of such a job comes before this, and is seen, or after it, and sees the signal.
    rows = await step.lock_jobs((signal.tenant, signal.id) for signal in signals)
    journals = Journals(step)
    room = _Room(step, journals)
    await room.read({signal.tenant for signal in signals})
    found = ((rows.get((each.tenant, each.id)), each) for each in signals)
    await journals.read(
        (row, (_entry(each),), None) for row, each in found if row is not None and row.lived
    )
    changed: dict[int, Row] = {}
    sent = [_send(step, rows, room, changed, signal) for signal in signals]
    await journals.flush()
    if changed:
        await step.write(list(changed.values()))
    await step.flush()
    return sent


class _Room:
    """Writes signals as far as the caps of their tenants leave room. It takes no lock: calls at the
    same time may together bring more, by what each of them brings.
    """

    def __init__(self, step: Step, journals: Journals) -> None:
        self._step = step
        self.journals = journals
        self._caps: dict[str, tuple[int, int]] = {}
        """Tenant -> the bytes it holds, and its cap."""

    async def read(self, tenants: set[str]) -> None:
        """Reads the caps of these tenants."""
        step = self._step
        for tenant, _, max_bytes in await step.rows(sql.CAPPED, [asked(each) for each in tenants]):
            if max_bytes is not None:
                tally = await step.row(sql.TALLY, "tenant", tenant, "")
                assert tally is not None, "sums have a row"
                self._caps[tenant] = tally[2], max_bytes

    def write(self, row: Row, signal: Signal) -> HoldfastError | None:
        """Writes the signal, or says why there is no room for it."""
        held, max_bytes = self._caps.get(signal.tenant, (0, None))
        if (over := no_room(signal.tenant, held, max_bytes, signal)) is not None:
            return over
        if (full := self.journals.write(row, [_entry(signal)])) is not None:
            return JournalFull(id=signal.id, why=full)
        if max_bytes is not None:
            self._caps[signal.tenant] = held + len(signal.value), max_bytes
        return None


def _entry(signal: Signal) -> Entry:
    return Entry(EntryKind.SIGNAL, signal.name, signal.value)


def _send(
    step: Step,
    rows: dict[tuple[str, str], Row],
    room: _Room,
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
    if room.journals.has(row, awaited):
        return Signaled(signal.id, False)
    if (refusal := room.write(row, signal)) is not None:
        return Signaled(signal.id, False, refusal)
    step.record(EventKind.SIGNALED, row, text=signal.name)
    if row.awaits == ENDS_WITH_PARENTS:
        row.awaits = AWAITS_PARENTS  # It runs then, to do what the signal says.
        changed[row.seq] = row
    if make_ready(step, row, awaited):
        changed[row.seq] = row
    return Signaled(signal.id, True)
