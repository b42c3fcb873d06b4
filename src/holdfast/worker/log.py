"""What a worker tells of jobs, with the job's fields in `extra`. Never a payload, never a token."""

from __future__ import annotations

import logging
import traceback

from holdfast.clock import Micros, seconds
from holdfast.context import Fail, Retry, StopReason, log_fields
from holdfast.errors import HoldfastError
from holdfast.job import Failed, JobRecord, Reason
from holdfast.limits import MISSES_MAX, STRANGERS_MAX

logger = logging.getLogger("holdfast.worker")

LINE_MAX = 200
"""Characters of an error in a line; the traceback beside it is whole."""


def failed(job: JobRecord, outcome: Failed, error: BaseException | None = None) -> Failed:
    """Tells of a failed attempt and gives the outcome back.

    An error when the job is given up, a warning when it is tried again, and a remark when that was
    the handler's own wish.
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
        "no more tries" if final else "to be tried again",
        _line(outcome, error),
        exc_info=None if asked else error,
        extra=log_fields(job),
    )
    return outcome


def _line(outcome: Failed, error: BaseException | None) -> str:
    if outcome.reason is Reason.DECODE:
        # What is wrong with a payload may quote it.
        return "its payload cannot be read; the error in its record says why"
    text = outcome.error
    if error is not None and not isinstance(error, Fail | Retry):
        text = traceback.format_exception_only(error)[-1]
    text = " ".join(text.split())
    return text if len(text) <= LINE_MAX else text[: LINE_MAX - 3] + "..."


class Strangers:
    """What this worker cannot read. Each is a warning once; every bounced job is a remark."""

    def __init__(self) -> None:
        self._met: set[str] = set()

    def bounced(self, job: JobRecord, what: str, delay: Micros) -> None:
        """Tells of a job that is given back because `what` is not known here."""
        if what not in self._met and len(self._met) < STRANGERS_MAX:
            self._met.add(what)
            words = "%s is not known to this worker: its jobs are given back for others"
            logger.warning(words, what, extra=log_fields(job))
        tries = job.misses + 1
        if tries >= MISSES_MAX:
            words = "job %s (tenant %s): no more tries: %s was not known to any worker in %d"
            logger.error(words, job.id, job.tenant, what, tries, extra=log_fields(job))
            return
        logger.info(
            "job %s (tenant %s): given back, %s is not known here; try %d of %d, the next in %g s",
            job.id,
            job.tenant,
            what,
            tries,
            MISSES_MAX,
            seconds(delay),
            extra=log_fields(job),
        )


def ended(job: JobRecord, why: StopReason, error: HoldfastError) -> None:
    """Tells of a run that is stopped because the store accepts nothing of it any more."""
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
