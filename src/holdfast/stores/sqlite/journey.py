"""How jobs come in, are extended and settled. What claims take is in `claims.py`."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import IdConflict, JobNotFound
from holdfast.job import TERMINAL, EventKind, NewJob, State
from holdfast.lifecycle import Transition, apply, refusal, why
from holdfast.store import Acked, Enqueued, Extended, Extension, Ref
from holdfast.stores.sql_rows import BLOCKED, STATES, size_of
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.caps import Caps
from holdfast.stores.sqlite.completing import Completing
from holdfast.stores.sqlite.entering import Entering, is_plain
from holdfast.stores.sqlite.layout import INLINE_MAX
from holdfast.stores.sqlite.rows import Row, is_large, new_row, plain
from holdfast.stores.sqlite.transaction import Transaction

ENDS = frozenset({EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED, EventKind.DELETED})
ENDED = frozenset(state.value for state in TERMINAL)


def enqueue(transaction: Transaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    caps, entering = Caps(transaction, len(jobs)), Entering(transaction)
    answers: list[Enqueued] = []
    for job in jobs:
        if is_plain(job) and not caps.concern(job.tenant):
            entering.take(job)
        else:
            answers += _entered(transaction, entering)  # Each job sees those before it.
            answers.append(_enqueue(transaction, job, caps))
    return answers + _entered(transaction, entering)


def _entered(transaction: Transaction, entering: Entering) -> list[Enqueued]:
    return [
        Enqueued(job.id, True) if created else _earlier(transaction, job)
        for job, created in entering.flush()
    ]


def _enqueue(transaction: Transaction, job: NewJob, caps: Caps) -> Enqueued:
    now, type, size = transaction.now, job.envelope.type, size_of(job.envelope.body)
    capped = caps.concern(job.tenant)
    if (capped or job.key is not None) and _known(transaction, job) is not None:
        return _earlier(transaction, job)
    if job.key is not None and (holder := _key_holder(transaction, job)) is not None:
        return Enqueued(holder, False)
    if capped and (full := caps.refusal(job)) is not None:
        return Enqueued(job.id, False, full)
    run_at = job.run_at if job.run_at is not None else now + job.delay_us
    place, gate = "scheduled" if run_at > now else "enqueued", 0
    if place == "enqueued" and transaction.rules.gated(job.tenant, job.group, job.queue):
        place, gate = BLOCKED, 1
    transaction.seq += 1
    row = new_row(job, transaction.seq, run_at, now, gate)
    if not transaction.execute(sql.INSERT, row).rowcount:
        transaction.seq -= 1
        return _earlier(transaction, job)
    if is_large(job.envelope.body):
        transaction.execute(sql.BODY_INSERT, (transaction.seq, job.envelope.body))
    if job.key is not None:
        until = None if job.rules.key_us is None else now + job.rules.key_us
        transaction.execute(sql.KEY_TAKE, (job.tenant, job.queue, type, job.key, job.id, until))
    transaction.move((job.tenant, job.queue, job.group), None, place, 1, size)
    if capped:
        caps.add(job.tenant, size)
    transaction.lines.add((job.tenant, job.queue))
    name = (job.tenant, job.id, job.queue, type)
    transaction.note(EventKind.ENQUEUED, name, 0, 0, until=run_at if run_at > now else None)
    return Enqueued(job.id, True)


def _known(transaction: Transaction, job: NewJob) -> tuple[str, str] | None:
    """The queue and the type of the job that has this id already."""
    found: tuple[str, str] | None
    found = transaction.execute(sql.NAMED, (job.tenant, job.id)).fetchone()
    return found


def _earlier(transaction: Transaction, job: NewJob) -> Enqueued:
    """The answer for an id that is known already."""
    known = _known(transaction, job)
    queue, type = known or (job.queue, job.envelope.type)
    if (type, queue) != (job.envelope.type, job.queue):
        return Enqueued(job.id, False, IdConflict(field="id", id=job.id, type=type, queue=queue))
    return Enqueued(job.id, False)


def _key_holder(transaction: Transaction, job: NewJob) -> str | None:
    key = (job.tenant, job.queue, job.envelope.type, job.key)
    found = transaction.execute(sql.KEY_HOLDER, key).fetchone()
    if found is None:
        return None
    id: str
    id, until, state = found
    alive = state is not None and STATES[state] not in TERMINAL
    return id if alive or (until is not None and until > transaction.now) else None


def extend(transaction: Transaction, extensions: Sequence[Extension]) -> list[Extended]:
    return [_extend(transaction, extension) for extension in extensions]


def _extend(transaction: Transaction, extension: Extension) -> Extended:
    now = transaction.now
    row = look(transaction, extension.tenant, extension.id)
    refused = JobNotFound if row is None else refusal(row, extension.token, now)
    if row is None or refused is not None:
        return Extended(extension.id, error=(refused or JobNotFound)(id=extension.id))
    assert row.lease_until is not None
    row.lease_until = max(row.lease_until, now + extension.lease_us)
    if extension.progress is not None:
        row.progress = extension.progress
    transaction.execute(sql.SAVE, row.saved(now))
    note(transaction, EventKind.EXTENDED, row, row.lease_until)
    return Extended(extension.id, row.lease_until)


def ack(transaction: Transaction, transitions: Sequence[Transition]) -> list[Acked]:
    completing = Completing(transaction, transitions)
    acked: list[Acked] = []
    for change in transitions:
        if completing.take(change):
            acked.append(Acked(change.id, State.COMPLETED))
        else:
            completing.flush()  # Each transition sees what those before it did.
            acked.append(_ack(transaction, change))
    completing.flush()
    return acked


def _ack(transaction: Transaction, change: Transition) -> Acked:
    now = transaction.now
    row = look(transaction, change.tenant, change.id)
    refused = None if row is None else refusal(row, change.token, now, change.lapsed)
    if row is None or refused is not None:
        return Acked(change.id, error=(refused or JobNotFound)(id=change.id))
    settled = apply(row, change, now)
    if row.state in TERMINAL:
        finish(transaction, row)
        transaction.ended.append(Ref(change.tenant, change.id))
    else:
        save(transaction, row)
        transaction.lines.add((row.tenant, row.queue))
    until = settled.run_at if settled.run_at is not None and settled.run_at > now else None
    note(transaction, settled.kind, row, until, why(row))
    return Acked(change.id, row.state)


# -- shared with the other acts --------------------------------------------------------------------


def look(transaction: Transaction, tenant: str, id: str) -> Row | None:
    found = transaction.execute(sql.LOOK, (tenant, id)).fetchone()
    return None if found is None else Row(found)


def finish(transaction: Transaction, row: Row) -> None:
    """Ends a job: its key is free, its record stays for its keeping, or goes at once."""
    now = transaction.now
    row.finished_at = now
    release_key(transaction, row)
    if row.keep_until() <= now:
        remove(transaction, row)
    else:
        save(transaction, row)


def save(transaction: Transaction, row: Row) -> None:
    """Writes a job that may have changed its place, and counts it there."""
    gated = row.state is State.ENQUEUED and transaction.rules.gated(
        row.tenant, row.group, row.queue
    )
    row.gate = int(gated)
    transaction.execute(sql.SAVE, row.saved(transaction.now))
    if gated and row.group is not None:
        transaction.groups.add((row.tenant, row.group))  # Its rank may be a new one.
    size = -row.size if row.state in TERMINAL else 0
    transaction.move((row.tenant, row.queue, row.group), row.was, row.place, 1, size)


def remove(transaction: Transaction, row: Row) -> None:
    transaction.execute(sql.REMOVE, (row.seq,))
    if row.size > INLINE_MAX:
        transaction.execute(sql.BODY_REMOVE, (row.seq,))
    size = 0 if row.was in ENDED else -row.size
    transaction.move((row.tenant, row.queue, row.group), row.was, None, 1, size)


def release_key(transaction: Transaction, row: Row) -> None:
    """Frees the key of a job that ends or goes; a timed one stays until its time."""
    if row.key is not None:
        key = (row.tenant, row.queue, row.type, row.key)
        transaction.execute(sql.KEY_RELEASE, (*key, row.id, transaction.now))


def note(
    transaction: Transaction,
    kind: EventKind,
    row: Row,
    until: int | None = None,
    text: str | None = None,
) -> None:
    name = (row.tenant, row.id, row.queue, row.type)
    transaction.note(kind, name, row.attempt, row.fence, until=until, text=plain(text))
    lived = row.was not in ENDED
    if kind in ENDS and lived and transaction.drained(row.tenant, row.group):
        transaction.note(EventKind.DRAINED, name, row.attempt, row.fence, text=row.group)
