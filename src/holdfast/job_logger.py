"""What log lines say of the job that they are about."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from holdfast.core.job import JobRecord


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


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the fields of its job to each line, and its tenant and id to the text."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        facts = self.extra or {}
        kwargs.setdefault("extra", facts)
        return f"[{facts['tenant']}/{facts['job_id']}] {msg}", kwargs
