"""Cancel: ends jobs that have not ended; nothing changes them after that."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL, EventKind, State
from holdfast.store import Canceled, Ref
from holdfast.stores.sqlite.jobs import Jobs
from holdfast.stores.sqlite.joins import release
from holdfast.stores.sqlite.transaction import Transaction


def cancel_jobs(
    transaction: Transaction, refs: Sequence[Ref], signed: str | None
) -> list[Canceled]:
    """`signed` says who canceled and why, for the events."""
    transaction.signed = signed
    transaction.ended_jobs += refs
    jobs = Jobs(transaction)
    canceled = [_cancel(jobs, ref) for ref in refs]
    jobs.flush()
    release(transaction)
    return canceled


def _cancel(jobs: Jobs, ref: Ref) -> Canceled:
    row = jobs.get(ref.tenant, ref.id)
    if row is None:
        return Canceled(ref.id, False, JobNotFound(id=ref.id))
    if row.state not in TERMINAL:
        row.state = State.CANCELED
        row.token = row.reason = None  # Only failed jobs have a reason.
        jobs.finish(row)
        jobs.record(EventKind.CANCELED, row)
    return Canceled(ref.id, row.state is State.CANCELED)
