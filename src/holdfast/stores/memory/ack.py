"""Ack: applies a transition to a held job."""

from __future__ import annotations

from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL
from holdfast.core.lifecycle import Transition, apply, refusal, why
from holdfast.store import Acked
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row


def ack(tables: Tables, change: Transition) -> Acked:
    now = tables.now
    row = tables.rows.get((change.tenant, change.id))
    refused = None if row is None else refusal(row, change.token, now, change.lapsed)
    if row is None or refused is not None:
        return Acked(change.id, error=(refused or JobNotFound)(id=change.id))
    settled = apply(row, change, now)
    row.updated_at = now
    if row.state in TERMINAL:
        finish(tables, row)
    else:
        tables.place(row)
    until = settled.run_at if settled.run_at is not None and settled.run_at > now else None
    tables.note(settled.kind, row, until, why(row))
    return Acked(change.id, row.state)


def finish(tables: Tables, row: Row) -> None:
    """Ends a job: its key is free, its record stays for its keeping, or goes at once."""
    now = row.finished_at = tables.now
    if row.keep_until <= now:
        tables.remove(row, now)
    else:
        tables.release_key(row, now)
        tables.place(row)
