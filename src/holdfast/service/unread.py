"""Leases whose payload or steps could not be read, by keys or blobs that this service has."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

from holdfast.core.clock import micros
from holdfast.core.codec import unread
from holdfast.core.errors import KeyUnavailable
from holdfast.core.job import Failed, Lease, Outcome, Reason, Released
from holdfast.core.lifecycle import decide
from holdfast.core.mapped import UNREADABLE
from holdfast.loop import RETRY_MOST_S
from holdfast.store import Store

logger = logging.getLogger("holdfast.service")


async def readable(store: Store, leases: Sequence[Lease]) -> list[Lease]:
    """The leases that can be handed to a worker in another language. The others are settled as a
    worker of the library settles them: failed, or released if they may be readable later.
    """
    broken = [one for one in leases if one.job.envelope.codec == UNREADABLE]
    if broken:
        for one in broken:
            words = "job %s (tenant %s): it cannot be read; its record says why"
            logger.warning(words, one.job.id, one.job.tenant)
        ends = [decide(_outcome(one), one.job, one.token, random.random()) for one in broken]
        await store.ack(ends)
    return [one for one in leases if one.job.envelope.codec != UNREADABLE]


def _outcome(lease: Lease) -> Outcome:
    error = unread(lease.job.type, lease.job.envelope.body)
    if isinstance(error, KeyUnavailable):
        return Released(micros(RETRY_MOST_S))
    return Failed(str(error), reason=Reason.DECODE, retryable=False)
