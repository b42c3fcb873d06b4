"""Find: pages of jobs, merged from the shards of their tenants."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.job import JobRecord
from holdfast.store import Find, Page, Ref, Selection
from holdfast.stores.redis.journal import Stored, journal
from holdfast.stores.redis.rows import (
    REASON_CODES,
    STATE_CODES,
    exact,
    journal_of,
    record,
    rows_of,
)
from holdfast.stores.redis.shards import Shards, together

JOURNALS_STEP = 10
"""Jobs whose journals one call reads: each can have megabytes, and the server does nothing else."""


def selected(select: Selection) -> tuple[Any, ...]:
    """A selection as the scripts take it; see lib_selection.lua."""
    return (
        select.tenant,
        select.ids or None,
        select.queues or None,
        select.types or None,
        [STATE_CODES[state] for state in select.states] or None,
        select.groups or None,
        select.tags or None,
        [REASON_CODES[reason] for reason in select.reasons] or None,
        select.key,
        exact("created_from", select.created_from),
        exact("created_before", select.created_before),
        exact("failed_from", select.failed_from),
        exact("failed_before", select.failed_before),
    )


async def find_jobs(shards: Shards, find: Find, now: Micros | None) -> Page:
    exact("after", find.after)
    if find.limit == 0:
        return Page([], find.after)
    concerned = shards_of(shards, find.select)
    most = find.limit + 1
    pages = await together(_page(shards, shard, find, most, now) for shard in concerned)
    merged = heapq.merge(*pages, key=lambda one: one[0].seq, reverse=find.newest_first)
    found = list(islice(merged, most))
    more = len(found) > find.limit
    found = found[: find.limit]
    jobs = [job for job, _ in found]
    journals = {
        Ref(job.tenant, job.id): journal(stored) for job, stored in found if stored is not None
    }
    return Page(jobs, jobs[-1].seq if more else None, journals)


async def _page(
    shards: Shards, shard: int, find: Find, most: int, now: Micros | None
) -> list[tuple[JobRecord, Stored | None]]:
    """Up to `most` jobs of one shard; one call reads a bounded number of rows."""
    jobs: list[tuple[JobRecord, Stored | None]] = []
    after = find.after
    while True:
        limit = min(most - len(jobs), JOURNALS_STEP) if find.journals else most - len(jobs)
        args = (selected(find.select), after, limit, find.newest_first, False, find.journals)
        answer, reached, seen = await shards.call("find", shard, args, now)
        jobs += [(record(row, int(seen)), journal_of(row)) for row in rows_of(answer)]
        if not reached or len(jobs) >= most:
            return jobs
        after = int(reached)


def shards_of(shards: Shards, select: Selection) -> list[int]:
    """The shards that a selection concerns."""
    return shards.concerned(None if select.tenant is None else (select.tenant,))
