"""What stores ask of a claim that is repeated."""

from __future__ import annotations

from holdfast.job import JobRecord
from holdfast.store import Claim


def asked_for(claim: Claim, job: JobRecord) -> bool:
    """Whether the claim names the job's line: who repeats another's must not be given its jobs."""
    return (claim.tenants is None or job.tenant in claim.tenants) and (
        claim.queues is None or job.queue in claim.queues
    )
