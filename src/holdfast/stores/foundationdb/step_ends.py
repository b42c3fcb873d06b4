"""How a job waits again, ends, or is deleted, whatever verb does it."""

from __future__ import annotations

from holdfast.store import Ref
from holdfast.stores.foundationdb import limits_groups
from holdfast.stores.foundationdb.idempotency import release_key
from holdfast.stores.foundationdb.joins_edges import drop_edges
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.rows_parent import Parent
from holdfast.stores.foundationdb.step import Step


def requeue(step: Step, row: Row) -> None:
    """Writes a job that waits again."""
    row.late = row.expires_at is not None and row.expires_at <= step.now and row.late
    limits_groups.hold_back(step, row)
    step.save(row)
    _wake_line(step, row)


async def finish(step: Step, row: Row) -> None:
    """Ends a job: its key is free, its record stays for its keeping, or goes at once. A job that
    others may await stays until prune, which looks whether they still need its result.
    """
    row.finished_at = step.now
    row.gate, row.granted, row.late, row.aside = 0, False, False, False
    await release_key(step, row)
    step.ended.append(Ref(row.tenant, row.id))
    if row.edges:
        step.parents.append(Parent.of(row))
    if row.keep_until() <= step.now and not row.edges:
        step.remove(row)
    else:
        step.save(row)
    _wake_line(step, row)


async def remove(step: Step, row: Row) -> None:
    """Deletes a job, and frees its key."""
    if row.edges and row.alive:
        step.parents.append(Parent.of(row, gone=True))
    elif row.edges:
        await drop_edges(step, row)
    step.remove(row)
    await release_key(step, row)
    _wake_line(step, row)


def _wake_line(step: Step, row: Row) -> None:
    """Wakes sleepers of the job's line: a limit of the tenant may have room now."""
    if step.settings.has_any(row.tenant):
        step.lines.add((row.tenant, row.queue))
