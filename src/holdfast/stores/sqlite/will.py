"""What people want done to jobs: cancel, and change by selection."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import JobNotFound
from holdfast.job import TERMINAL, EventKind, State, replay_id
from holdfast.store import Act, Canceled, Change, Changed, Ref
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.journey import finish, look, note, release_key
from holdfast.stores.sqlite.rows import Row
from holdfast.stores.sqlite.sight import where
from holdfast.stores.sqlite.transaction import Transaction

_FINISHED = "state IN ('completed', 'failed', 'canceled')"

# Which jobs an act is possible for; asked in the query, so that a step is never spent on others.
_POSSIBLE = {
    Act.REPLAY: f"{_FINISHED} AND replayed_as IS NULL",
    Act.DELETE: "state <> 'processing'",
    Act.REPRIORITISE: f"state <> 'processing' AND NOT {_FINISHED}",
    Act.RESCHEDULE: f"state <> 'processing' AND NOT {_FINISHED}",
}


def cancel(transaction: Transaction, refs: Sequence[Ref]) -> list[Canceled]:
    transaction.ended += refs
    return [_cancel(transaction, ref) for ref in refs]


def _cancel(transaction: Transaction, ref: Ref) -> Canceled:
    row = look(transaction, ref.tenant, ref.id)
    if row is None:
        return Canceled(ref.id, False, JobNotFound(id=ref.id))
    if row.state not in TERMINAL:
        row.state = State.CANCELED
        row.token = row.reason = None  # A reason is for the dead letters only.
        finish(transaction, row)
        note(transaction, EventKind.CANCELED, row)
    return Canceled(ref.id, row.state is State.CANCELED)


def change(transaction: Transaction, change: Change) -> Changed:
    condition, values = where(change.select, transaction.now)
    found = transaction.execute(
        f"SELECT {sql.ROW} FROM jobs WHERE {condition} AND {_POSSIBLE[change.act]} AND seq > ?"
        " ORDER BY seq LIMIT ?",
        (*values, change.after, change.limit + 1),
    ).fetchall()
    rows = [Row(one) for one in found[: change.limit]]
    done = {Ref(row.tenant, row.id): _change(transaction, change, row) for row in rows}
    reached = rows[-1].seq if rows else change.after
    return Changed(done, reached if len(found) > change.limit else None)


def _change(transaction: Transaction, change: Change, row: Row) -> str:
    """The id of the job that came of it."""
    now = transaction.now
    transaction.lines.add((row.tenant, row.queue))
    if change.act is Act.REPLAY:
        return _replay(transaction, row)
    if change.act is Act.DELETE:
        note(transaction, EventKind.DELETED, row)
        transaction.execute(sql.REMOVE, (row.seq,))
        release_key(transaction, row)
        if row.state in TERMINAL:
            transaction.tally(row.tenant, row.queue, row.state.value, -1)
        return row.id
    if change.act is Act.REPRIORITISE:
        row.priority = change.priority
    else:
        row.run_at = change.run_at if change.run_at is not None else now + change.delay_us
        row.state = State.SCHEDULED if row.run_at > now else State.ENQUEUED
    transaction.execute(sql.SAVE, row.saved(now))
    note(transaction, EventKind.CHANGED, row, row.run_at, change.act.value)
    return row.id


def _replay(transaction: Transaction, row: Row) -> str:
    now, id = transaction.now, replay_id(row.tenant, row.id)
    transaction.seq += 1
    # The payload is copied inside the database and never travels.
    copied = transaction.execute(
        sql.REPLAY, (transaction.seq, id, now, now, now, now, row.seq)
    ).rowcount
    if copied:
        transaction.execute(sql.REPLAY_BODY, (transaction.seq, row.seq))
        transaction.note(EventKind.ENQUEUED, (row.tenant, id, row.queue, row.type), 0, 0)
    else:
        transaction.seq -= 1
    transaction.execute(sql.REPLAYED, (id, row.seq))
    note(transaction, EventKind.REPLAYED, row, text=id)
    return id
