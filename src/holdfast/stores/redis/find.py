"""Find: pages of jobs, merged from the shards of their tenants."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.job import JobRecord
from holdfast.store import Find, Page, Selection
from holdfast.stores.redis.rows import REASON_CODES, STATE_CODES, exact, record, rows_of
from holdfast.stores.redis.shards import Shards, together


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
    merged = heapq.merge(*pages, key=lambda job: job.seq, reverse=find.newest_first)
    jobs = list(islice(merged, most))
    more = len(jobs) > find.limit
    jobs = jobs[: find.limit]
    return Page(jobs, jobs[-1].seq if more else None)


async def _page(
    shards: Shards, shard: int, find: Find, most: int, now: Micros | None
) -> list[JobRecord]:
    """Up to `most` jobs of one shard; one call reads a bounded number of rows."""
    jobs: list[JobRecord] = []
    after = find.after
    while True:
        args = (selected(find.select), after, most - len(jobs), find.newest_first, False)
        answer, reached, seen = await shards.call("find", shard, args, now)
        jobs += [record(row, int(seen)) for row in rows_of(answer)]
        if not reached or len(jobs) >= most:
            return jobs
        after = int(reached)


def shards_of(shards: Shards, select: Selection) -> list[int]:
    """The shards that a selection concerns."""
    return shards.concerned(None if select.tenant is None else (select.tenant,))
