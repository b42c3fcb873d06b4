"""Which rows of the memory store a selection names."""

from __future__ import annotations

from holdfast.clock import Micros
from holdfast.job import State
from holdfast.limits import BATCH_MAX, SELECT_MAX, within
from holdfast.store import Find, Selection
from holdfast.stores.memory.rows import Row


def bounded(select: Selection) -> Selection:
    """The selection, unless one of its fields has more values than its limit."""
    within("ids", len(select.ids), BATCH_MAX)
    for field in ("queues", "types", "states", "groups", "tags", "reasons"):
        within(field, len(getattr(select, field)), SELECT_MAX)
    return select


def past(row: Row, find: Find) -> bool:
    if find.after is None:
        return True
    return row.seq < find.after if find.newest_first else row.seq > find.after


def selects(select: Selection, row: Row, now: Micros) -> bool:
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
        and (not select.states or row.record(now).state in select.states)
    )


def _failed_at(row: Row) -> Micros:
    """When the job failed for good; -1 unless it did."""
    if row.state is not State.FAILED or row.finished_at is None:
        return -1
    return row.finished_at
