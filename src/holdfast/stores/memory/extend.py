"""Extend: renews a lease that is still held."""

from __future__ import annotations

from holdfast.core.errors import JobNotFound, JournalFull
from holdfast.core.job import EventKind
from holdfast.core.lifecycle import refusal
from holdfast.store import Extended, Extension
from holdfast.stores.memory.journal import write
from holdfast.stores.memory.layout import Tables


def extend(tables: Tables, extension: Extension) -> Extended:
    now = tables.now
    row = tables.rows.get((extension.tenant, extension.id))
    refused = JobNotFound if row is None else refusal(row, extension.token, now)
    if row is None or refused is not None:
        return Extended(extension.id, error=(refused or JobNotFound)(id=extension.id))
    if extension.entries and (full := write(tables, row, extension.entries, now)) is not None:
        return Extended(extension.id, error=JournalFull(id=extension.id, why=full))
    assert row.lease_until is not None
    row.lease_until = max(row.lease_until, now + extension.lease_us)
    row.updated_at = now
    if extension.progress is not None:
        row.progress = extension.progress
    tables.place(row)
    tables.note(EventKind.EXTENDED, row, row.lease_until)
    return Extended(extension.id, row.lease_until)
