"""Enqueue: accepts each job or answers for it, then writes all new jobs of the call together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

from holdfast.core.errors import IdConflict
from holdfast.core.job import TERMINAL, EventKind, NewJob
from holdfast.store import Enqueued
from holdfast.stores.sql_rows import BLOCKED, STATES
from holdfast.stores.sqlite import journal_statements as journal_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import insert_rows
from holdfast.stores.sqlite.journal import edges_text
from holdfast.stores.sqlite.layout import EDGES_OF_ROW
from holdfast.stores.sqlite.limits_caps import Caps
from holdfast.stores.sqlite.rows import in_flow, is_large, new_row
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.whole import stands

Key = tuple[str, str, str, str | None]
"""(tenant, queue, type, idempotency key)"""


class Incomplete(Exception):
    """A call for all or none has created only some of its jobs. The writer undoes what a call has
    done that raises.
    """

    def __init__(self, answers: list[Enqueued]) -> None:
        self.answers = answers


def enqueue_jobs(
    transaction: Transaction, jobs: Sequence[NewJob], *, whole: bool = False
) -> list[Enqueued]:
    """Stores the jobs whose ids and keys are new, except those that a cap of their tenant refuses.
    Raises Incomplete if these are not all of a `whole` call.

    Each job sees the jobs before it in the same call.
    """
    batch = _Batch(transaction, len(jobs))
    accepted = [batch.accept(job) for job in jobs]
    created = iter(batch.insert())
    answers = [
        answer if answer is not None else _answer(transaction, job, next(created))
        for job, answer in zip(jobs, accepted, strict=True)
    ]
    if whole and not stands(jobs, answers):
        raise Incomplete(answers)
    return answers


def _answer(transaction: Transaction, job: NewJob, created: bool) -> Enqueued:
    if created:
        return Enqueued(job.id, True)
    queue, type = transaction.execute(sql.QUEUE_AND_TYPE, (job.tenant, job.id)).fetchone()
    return _existing(job, queue, type)


def _existing(job: NewJob, queue: str, type: str) -> Enqueued:
    """The answer for an id that a job of this queue and type has already."""
    if (type, queue) != (job.envelope.type, job.queue):
        return Enqueued(job.id, False, IdConflict(field="id", id=job.id, type=type, queue=queue))
    return Enqueued(job.id, False)


def _key_of(job: NewJob) -> Key:
    return job.tenant, job.queue, job.envelope.type, job.key


class _Batch:
    """The new jobs of one call."""

    def __init__(self, transaction: Transaction, jobs_max: int) -> None:
        self._transaction = transaction
        self._caps = Caps(transaction, jobs_max)
        self._jobs: list[NewJob] = []
        self._by_id: dict[tuple[str, str], NewJob] = {}
        self._indexed = 0
        """How many of the jobs are in `_by_id`."""
        self._keys: dict[Key, str] = {}
        self._in_flow = False
        """Whether any of the jobs has edges or parents."""

    def accept(self, job: NewJob) -> Enqueued | None:
        """None when `insert` shall write the job; otherwise the answer to it.

        Where neither a key nor a cap is in question, the insert itself finds out whether the id is
        new.
        """
        capped = self._caps.concern(job.tenant)
        if capped or job.key is not None:
            answer = self._same_id(job) or self._same_key(job)
            if answer is not None:
                return answer
            if capped and (full := self._caps.refusal(job)) is not None:
                return Enqueued(job.id, False, full)
            self._caps.add(job)
        if job.key is not None:
            self._keys[_key_of(job)] = job.id
        self._in_flow = self._in_flow or bool(job.edges) or job.parents > 0
        self._jobs.append(job)
        return None

    def _same_id(self, job: NewJob) -> Enqueued | None:
        found = self._transaction.execute(sql.QUEUE_AND_TYPE, (job.tenant, job.id)).fetchone()
        if found is not None:
            return _existing(job, *found)
        for one in self._jobs[self._indexed :]:
            self._by_id.setdefault((one.tenant, one.id), one)
        self._indexed = len(self._jobs)
        earlier = self._by_id.get((job.tenant, job.id))
        return None if earlier is None else _existing(job, earlier.queue, earlier.envelope.type)

    def _same_key(self, job: NewJob) -> Enqueued | None:
        """The answer that names the job which holds the key; None when the key is free."""
        if job.key is None:
            return None
        key = _key_of(job)
        if key in self._keys:
            return Enqueued(self._keys[key], False)
        found = self._transaction.execute(sql.KEY_HOLDER, key).fetchone()
        if found is None:
            return None
        id, until, state = found
        alive = state is not None and STATES[state] not in TERMINAL
        held = alive or (until is not None and until > self._transaction.now)
        return Enqueued(id, False) if held else None

    def insert(self) -> list[bool]:
        """Writes the accepted jobs; says of each whether it is new."""
        transaction, jobs = self._transaction, self._jobs
        if not jobs:
            return []
        rows = [self._row(job, seq) for seq, job in enumerate(jobs, transaction.seq + 1)]
        transaction.seq += len(rows)
        statement = sql.INSERT
        if self._in_flow:
            statement = sql.INSERT_IN_FLOW
            rows = [(*row, *in_flow(job)) for row, job in zip(rows, jobs, strict=True)]
        written = insert_rows(transaction.connection, statement, rows)
        created = [True] * len(rows)
        new = list(zip(jobs, rows, strict=True))
        if written < len(rows):
            found = {seq for (seq,) in transaction.execute(sql.SEQS_FROM, (rows[0][0],))}
            created = [row[0] in found for row in rows]
            new = list(compress(new, created))
        self._insert_beside(new)
        self._count(new)
        return created

    def _row(self, job: NewJob, seq: int) -> tuple[Any, ...]:
        now = self._transaction.now
        run_at = job.run_at if job.run_at is not None else now + job.delay_us
        gated = (
            job.group is not None
            and run_at <= now
            and not job.parents
            and self._transaction.scope_cache.gated(job.tenant, job.group, job.queue)
        )
        return new_row(job, seq, run_at, now, int(gated))

    def _insert_beside(self, new: list[tuple[NewJob, tuple[Any, ...]]]) -> None:
        """Writes what some jobs have in other tables: large payloads, edges and keys."""
        connection, now = self._transaction.connection, self._transaction.now
        # Their rows have no payload.
        large = [(row[0], job.envelope.body) for job, row in new if row[20] is None]
        large = [(seq, body) for seq, body in large if is_large(body)]
        if large:
            connection.executemany(sql.BODY_INSERT, large)
        if self._in_flow:
            edges = [
                (row[0], start, edges_text(job.edges[start : start + EDGES_OF_ROW]))
                for job, row in new
                for start in range(0, len(job.edges), EDGES_OF_ROW)
            ]
            insert_rows(connection, journal_sql.EDGES_INSERT, edges)
        if self._keys:
            keys = [
                (
                    *_key_of(job),
                    job.id,
                    None if job.rules.key_us is None else now + job.rules.key_us,
                )
                for job, _ in new
                if job.key is not None
            ]
            connection.executemany(sql.KEY_TAKE, keys)

    def _count(self, new: list[tuple[NewJob, tuple[Any, ...]]]) -> None:
        """Counts and records the new jobs, and names the lines whose sleepers shall wake."""
        transaction = self._transaction
        now = transaction.now
        alike: dict[tuple[Any, ...], tuple[list[str], list[int]]] = {}
        for job, row in new:
            run_at = row[9]
            place = BLOCKED if row[22] else row[7]
            until = run_at if run_at > now else None
            kind = (job.tenant, job.queue, job.group, job.envelope.type, place, until)
            ids, sizes = alike.setdefault(kind, ([], []))
            ids.append(job.id)
            sizes.append(row[21])
        for (tenant, queue, group, type, place, until), (ids, sizes) in alike.items():
            size = sum(sizes)
            transaction.count_move((tenant, queue, group), None, place, len(ids), size)
            transaction.ready_lines.add((tenant, queue))
            of = (tenant, queue, type)
            transaction.record_events(EventKind.ENQUEUED, of, ids, 0, 0, until=until)
