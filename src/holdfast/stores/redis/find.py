"""Find: pages of jobs, merged from the shards of their tenants."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import islice
from typing import Any

from holdfast.core.bounds import JOURNALS_BYTES_MAX
from holdfast.core.clock import Micros
from holdfast.core.job import JobRecord
from holdfast.core.journal import Journal, fitting
from holdfast.store import Find, Page, Ref, Selection
from holdfast.stores.redis.journal import journal
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


_NOTHING = Journal()


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
    lists = (jobs for jobs, _ in pages)
    merged = heapq.merge(*lists, key=lambda one: one[0].seq, reverse=find.newest_first)
    found = list(islice(merged, most))
    # The page ends before, or with, the last job of a shard that was not read to its end.
    number = fitting(journal.bytes for _, journal in found[: find.limit])
    more = number < len(found) or any(cut for _, cut in pages)
    found = found[:number]
    journals = {
        Ref(job.tenant, job.id): journal for job, journal in found if journal is not _NOTHING
    }
    return Page([job for job, _ in found], found[-1][0].seq if more else None, journals)


async def _page(
    shards: Shards, shard: int, find: Find, most: int, now: Micros | None
) -> tuple[list[tuple[JobRecord, Journal]], bool]:
    """Up to `most` jobs of one shard, and whether there are more because their journals are large;
    one call reads a bounded number of rows.
    """
    jobs: list[tuple[JobRecord, Journal]] = []
    after, size = find.after, 0
    while True:
        limit = min(most - len(jobs), JOURNALS_STEP) if find.journals else most - len(jobs)
        args = (selected(find.select), after, limit, find.newest_first, False, find.journals)
        answer, reached, seen = await shards.call("find", shard, args, now)
        read = [(record(row, int(seen)), _journal(row)) for row in rows_of(answer)]
        size += sum(journal.bytes for _, journal in read)
        jobs += read
        if not reached or len(jobs) >= most:
            return jobs, False
        if size >= JOURNALS_BYTES_MAX:
            return jobs, True
        after = int(reached)


def _journal(row: Sequence[Any]) -> Journal:
    stored = journal_of(row)
    return _NOTHING if stored is None else journal(stored)


def shards_of(shards: Shards, select: Selection) -> list[int]:
    """The shards that a selection concerns."""
    return shards.concerned(None if select.tenant is None else (select.tenant,))
