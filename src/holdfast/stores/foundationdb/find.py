"""Find: pages of jobs by a selection. Reads by snapshot."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic

from holdfast.core.bounds import JOURNALS_BYTES_MAX
from holdfast.core.clock import Micros
from holdfast.core.job import JobRecord, State
from holdfast.core.journal import Journal
from holdfast.core.lifecycle import seen
from holdfast.store import Find, Page, Ref, Selection
from holdfast.stores.foundationdb.joins_edges import read_edges
from holdfast.stores.foundationdb.journal import read_entries
from holdfast.stores.foundationdb.layout import (
    STEP_BYTES_MAX,
    Space,
    after,
    seq_bytes,
    text,
    texts,
)
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.runner import Runner
from holdfast.stores.foundationdb.step import Step

ROWS_AHEAD = 200
"""Rows that are read at a time."""
ROWS_MAX = 5000
"""Rows that one transaction reads, before another goes on: it must not outlive its version."""
FIND_S = 1.0
"""After so long a call begins no further transaction: its page is short, and the cursor says where
to go on. A selection that has an index (ids, a key, a group, the dead letters) never takes so
long."""


async def find_jobs(runner: Runner, find: Find) -> Page:
    """A page, in as many transactions as it takes in FIND_S."""
    if find.limit == 0:
        return Page([], find.after)
    page, ends = PartialPage(find), monotonic() + FIND_S
    while (whole := await runner.read(page.read_on)) is None:
        if monotonic() >= ends:
            return Page(page.jobs, page.after, page.journals)
    return whole


class PartialPage:
    """A page as far as earlier transactions have read it."""

    def __init__(self, find: Find) -> None:
        self.find = find
        self.after = find.after
        self.jobs: list[JobRecord] = []
        self.journals: dict[Ref, Journal] = {}
        self.bytes = 0
        """Of these journals."""

    async def read_on(self, step: Step) -> Page | None:
        """The whole page; None when another transaction has to go on."""
        find, found, journals = self.find, list(self.jobs), dict(self.journals)
        matches = Matches(find.select, self.after, newest_first=find.newest_first)
        looked = size = 0
        held = self.bytes
        async with aclosing(matches.rows(step)) as rows:
            async for row in rows:
                looked += 1
                if matches.takes(row, step.now):
                    if len(found) == find.limit:
                        return Page(found, found[-1].seq, journals)
                    body = await step.body(row)
                    size += len(body)
                    found.append(row.record(step.now, body))
                    read = await _journal_of(step, row) if find.journals else None
                    if read is not None:
                        journals[Ref(*row.name)] = read
                        size, held = size + read.bytes, held + read.bytes
                    if held >= JOURNALS_BYTES_MAX:
                        return Page(found, row.seq, journals)
                if looked >= ROWS_MAX or size >= STEP_BYTES_MAX:
                    self.jobs, self.journals, self.after = found, journals, row.seq
                    self.bytes = held
                    return None
        return Page(found, None, journals)


async def _journal_of(step: Step, row: Row) -> Journal | None:
    """The journal and the edges of a job; None if it has neither."""
    if row.journal is None and not row.edges:
        return None
    return Journal(await read_entries(step, row), await read_edges(step, row, 0, row.edges))


class Matches:
    """The jobs that a selection may name, in or against the order of their enqueue."""

    def __init__(self, select: Selection, after: int | None, *, newest_first: bool) -> None:
        self.select = select
        self.after = after
        self.newest_first = newest_first

    def takes(self, row: Row, now: Micros) -> bool:
        select = self.select
        return (
            (select.tenant is None or row.tenant == select.tenant)
            and (not select.ids or row.id in select.ids)
            and (not select.queues or row.queue in select.queues)
            and (not select.types or row.type in select.types)
            and (not select.groups or row.group in select.groups)
            and (not select.reasons or row.reason in select.reasons)
            and (select.key is None or row.key == select.key)
            and (select.created_from is None or row.created_at >= select.created_from)
            and (select.created_before is None or row.created_at < select.created_before)
            and (select.failed_from is None or _failed_at(row) >= select.failed_from)
            and (select.failed_before is None or 0 <= _failed_at(row) < select.failed_before)
            and all(tag in row.tags for tag in select.tags)
            and (not select.states or seen(row.state, row.run_at, now) in select.states)
        )

    async def rows(self, step: Step) -> AsyncGenerator[Row, None]:
        """The rows of the index after the cursor; `takes` says which of them are selected."""
        if self.select.ids and self.select.tenant is not None:
            for row in await self._by_id(step, self.select.tenant):
                yield row
            return
        begin, end = self._range(step)
        while begin < end:
            pairs = await step.range(
                begin, end, ROWS_AHEAD, reverse=self.newest_first, snapshot=True
            )
            names = [self._name(*pair) for pair in pairs]
            for each in await step.peek(names):
                if each is not None:
                    yield each
            if len(pairs) < ROWS_AHEAD:
                return
            if self.newest_first:
                end = pairs[-1][0]
            else:
                begin = pairs[-1][0] + b"\0"

    async def _by_id(self, step: Step, tenant: str) -> list[Row]:
        found = await step.peek([(tenant, id) for id in sorted(set(self.select.ids))])
        rows = [row for row in found if row is not None and self._past(row.seq)]
        return sorted(rows, key=lambda row: row.seq, reverse=self.newest_first)

    def _past(self, seq: int) -> bool:
        if self.after is None:
            return True
        return seq < self.after if self.newest_first else seq > self.after

    def _range(self, step: Step) -> tuple[bytes, bytes]:
        prefix = self._index(step)
        begin, end = prefix, after(prefix)
        if self.after is not None and self.newest_first:
            end = min(end, prefix + seq_bytes(self.after))
        elif self.after is not None:
            begin = prefix + seq_bytes(self.after) + b"\0"
        return begin, end

    def _index(self, step: Step) -> bytes:
        """The narrowest index by sequence that has all jobs of the selection."""
        select, own = self.select, step.keys.own
        if select.tenant is None:
            return step.keys.all(Space.ALL_JOBS)
        if select.key is not None:
            return own(select.tenant, Space.KEY_JOBS, text(select.key))
        if len(select.groups) == 1:
            return own(select.tenant, Space.GROUP_JOBS, text(select.groups[0]))
        failed = select.failed_from is not None or select.failed_before is not None
        if failed or select.states == (State.FAILED,):
            return own(select.tenant, Space.DEAD)
        return own(select.tenant, Space.JOBS)

    def _name(self, key: bytes, value: bytes) -> tuple[str, str]:
        if self.select.tenant is not None:
            return self.select.tenant, value.decode()
        tenant, id = texts(value, 2)
        return tenant, id


def _failed_at(row: Row) -> Micros:
    """When the job failed for good; -1 unless it did."""
    if row.state is not State.FAILED or row.finished_at is None:
        return -1
    return row.finished_at
