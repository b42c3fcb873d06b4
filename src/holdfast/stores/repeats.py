"""The check that stores make when a claim is repeated."""

from __future__ import annotations

from holdfast.core.job import JobRecord
from holdfast.store import Claim


def asked_for(claim: Claim, job: JobRecord) -> bool:
    """Whether the claim names the job's line. A caller that repeats the nonce of another claim must
    not get its jobs.
    """
    return (claim.tenants is None or job.tenant in claim.tenants) and (
        claim.queues is None or job.queue in claim.queues
    )
