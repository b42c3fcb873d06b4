"""Change: replays, deletes, reprioritises or reschedules selected jobs, one bounded step a call."""

from __future__ import annotations

import sqlite3

from holdfast.core.clock import Micros
from holdfast.core.job import EventKind, State, replay_id
from holdfast.store import Act, Change, Changed, Ref
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.find import where
from holdfast.stores.sqlite.jobs import Jobs
from holdfast.stores.sqlite.limits_caps import Caps
from holdfast.stores.sqlite.rows import Row
from holdfast.stores.sqlite.transaction import Transaction

_FINISHED = "state IN ('completed', 'failed', 'canceled')"

# Which jobs an act is possible for; part of the query, so that a step is not spent on others.
_POSSIBLE = {
    Act.REPLAY: f"{_FINISHED} AND replayed_as IS NULL",
    Act.DELETE: "state <> 'processing'",
    Act.REPRIORITISE: f"state <> 'processing' AND NOT {_FINISHED}",
    Act.RESCHEDULE: f"state <> 'processing' AND NOT {_FINISHED}",
}


def candidates(connection: sqlite3.Connection, change: Change, now: Micros) -> list[int]:
    """The sequences of the jobs of this step, and one more if there are more.

    A search runs on a reading connection: on the writer it would delay all writes.
    """
    condition, values = where(change.select, now)
    found = connection.execute(
        f"SELECT seq FROM jobs WHERE {condition} AND {_POSSIBLE[change.act]} AND seq > ?"
        " ORDER BY seq LIMIT ?",
        (*values, change.after, change.limit + 1),
    ).fetchall()
    return [seq for (seq,) in found]


def change_jobs(transaction: Transaction, change: Change, seqs: list[int]) -> Changed:
    """Changes those candidates that still match the selection."""
    transaction.signed = None if change.by is None else change.by.words
    condition, values = where(change.select, transaction.now)
    step, more = seqs[: change.limit], len(seqs) > change.limit
    found = transaction.execute(
        f"SELECT {sql.ROW} FROM jobs WHERE jobs.seq IN (SELECT value FROM json_each(?))"
        f" AND {condition} AND {_POSSIBLE[change.act]} ORDER BY seq",
        (listed(step), *values),
    ).fetchall()
    rows = [Row(one) for one in found]
    jobs, caps = Jobs(transaction), Caps(transaction, len(rows))
    done: dict[Ref, str] = {}
    for row in rows:
        outcome = _change(transaction, jobs, change, row, caps)
        if outcome is not None:
            done[Ref(row.tenant, row.id)] = outcome
    jobs.flush()
    reached = step[-1] if step else change.after
    return Changed(done, reached if more else None)


def _change(
    transaction: Transaction, jobs: Jobs, change: Change, row: Row, caps: Caps
) -> str | None:
    """The id of the changed or new job; None when the tenant is full."""
    now = transaction.now
    transaction.ready_lines.add((row.tenant, row.queue))
    if change.act is Act.REPLAY:
        return _replay(transaction, jobs, row, caps)
    if change.act is Act.DELETE:
        jobs.remove(row)
        jobs.record(EventKind.DELETED, row)
        return row.id
    if change.act is Act.REPRIORITISE:
        row.priority = change.priority
    else:
        row.run_at = change.run_at if change.run_at is not None else now + change.delay_us
        row.state = State.SCHEDULED if row.run_at > now else State.ENQUEUED
    jobs.save(row)
    jobs.record(EventKind.CHANGED, row, row.run_at, change.act.value)
    return row.id


def _replay(transaction: Transaction, jobs: Jobs, row: Row, caps: Caps) -> str | None:
    now, id = transaction.now, replay_id(row.tenant, row.id)
    capped = caps.capped(row.tenant)
    if capped and caps.no_room(row.tenant, row.size) is not None:
        known = transaction.execute(sql.QUEUE_AND_TYPE, (row.tenant, id)).fetchone()
        if known is None:
            return None
    gated = transaction.scope_cache.gated(row.tenant, row.group, row.queue)
    transaction.seq += 1
    # The payload is copied inside the database.
    copied = transaction.execute(
        sql.REPLAY, (transaction.seq, id, now, now, now, now, int(gated), row.seq)
    ).rowcount
    if copied:
        transaction.execute(sql.REPLAY_BODY, (transaction.seq, row.seq))
        place = BLOCKED if gated else "enqueued"
        transaction.count_move((row.tenant, row.queue, row.group), None, place, 1, row.size)
        if capped:
            caps.add_size(row.tenant, row.size)
        transaction.record_event(EventKind.ENQUEUED, (row.tenant, id, row.queue, row.type), 0, 0)
    else:
        transaction.seq -= 1
    transaction.execute(sql.REPLAYED, (id, row.seq))
    jobs.record(EventKind.REPLAYED, row, text=id)
    return id
