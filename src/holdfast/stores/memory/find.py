"""Find: pages of jobs by a selection."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.journal import Journal, fitting
from holdfast.core.lifecycle import seen
from holdfast.store import Find, Page, Ref, Selection
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row


def find_jobs(tables: Tables, find: Find) -> Page:
    if find.limit == 0:
        return Page([], find.after)
    listed: Iterable[Row] = tables.pages(find.after, find.newest_first)
    if find.select.ids and find.select.tenant is not None:
        listed = _by_id(tables, find, find.select.tenant)
    selected = (row for row in listed if selects(find.select, row, tables.now))
    found = list(islice(selected, find.limit + 1))
    rows = found[: find.limit]
    journals = [_journal(row) for row in rows] if find.journals else []
    if find.journals:
        rows = rows[: fitting(journal.bytes for journal in journals)]
    return Page(
        [row.record(tables.now) for row in rows],
        rows[-1].seq if len(found) > len(rows) else None,
        {
            Ref(row.new.tenant, row.new.id): journal
            for row, journal in zip(rows, journals, strict=False)
            if journal != Journal()
        },
    )


def _journal(row: Row) -> Journal:
    return Journal(() if row.journal is None else row.journal.all(), row.new.edges)


def _by_id(tables: Tables, find: Find, tenant: str) -> list[Row]:
    found = (tables.rows.get((tenant, id)) for id in set(find.select.ids))
    rows = [row for row in found if row is not None and _past(row, find)]
    return sorted(rows, key=lambda row: row.seq, reverse=find.newest_first)


def _past(row: Row, find: Find) -> bool:
    if find.after is None:
        return True
    return row.seq < find.after if find.newest_first else row.seq > find.after


def selects(select: Selection, row: Row, now: Micros) -> bool:
    """Whether the selection names the job."""
    new = row.new
    return (
        (select.tenant is None or new.tenant == select.tenant)
        and (not select.ids or new.id in select.ids)
        and (not select.queues or new.queue in select.queues)
        and (not select.types or new.envelope.type in select.types)
        and (not select.groups or new.group in select.groups)
        and (not select.reasons or row.reason in select.reasons)
        and (select.key is None or new.key == select.key)
        and (select.created_from is None or row.created_at >= select.created_from)
        and (select.created_before is None or row.created_at < select.created_before)
        and (select.failed_from is None or _failed_at(row) >= select.failed_from)
        and (select.failed_before is None or 0 <= _failed_at(row) < select.failed_before)
        and all(tag in new.tags for tag in select.tags)
        and (not select.states or seen(row.state, row.run_at, now) in select.states)
    )


def _failed_at(row: Row) -> Micros:
    """When the job failed for good; -1 unless it did."""
    if row.state is not State.FAILED or row.finished_at is None:
        return -1
    return row.finished_at
