"""The context of a run, and the exceptions by which a handler chooses another outcome."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from holdfast.core.bounds import PROGRESS_CHARS_MAX
from holdfast.core.check import check_seconds
from holdfast.core.errors import (
    HoldfastError,
    InvalidInput,
    JobCanceled,
    LeaseExpired,
    Timeout,
    WorkerShutdown,
)
from holdfast.core.job import JobRecord, effect_key, fence_of
from holdfast.core.tick import tick_of

logger = logging.getLogger("holdfast.job")


class Retry(Exception):
    """Raise it to retry the job, optionally with another delay than the retry policy's."""

    def __init__(self, why: str = "", *, after: float | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else check_seconds("after", after)


class Fail(Exception):
    """Raise it to fail the job permanently: it becomes a dead letter without a retry."""


class Snooze(Exception):
    """Raise it to run the job again later. It costs no attempt."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = check_seconds("seconds", seconds)


class StopReason(StrEnum):
    """Why a run must stop before its handler has finished."""

    CANCELED = "canceled"
    """The job was canceled. It will not run again."""
    LEASE_LOST = "lease_lost"
    """The worker did not renew the lease in time. Another worker may be running the job."""
    SHUTDOWN = "shutdown"
    """The worker is stopping. The job is released with its attempt and runs again."""
    TIMEOUT = "timeout"
    """The run exceeded the time-out of the job. It counts as a failed attempt."""


_ERRORS: dict[StopReason, type[HoldfastError]] = {
    StopReason.CANCELED: JobCanceled,
    StopReason.LEASE_LOST: LeaseExpired,
    StopReason.SHUTDOWN: WorkerShutdown,
    StopReason.TIMEOUT: Timeout,
}


class Client(Protocol):
    """The calls that a handler can make for its own tenant; see `holdfast.Tenant`."""

    @property
    def enqueue(self) -> Callable[..., Awaitable[Any]]: ...


class Context:
    """One run of one job. Safe to use from the handler's thread."""

    def __init__(self, job: JobRecord, client_of: Callable[[str], Client] | None = None) -> None:
        self.job = job
        self.tenant = job.tenant
        self.job_id = job.id
        self.attempt = job.attempt
        self.max_attempts = job.max_attempts
        self.fence = fence_of(job)
        """A number that grows with each lease of the id, to refuse writes of an older run."""
        self._client_of = client_of
        self.latest_progress: str | None = None
        self._stopping: StopReason | None = (
            None  # Only the worker's loop writes it, so it needs no lock.
        )

    @property
    def effect_key(self) -> str:
        """A text that is the same for every attempt of this job and differs for any later job with
        the same id. Send it as the idempotency key of an effect.
        """
        return effect_key(self.job)

    @property
    def tick(self) -> datetime | None:
        """The instant of the schedule that this job stands for, in UTC; None if no tick made it."""
        return tick_of(self.job.tags)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the tenant and the job id to its lines."""
        return _JobLogger(logger, log_fields(self.job))

    @property
    def stopping(self) -> StopReason | None:
        """Why this run must stop, or None while it may continue."""
        return self._stopping

    @property
    def canceled(self) -> bool:
        """Whether the job was canceled: the only reason to undo what was done so far."""
        return self._stopping is StopReason.CANCELED

    def check(self) -> None:
        """Raises JobCanceled, LeaseExpired, WorkerShutdown or Timeout if the run must stop.

        Call it in the loops of handlers in threads, which cannot be interrupted.
        """
        if self._stopping is not None:
            raise _ERRORS[self._stopping](id=self.job_id)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Reports the progress of the job.

        The latest progress is sent to the store at most once a second. The call is cheap.
        """
        text = msgspec.json.encode({"done": done, "total": total, "note": note}).decode()
        if len(text) > PROGRESS_CHARS_MAX:
            raise InvalidInput(
                field="note", why=f"progress is longer than {PROGRESS_CHARS_MAX} characters"
            )
        self.latest_progress = text

    async def enqueue(self, job: Any, **options: Any) -> Any:
        """Enqueues a follow-up job of the same tenant."""
        if self._client_of is None:
            raise InvalidInput(field="ctx", why="this run has no store to enqueue to")
        return await self._client_of(self.tenant).enqueue(job, **options)

    def stop(self, reason: StopReason) -> None:
        """Tells the handler to stop. The worker calls it; the first reason is kept."""
        if self._stopping is None:
            self._stopping = reason


def log_fields(job: JobRecord) -> dict[str, object]:
    """The fields about a job that a log line carries in `extra`."""
    return {
        "tenant": job.tenant,
        "job_id": job.id,
        "type": job.type,
        "queue": job.queue,
        "attempt": job.attempt,
        "worker": job.worker,
    }


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        facts = self.extra or {}
        kwargs.setdefault("extra", facts)
        return f"[{facts['tenant']}/{facts['job_id']}] {msg}", kwargs
