"""What people want done to jobs: cancel, and change by selection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from holdfast.clock import Micros
from holdfast.errors import JobNotFound
from holdfast.job import TERMINAL, EventKind, State, replay_id
from holdfast.store import Act, Canceled, Change, Changed, Ref
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.caps import Caps
from holdfast.stores.sqlite.journey import finish, look, note, release_key, remove, save
from holdfast.stores.sqlite.rows import Row
from holdfast.stores.sqlite.sight import where
from holdfast.stores.sqlite.transaction import Transaction

_encode = msgspec.json.Encoder().encode

_FINISHED = "state IN ('completed', 'failed', 'canceled')"

# Which jobs an act is possible for; asked in the query, so that a step is never spent on others.
_POSSIBLE = {
    Act.REPLAY: f"{_FINISHED} AND replayed_as IS NULL",
    Act.DELETE: "state <> 'processing'",
    Act.REPRIORITISE: f"state <> 'processing' AND NOT {_FINISHED}",
    Act.RESCHEDULE: f"state <> 'processing' AND NOT {_FINISHED}",
}


def cancel(transaction: Transaction, refs: Sequence[Ref], signed: str | None) -> list[Canceled]:
    transaction.signed = signed
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


def candidates(connection: sqlite3.Connection, change: Change, now: Micros) -> list[int]:
    """The jobs that a step is about, and one more if there are more. Looked for where a search
    holds up nobody, since all writes wait for the one who changes.
    """
    condition, values = where(change.select, now)
    found = connection.execute(
        f"SELECT seq FROM jobs WHERE {condition} AND {_POSSIBLE[change.act]} AND seq > ?"
        " ORDER BY seq LIMIT ?",
        (*values, change.after, change.limit + 1),
    ).fetchall()
    return [seq for (seq,) in found]


def change(transaction: Transaction, change: Change, seqs: list[int]) -> Changed:
    """Changes those of the candidates that are still what was asked for."""
    transaction.signed = None if change.by is None else change.by.words
    condition, values = where(change.select, transaction.now)
    step, more = seqs[: change.limit], len(seqs) > change.limit
    found = transaction.execute(
        f"SELECT {sql.ROW} FROM jobs WHERE jobs.seq IN (SELECT value FROM json_each(?))"
        f" AND {condition} AND {_POSSIBLE[change.act]} ORDER BY seq",
        (_encode(step).decode(), *values),
    ).fetchall()
    rows = [Row(one) for one in found]
    caps = Caps(transaction, len(rows))
    done: dict[Ref, str] = {}
    for row in rows:
        outcome = _change(transaction, change, row, caps)
        if outcome is not None:
            done[Ref(row.tenant, row.id)] = outcome
    reached = step[-1] if step else change.after
    return Changed(done, reached if more else None)


def _change(transaction: Transaction, change: Change, row: Row, caps: Caps) -> str | None:
    """The id of the job that came of it; None when its tenant is full."""
    now = transaction.now
    transaction.lines.add((row.tenant, row.queue))
    if change.act is Act.REPLAY:
        return _replay(transaction, row, caps)
    if change.act is Act.DELETE:
        remove(transaction, row)
        release_key(transaction, row)
        note(transaction, EventKind.DELETED, row)
        return row.id
    if change.act is Act.REPRIORITISE:
        row.priority = change.priority
    else:
        row.run_at = change.run_at if change.run_at is not None else now + change.delay_us
        row.state = State.SCHEDULED if row.run_at > now else State.ENQUEUED
    save(transaction, row)
    note(transaction, EventKind.CHANGED, row, row.run_at, change.act.value)
    return row.id


def _replay(transaction: Transaction, row: Row, caps: Caps) -> str | None:
    now, id = transaction.now, replay_id(row.tenant, row.id)
    capped = caps.capped(row.tenant)
    if capped and caps.no_room(row.tenant, row.size) is not None:
        known = transaction.execute(sql.NAMED, (row.tenant, id)).fetchone()
        if known is None:
            return None
    gated = transaction.rules.gated(row.tenant, row.group, row.queue)
    transaction.seq += 1
    # The payload is copied inside the database and never travels.
    copied = transaction.execute(
        sql.REPLAY, (transaction.seq, id, now, now, now, now, int(gated), row.seq)
    ).rowcount
    if copied:
        transaction.execute(sql.REPLAY_BODY, (transaction.seq, row.seq))
        place = BLOCKED if gated else "enqueued"
        transaction.move((row.tenant, row.queue, row.group), None, place, 1, row.size)
        if capped:
            caps.add(row.tenant, row.size)
        transaction.note(EventKind.ENQUEUED, (row.tenant, id, row.queue, row.type), 0, 0)
    else:
        transaction.seq -= 1
    transaction.execute(sql.REPLAYED, (id, row.seq))
    note(transaction, EventKind.REPLAYED, row, text=id)
    return id
