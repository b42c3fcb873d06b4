"""Ack: applies a transition to a held job."""

from __future__ import annotations

from holdfast.core.errors import JobNotFound, JournalFull
from holdfast.core.job import TERMINAL
from holdfast.core.lifecycle import Transition, apply, refusal, why
from holdfast.store import Acked
from holdfast.stores.memory.joins import finish
from holdfast.stores.memory.journal import write
from holdfast.stores.memory.layout import Tables


def ack(tables: Tables, change: Transition) -> Acked:
    now = tables.now
    row = tables.rows.get((change.tenant, change.id))
    refused = None if row is None else refusal(row, change.token, now, change.lapsed)
    if row is None or refused is not None:
        return Acked(change.id, error=(refused or JobNotFound)(id=change.id))
    if change.entries and (full := write(tables, row, change.entries, now)) is not None:
        return Acked(change.id, error=JournalFull(id=change.id, why=full))
    come = change.awaits is not None and row.journal is not None and row.journal.has(change.awaits)
    settled = apply(row, change, now, come)
    row.updated_at = now
    if row.state in TERMINAL:
        finish(tables, row)
    else:
        tables.place(row)
    until = settled.run_at if settled.run_at is not None and settled.run_at > now else None
    tables.note(settled.kind, row, until, change.awaits or why(row))
    return Acked(change.id, row.state)
