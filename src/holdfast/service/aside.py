"""Reading and writing what users sent, beside the loop where there is much of it.

Whatever looks at payloads takes a time that grows with them, and every request of the process waits
for the loop. A thread shares its time with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from holdfast.job import JobRecord

INLINE_MAX = 64 * 1024
"""Bytes that are looked at on the loop: at most a few milliseconds."""

T = TypeVar("T")


async def aside(size: int, work: Callable[[], T]) -> T:
    """What the work gives; in a thread where there are more bytes to look at than a few."""
    return work() if size <= INLINE_MAX else await asyncio.to_thread(work)


def size_of(jobs: Iterable[JobRecord]) -> int:
    """Bytes of payloads and results. An object of a memory store may be of any size."""
    return sum(
        len(body) if isinstance(body, bytes) else INLINE_MAX
        for job in jobs
        for body in (job.envelope.body, job.result)
        if body is not None
    )
