"""Extend: renews leases that are still held."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound, JournalFull
from holdfast.core.job import EventKind
from holdfast.core.lifecycle import refusal
from holdfast.store import Extended, Extension
from holdfast.stores.foundationdb.journal import ask_entries, write
from holdfast.stores.foundationdb.rows import plain
from holdfast.stores.foundationdb.step import Step


def ask_leases(step: Step, extensions: Sequence[Extension]) -> None:
    """Requests what `extend_leases` reads."""
    for each in extensions:
        step.ask([step.keys.row(each.tenant, each.id)])
        ask_entries(step, (each.tenant, each.id), each.entries)


async def extend_leases(step: Step, extensions: Sequence[Extension]) -> list[Extended]:
    await step.rows([(each.tenant, each.id) for each in extensions])
    return [await _extend(step, each) for each in extensions]


async def _extend(step: Step, extension: Extension) -> Extended:
    row = await step.row(extension.tenant, extension.id)
    if row is None:
        return Extended(extension.id, error=JobNotFound(id=extension.id))
    refused = refusal(row, extension.token, row.judged(step.at))
    if refused is not None:
        return Extended(extension.id, error=refused(id=extension.id))
    if extension.entries and (full := await write(step, row, extension.entries)) is not None:
        return Extended(extension.id, error=JournalFull(id=extension.id, why=full))
    assert row.lease_until is not None
    row.lease_until = max(row.lease_until, step.now + extension.lease_us)
    deadline = step.at.deadline(extension.lease_us)
    if deadline > row.held_at or step.at.ahead(row.held_at, row.lease_us):
        row.held_at, row.lease_us = deadline, extension.lease_us
    row.updated_at = step.now
    if extension.progress is not None:
        row.progress = plain(extension.progress)
    step.save(row)
    step.note(EventKind.EXTENDED, row, row.lease_until)
    return Extended(extension.id, row.lease_until)
