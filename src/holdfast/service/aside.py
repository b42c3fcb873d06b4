"""Encodes and decodes large user data in a thread, so that it does not block the event loop.

The time for a payload grows with its size, and every request of the process waits for the loop. A
thread shares the time with the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from holdfast.core.job import JobRecord

INLINE_MAX = 64 * 1024
"""Up to this many bytes are processed on the loop, which takes at most a few milliseconds."""

EDGE_COST = 256
"""Checking an edge or an entry of a journal takes as long as checking so many bytes."""
NODE_COST = 1024
"""Likewise, for planning a node of a flow."""

T = TypeVar("T")


async def aside(size: int, work: Callable[[], T]) -> T:
    """The result of the work, which runs in a thread if there are many bytes to process."""
    return work() if size <= INLINE_MAX else await asyncio.to_thread(work)


def size_of(jobs: Iterable[JobRecord]) -> int:
    """The bytes of payloads and results. An object of a memory store may be of any size."""
    return sum(
        len(body) if isinstance(body, bytes) else INLINE_MAX
        for job in jobs
        for body in (job.envelope.body, job.result)
        if body is not None
    )
