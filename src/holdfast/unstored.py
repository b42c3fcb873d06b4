"""The record of a job that runs without a store."""

from __future__ import annotations

from holdfast.core.bounds import TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.clock import SystemClock
from holdfast.core.codec import OBJECT, Codecs
from holdfast.core.job import JobRecord, State
from holdfast.typed import Job, JobType


def unstored(tenant: str, job_type: JobType, job: Job, codecs: Codecs) -> JobRecord:
    """As its handler sees it in its only run."""
    now = SystemClock().now()  # Each run counts as a job of its own and has its own effect key.
    return JobRecord(
        tenant=check_name("tenant", tenant, TENANT_MAX),
        id="now",
        queue=job_type.queue,
        envelope=codecs.seal(job_type.name, job_type.version, OBJECT, job),
        rules=job_type.rules,
        priority=job_type.priority,
        key=None,
        group=None,
        tags=(),
        origin=None,
        seq=0,
        state=State.PROCESSING,
        attempt=1,
        fence=1,
        lapses=0,
        misses=0,
        created_at=now,
        updated_at=now,
        run_at=now,
    )
