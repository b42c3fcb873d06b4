"""What the end of a run adds to its job's journal: what was not stored yet, and its error."""

from __future__ import annotations

import time
import traceback

from holdfast.attempts import AttemptError, error_entry
from holdfast.core.clock import micros
from holdfast.core.job import Failed, Outcome
from holdfast.core.journal import Entry
from holdfast.worker.lease import ActiveJob


def closing_entries(active: ActiveJob, outcome: Outcome) -> tuple[Entry, ...]:
    """The entries for the ack. None for a job that ran without its journal and did not fail."""
    entries = active.entries
    if active.journal is not None:
        entries = (*entries, *active.journal.unsent())
    if active.remembers and isinstance(outcome, Failed):
        entries = (*entries, _error_of(active, outcome))
    return entries


def _error_of(active: ActiveJob, outcome: Failed) -> Entry:
    job, error = active.lease.job, active.error
    kind = type(error)
    told = "" if error is None else "".join(traceback.format_exception(error)).strip()
    return error_entry(
        AttemptError(
            attempt=job.attempt,
            kind="" if error is None else f"{kind.__module__}.{kind.__qualname__}",
            message=str(error) if error is not None and str(error) else outcome.error,
            traceback=told,
            worker=job.worker or "",
            started_at=micros(active.started_s) + active.ahead_us,
            ended_at=micros(time.monotonic()) + active.ahead_us,
        )
    )
