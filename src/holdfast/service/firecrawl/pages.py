"""Iterates over the jobs of a team or a crawl, with a bounded number of bytes per page."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.job import JobRecord
from holdfast.store import Find, Selection, Store

PAGE_FIRST = 50
PAGE_BYTES = 8 * 1024 * 1024
"""The size of the next page, from the size of the jobs in the last one: a job may have 2 MiB."""


async def alive_jobs(
    store: Store, select: Selection, most: int, after: int | None = None
) -> AsyncIterator[JobRecord]:
    """The selected jobs in the order of their enqueue, up to a maximum, after a cursor."""
    find = Find(select=select, after=after, limit=min(PAGE_FIRST, most), newest_first=False)
    while most > 0:
        page = await store.find(find)
        for job in page.jobs:
            yield job
        most -= len(page.jobs)
        if page.cursor is None:
            return
        size = sum(size_of(job) for job in page.jobs) // max(1, len(page.jobs))
        limit = max(1, min(PAGE_MAX, PAGE_BYTES // max(1, size), most))
        find = msgspec.structs.replace(find, after=page.cursor, limit=limit)


def size_of(job: JobRecord) -> int:
    body = job.envelope.body
    return len(body) if isinstance(body, bytes) else 0
