"""Extend: renews the leases that still hold, and keeps the progress that a heartbeat brings."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound, JournalFull
from holdfast.core.job import EventKind
from holdfast.core.lifecycle import refusal
from holdfast.store import Extended, Extension
from holdfast.stores.sqlite.jobs import Jobs
from holdfast.stores.sqlite.journal import write
from holdfast.stores.sqlite.transaction import Transaction


def extend_leases(transaction: Transaction, extensions: Sequence[Extension]) -> list[Extended]:
    jobs = Jobs(transaction, [extension.token for extension in extensions])
    extended = [_extend(transaction, jobs, extension) for extension in extensions]
    jobs.flush()
    return extended


def _extend(transaction: Transaction, jobs: Jobs, extension: Extension) -> Extended:
    now = transaction.now
    row = jobs.get(extension.tenant, extension.id)
    if row is None:
        return Extended(extension.id, error=JobNotFound(id=extension.id))
    refused = refusal(row, extension.token, now)
    if refused is not None:
        return Extended(extension.id, error=refused(id=extension.id))
    if extension.entries and (full := write(transaction, row, extension.entries)) is not None:
        return Extended(extension.id, error=JournalFull(id=extension.id, why=full))
    assert row.lease_until is not None, "`refusal` lets through only leased jobs"
    row.lease_until = max(row.lease_until, now + extension.lease_us)
    if extension.progress is not None:
        row.progress = extension.progress
    jobs.save(row)
    jobs.record(EventKind.EXTENDED, row, row.lease_until)
    return Extended(extension.id, row.lease_until)
