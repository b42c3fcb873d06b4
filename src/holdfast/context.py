"""What a handler sees of the world, and what it may raise to say more than success or failure."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from holdfast.check import check_seconds
from holdfast.errors import (
    HoldfastError,
    InvalidInput,
    JobCanceled,
    LeaseExpired,
    Timeout,
    WorkerShutdown,
)
from holdfast.job import JobRecord, effect_key, fence_of
from holdfast.limits import PROGRESS_CHARS_MAX

logger = logging.getLogger("holdfast.job")


class Retry(Exception):
    """Raise it for a retry that is no accident, with its own delay if the policy's does not fit."""

    def __init__(self, why: str = "", *, after: float | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else check_seconds("after", after)


class Fail(Exception):
    """Raise it when trying again is no use: the job goes to the dead letters at once."""


class Snooze(Exception):
    """Raise it to be called again later; costs no attempt."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = check_seconds("seconds", seconds)


class StopReason(StrEnum):
    """Why a run has to stop before its handler is done."""

    CANCELED = "canceled"
    """Somebody canceled the job. It will not run again."""
    LEASE_LOST = "lease_lost"
    """The worker could not renew the lease in time: another run of the job may be under way."""
    SHUTDOWN = "shutdown"
    """The worker stops. The job goes back with its attempt, and runs again."""
    TIMEOUT = "timeout"
    """The run took longer than the job's time-out. It is a failed attempt."""


_ERRORS: dict[StopReason, type[HoldfastError]] = {
    StopReason.CANCELED: JobCanceled,
    StopReason.LEASE_LOST: LeaseExpired,
    StopReason.SHUTDOWN: WorkerShutdown,
    StopReason.TIMEOUT: Timeout,
}


class Client(Protocol):
    """What a handler may do with its own tenant; see `holdfast.Tenant`."""

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
        """Grows with each lease of the id: a store of yours can refuse writes of an older run."""
        self._client_of = client_of
        self.latest_progress: str | None = None
        self._stopping: StopReason | None = None  # Written by the worker's loop alone: no lock.

    @property
    def effect_key(self) -> str:
        """The same for every attempt of this job, and for no job that has the id later: send it
        along as the idempotency key of an effect.
        """
        return effect_key(self.job)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines name the job."""
        return _JobLogger(logger, log_fields(self.job))

    @property
    def stopping(self) -> StopReason | None:
        """Why this run has to stop, or None while it may go on."""
        return self._stopping

    @property
    def canceled(self) -> bool:
        """Somebody canceled the job: the one reason to undo what was done so far."""
        return self._stopping is StopReason.CANCELED

    def check(self) -> None:
        """Raises JobCanceled, LeaseExpired, WorkerShutdown or Timeout once the run has to stop.

        For loops in threads, which nobody can interrupt.
        """
        if self._stopping is not None:
            raise _ERRORS[self._stopping](id=self.job_id)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Shows how far the job is.

        Sent to the store at most once a second; cheap to call often.
        """
        text = msgspec.json.encode({"done": done, "total": total, "note": note}).decode()
        if len(text) > PROGRESS_CHARS_MAX:
            raise InvalidInput(
                field="note", why=f"progress is over {PROGRESS_CHARS_MAX} characters"
            )
        self.latest_progress = text

    async def enqueue(self, job: Any, **options: Any) -> Any:
        """Enqueues a follow-up job of the same tenant."""
        if self._client_of is None:
            raise InvalidInput(field="ctx", why="this run has no store to enqueue to")
        return await self._client_of(self.tenant).enqueue(job, **options)

    def stop(self, reason: StopReason) -> None:
        """Called by the worker: tells the handler to stop. The first reason stays."""
        if self._stopping is None:
            self._stopping = reason


def log_fields(job: JobRecord) -> dict[str, object]:
    """What a log line about a job carries in `extra`."""
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
