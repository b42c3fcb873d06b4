"""Joins: what the end of a job does to the jobs that await it.

An ended job with edges is queued in `Tables.releasing`, by tenant. The call that ended it follows
up to RELEASE_MAX edges, and each of the next claims as many of the rest, from the tenants in turn.
A job that ends because of a parent is queued in the same way.
"""

from __future__ import annotations

from collections import deque

import msgspec

from holdfast.core.bounds import RELEASE_MAX
from holdfast.core.job import TERMINAL, EventKind, Reason, State
from holdfast.core.journal import (
    AWAITS_PARENTS,
    ENDS_WITH_PARENTS,
    Edge,
    Join,
    OnFailure,
    await_join,
)
from holdfast.core.lifecycle import due_state
from holdfast.store import Ref
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row

_ENDED = {State.FAILED: "failed", State.CANCELED: "was canceled"}
SHARE = 50
"""Edges that the jobs of one tenant follow in its turn."""


def finish(tables: Tables, row: Row) -> None:
    """Ends a job: its key is free, its record stays for its keeping, or goes at once. A job that
    others may await stays until `prune`, which looks whether they still need its result.
    """
    now = row.finished_at = tables.now
    ended(tables, row)
    if row.keep_until <= now and not row.new.edges:
        tables.remove(row, now)
    else:
        tables.release_key(row, now)
        tables.place(row)


def ended(tables: Tables, row: Row) -> None:
    """Notes that a job has ended or was deleted: its callers are told, its edges are followed."""
    tables.ended.append(Ref(row.new.tenant, row.new.id))
    if row.new.edges:
        tables.releasing.setdefault(row.new.tenant, deque()).append(row)


def release(tables: Tables) -> int:
    """Follows up to RELEASE_MAX edges of ended jobs; returns how many."""
    done = 0
    while tables.releasing and done < RELEASE_MAX:
        tenant, rows = next(iter(tables.releasing.items()))
        done += _turn(tables, rows, min(SHARE, RELEASE_MAX - done))
        del tables.releasing[tenant]
        if rows:
            tables.releasing[tenant] = rows
    tables.wakes_all |= bool(tables.releasing)  # The next claim follows the rest.
    return done


def _turn(tables: Tables, rows: deque[Row], most: int) -> int:
    done = 0
    while rows and done < most:
        row = rows[0]
        if row.followed == len(row.new.edges):
            rows.popleft()
            continue
        edge = row.new.edges[row.followed]
        row.followed += 1
        done += 1
        _follow(tables, row, edge)
    return done


def _follow(tables: Tables, parent: Row, edge: Edge) -> None:
    """Tells the target that one of the jobs has ended that it awaits."""
    target = tables.rows.get((parent.new.tenant, edge.target))
    if target is None or target.state in TERMINAL or target.journal is None:
        return
    join = target.journal.joins.get(edge.join)
    if join is None or join.left == 0:
        return
    failed = parent.state is not State.COMPLETED
    join = msgspec.structs.replace(join, left=join.left - 1, failed=join.failed + failed)
    target.journal.joins[edge.join] = join
    if failed and target.state is State.WAITING and edge.on_failure is not OnFailure.RUN:
        _end(tables, target, parent, edge.on_failure)
    elif join.left == 0 and target.awaits == ENDS_WITH_PARENTS and not edge.join:
        _end_with_parents(tables, target, join)
    elif join.left == 0:
        ready(tables, target, await_join(edge.join))


def _end_with_parents(tables: Tables, row: Row, parents: Join) -> None:
    """Completes a job whose parents have; makes it ready if one of them has not."""
    if parents.failed:
        row.awaits = AWAITS_PARENTS
        ready(tables, row, AWAITS_PARENTS)
        return
    row.state, row.awaits, row.updated_at = State.COMPLETED, None, tables.now
    finish(tables, row)
    tables.note(EventKind.COMPLETED, row)


def ready(tables: Tables, row: Row, come: str) -> None:
    """Makes a job ready that awaits this, and for which it has come."""
    if row.awaits != come or row.state not in (State.WAITING, State.SCHEDULED):
        return
    if row.state is State.SCHEDULED:
        row.run_at = min(row.run_at, tables.now)
    row.state = due_state(row.run_at, tables.now)
    row.awaits = None
    row.updated_at = tables.now
    tables.place(row)
    tables.note(EventKind.READY, row, row.run_at if row.run_at > tables.now else None, come)


def _end(tables: Tables, row: Row, parent: Row, how: OnFailure) -> None:
    """Ends a waiting job because of a parent that has not completed."""
    words = _ENDED.get(parent.state, "was deleted")
    why = f"its parent {parent.new.id} {words}"
    row.updated_at = tables.now
    row.awaits = None
    if how is OnFailure.SKIP:
        row.state, row.error = State.CANCELED, why
        kind, note = EventKind.CANCELED, why
    else:
        row.state, row.reason, row.error = State.FAILED, Reason.PARENT_FAILED, why
        kind, note = EventKind.FAILED, f"{row.reason.value}: {why}"
    finish(tables, row)
    tables.note(kind, row, note=note)
