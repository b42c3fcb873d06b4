"""Ack: applies each transition whose lease still holds, by the rules of `core/lifecycle.py`."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound, JournalFull
from holdfast.core.job import TERMINAL
from holdfast.core.lifecycle import Transition, apply, refusal, why
from holdfast.store import Acked, Ref
from holdfast.stores.sqlite.jobs import Jobs
from holdfast.stores.sqlite.joins import release
from holdfast.stores.sqlite.journal import has, write
from holdfast.stores.sqlite.transaction import Transaction


def ack_jobs(transaction: Transaction, transitions: Sequence[Transition]) -> list[Acked]:
    """Each transition sees the changes of those before it in the same call."""
    jobs = Jobs(transaction, [change.token for change in transitions])
    acked = [_ack(transaction, jobs, change) for change in transitions]
    jobs.flush()
    release(transaction)
    return acked


def _ack(transaction: Transaction, jobs: Jobs, change: Transition) -> Acked:
    now = transaction.now
    row = jobs.get(change.tenant, change.id)
    if row is None:
        return Acked(change.id, error=JobNotFound(id=change.id))
    refused = refusal(row, change.token, now, change.lapsed)
    if refused is not None:
        return Acked(change.id, error=refused(id=change.id))
    if change.entries and (full := write(transaction, row, change.entries)) is not None:
        return Acked(change.id, error=JournalFull(id=change.id, why=full))
    come = change.awaits is not None and has(transaction.connection, row, change.awaits)
    settled = apply(row, change, now, come)
    if row.state in TERMINAL:
        jobs.finish(row)
        transaction.ended_jobs.append(Ref(change.tenant, change.id))
    else:
        jobs.save(row)
        transaction.ready_lines.add((row.tenant, row.queue))
    until = settled.run_at if settled.run_at is not None and settled.run_at > now else None
    jobs.record(settled.kind, row, until, change.awaits or why(row))
    return Acked(change.id, row.state)
