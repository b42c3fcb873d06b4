"""Cancel: ends a job whatever it is doing, unless it has ended (P5)."""

from __future__ import annotations

from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL, EventKind, State
from holdfast.store import Canceled, Ref
from holdfast.stores.memory.joins import finish
from holdfast.stores.memory.layout import Tables


def cancel(tables: Tables, ref: Ref) -> Canceled:
    row = tables.rows.get((ref.tenant, ref.id))
    if row is None:
        return Canceled(ref.id, False, JobNotFound(id=ref.id))
    if row.state not in TERMINAL:
        row.state = State.CANCELED
        row.token = row.reason = None  # A reason is for the dead letters only.
        row.updated_at = tables.now
        finish(tables, row)
        tables.note(EventKind.CANCELED, row)
    return Canceled(ref.id, row.state is State.CANCELED)
