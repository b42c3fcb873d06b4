"""Log lines of a worker about jobs, with fields in `extra`. Never a payload, never a token."""

from __future__ import annotations

import logging
import traceback

from holdfast.context import Fail, Retry, StopReason
from holdfast.core.bounds import MISSES_MAX, STRANGERS_MAX
from holdfast.core.clock import Micros, seconds
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Failed, JobRecord, Reason
from holdfast.job_logger import log_fields

logger = logging.getLogger("holdfast.worker")

LINE_MAX = 200
"""Maximum characters of an error in a line. The traceback is complete."""


def failed(
    job: JobRecord,
    outcome: Failed,
    error: BaseException | None = None,
    *,
    secret: bool = False,
) -> Failed:
    """Logs a failed attempt and returns the outcome. Of a secret error only the class is named.

    The level is ERROR if the job has failed for good, WARNING if it is retried, and INFO if the
    handler asked for the retry.
    """
    final = not outcome.retryable or job.attempt >= job.max_attempts
    asked = isinstance(error, Retry) and not final
    level = logging.ERROR if final else logging.INFO if asked else logging.WARNING
    logger.log(
        level,
        "job %s (%s, tenant %s): attempt %d of %d failed, %s: %s",
        job.id,
        job.type,
        job.tenant,
        job.attempt,
        job.max_attempts,
        "no attempts left" if final else "it will be retried",
        _class_of(outcome, error) if secret else _line(outcome, error),
        exc_info=None if asked or secret else error,
        extra=log_fields(job),
    )
    return outcome


def after_completion(job: JobRecord, what: str) -> None:
    """Logs what a handler did after it had completed its job in a transaction of its own."""
    words = "job %s: its handler had completed it by exactly_once; %s"
    logger.warning(words, job.id, what, extra=log_fields(job))


def _class_of(outcome: Failed, error: BaseException | None) -> str:
    if outcome.reason is Reason.DECODE:
        return _line(outcome, error)
    kind = "" if error is None else f"{type(error).__name__}; "
    return f"{kind}its text is only in its record, encrypted"


def _line(outcome: Failed, error: BaseException | None) -> str:
    if outcome.reason is Reason.DECODE:
        # The error may quote the payload.
        return "its payload cannot be read; the error in its record says why"
    text = outcome.error
    if error is not None and not isinstance(error, Fail | Retry):
        text = traceback.format_exception_only(error)[-1]
    text = " ".join(text.split())
    return text if len(text) <= LINE_MAX else text[: LINE_MAX - 3] + "..."


class Strangers:
    """Logs unknown types and codecs: a WARNING once for each, an INFO for every released job."""

    def __init__(self) -> None:
        self._met: set[str] = set()

    def bounced(self, job: JobRecord, what: str, delay: Micros) -> None:
        """Logs a job that is released because this worker does not know `what`."""
        if what not in self._met and len(self._met) < STRANGERS_MAX:
            self._met.add(what)
            words = "this worker does not know %s: its jobs are released for other workers"
            logger.warning(words, what, extra=log_fields(job))
        tries = job.misses + 1
        if tries >= MISSES_MAX:
            words = "job %s (tenant %s): failed: no worker knew %s in %d tries"
            logger.error(words, job.id, job.tenant, what, tries, extra=log_fields(job))
            return
        logger.info(
            "job %s (tenant %s): released, %s is unknown here; try %d of %d, next in %g s",
            job.id,
            job.tenant,
            what,
            tries,
            MISSES_MAX,
            seconds(delay),
            extra=log_fields(job),
        )


def ended(job: JobRecord, why: StopReason, error: HoldfastError) -> None:
    """Logs a run that is stopped because the store accepts no outcome of it any more."""
    canceled = why is StopReason.CANCELED
    logger.log(
        logging.INFO if canceled else logging.WARNING,
        "job %s (%s, tenant %s): %s, stopping its run: %s",
        job.id,
        job.type,
        job.tenant,
        "canceled" if canceled else "lease lost",
        error,
        extra=log_fields(job),
    )


def jobs(number: int) -> str:
    """`1 job`, `2 jobs`."""
    return "1 job" if number == 1 else f"{number} jobs"
