"""Change: replays, deletes, reprioritises or reschedules selected jobs, one bounded step a call."""

from __future__ import annotations

import sqlite3

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, EventKind, State, replay_id
from holdfast.core.journal import Entry, Size, before_step, written
from holdfast.core.lifecycle import due_state
from holdfast.store import Act, Change, Changed, Ref
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.find import where
from holdfast.stores.sqlite.jobs import Jobs
from holdfast.stores.sqlite.joins import release
from holdfast.stores.sqlite.journal import put, read_entries, weight
from holdfast.stores.sqlite.limits_caps import Caps
from holdfast.stores.sqlite.rows import Row, size_text
from holdfast.stores.sqlite.transaction import Transaction

_FINISHED = "state IN ('completed', 'failed', 'canceled')"

COPY_MAX = 10_000
"""About how many rows of journals one step of a replay copies; see `journal.weight`."""

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
    reached, left = step[-1] if step else change.after, COPY_MAX
    for row in rows:
        if left <= 0:
            reached, more = row.seq - 1, True
            break
        if change.from_step is not None:
            left -= weight(row.journal, None)
        outcome = _change(transaction, jobs, change, row, caps)
        if outcome is not None:
            done[Ref(row.tenant, row.id)] = outcome
    jobs.flush()
    release(transaction)
    return Changed(done, reached if more else None)


def _change(
    transaction: Transaction, jobs: Jobs, change: Change, row: Row, caps: Caps
) -> str | None:
    """The id of the changed or new job; None when the tenant is full."""
    now = transaction.now
    transaction.ready_lines.add((row.tenant, row.queue))
    if change.act is Act.REPLAY:
        return _replay(transaction, jobs, row, caps, change.from_step)
    if change.act is Act.DELETE:
        if row.state not in TERMINAL:
            transaction.ended_jobs.append(Ref(row.tenant, row.id))
        jobs.remove(row)
        jobs.record(EventKind.DELETED, row)
        return row.id
    if change.act is Act.REPRIORITISE:
        row.priority = change.priority
    else:
        row.run_at = change.run_at if change.run_at is not None else now + change.delay_us
        if row.state is not State.WAITING:
            row.state = due_state(row.run_at, now)
    jobs.save(row)
    jobs.record(EventKind.CHANGED, row, row.run_at, change.act.value)
    return row.id


def _replay(
    transaction: Transaction, jobs: Jobs, row: Row, caps: Caps, from_step: str | None
) -> str | None:
    now, id = transaction.now, replay_id(row.tenant, row.id)
    known = _known_before(transaction, row, from_step)
    if known is None:
        return None
    size = row.size
    if row.edges or row.journal is not None:  # The replay does not have them.
        (size,) = transaction.execute(sql.PAYLOAD_SIZE, (row.seq,)).fetchone()
    capped = caps.capped(row.tenant)
    if capped and caps.no_room(row.tenant, size) is not None:
        there = transaction.execute(sql.QUEUE_AND_TYPE, (row.tenant, id)).fetchone()
        if there is None:
            return None
    gated = transaction.scope_cache.gated(row.tenant, row.group, row.queue)
    size += sum(len(entry.value) for entry in known)
    transaction.seq += 1
    # The payload is copied inside the database.
    copied = transaction.execute(
        sql.REPLAY,
        (transaction.seq, id, now, now, now, now, size, int(gated), _size_text(known), row.seq),
    ).rowcount
    if copied:
        put(transaction.connection, transaction.seq, [(entry, entry.at) for entry in known])
        transaction.execute(sql.REPLAY_BODY, (transaction.seq, row.seq))
        place = BLOCKED if gated else "enqueued"
        transaction.count_move((row.tenant, row.queue, row.group), None, place, 1, size)
        if capped:
            caps.add_size(row.tenant, size)
        transaction.record_event(EventKind.ENQUEUED, (row.tenant, id, row.queue, row.type), 0, 0)
    else:
        transaction.seq -= 1
    transaction.execute(sql.REPLAYED, (id, row.seq))
    jobs.record(EventKind.REPLAYED, row, text=id)
    return id


def _known_before(transaction: Transaction, row: Row, from_step: str | None) -> list[Entry] | None:
    """What a replay from a step starts with; None if there is no such step."""
    if from_step is None:
        return []
    if row.journal is None:
        return None
    return before_step(read_entries(transaction.connection, row.seq), from_step)


def _size_text(known: list[Entry]) -> str | None:
    """The size of a new journal with these entries, as its row has it."""
    return size_text(written(Size(), {}, known)[1]) if known else None
