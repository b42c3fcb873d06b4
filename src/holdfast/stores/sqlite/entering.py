"""Plain new jobs, nearly every enqueue: written a batch at a time."""

from __future__ import annotations

from itertools import compress
from typing import Any

from holdfast.job import EventKind, NewJob
from holdfast.stores.sql_rows import rules_text, size_of
from holdfast.stores.sqlite import chunks
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.rows import is_large
from holdfast.stores.sqlite.transaction import Transaction


class Entering:
    """The jobs of one call that nothing needs to be asked about but whether their ids are new."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._jobs: list[NewJob] = []

    def take(self, job: NewJob) -> None:
        """The job is written by the next `flush`."""
        self._jobs.append(job)

    def flush(self) -> list[tuple[NewJob, bool]]:
        """Writes what was taken; says of each whether its id was new."""
        jobs, self._jobs = self._jobs, []
        if not jobs:
            return []
        transaction = self._transaction
        rows = [self._row(job) for job in jobs]
        written = chunks.insert(
            transaction.connection, sql.PLAIN_INSERT, sql.PLAIN_MARKS, rows, sql.PLAIN_END
        )
        created = [True] * len(jobs)
        if written < len(rows):
            found = set(transaction.execute(sql.SEQS_FROM, (rows[0][0],)).fetchall())
            created = [(row[0],) in found for row in rows]
        self._count(jobs, rows, created)
        return list(zip(jobs, created, strict=True))

    def _row(self, job: NewJob) -> tuple[Any, ...]:
        transaction, envelope, rules = self._transaction, job.envelope, job.rules
        now, body = transaction.now, envelope.body
        run_at = job.run_at if job.run_at is not None else now + job.delay_us
        transaction.seq += 1
        return (
            transaction.seq,
            job.tenant,
            job.id,
            job.queue,
            envelope.type,
            envelope.codec,
            envelope.version,
            "scheduled" if run_at > now else "enqueued",
            job.priority,
            run_at,
            rules.max_attempts,
            now,
            now,
            rules.keep_us,
            rules_text(rules),
            # The driver looks for an adapter of bytes and of None each time: 0.4 us a value.
            bytearray(body) if type(body) is bytes else body,
            size_of(body),
        )

    def _count(self, jobs: list[NewJob], rows: list[tuple[Any, ...]], created: list[bool]) -> None:
        transaction = self._transaction
        now = transaction.now
        moves: dict[tuple[str, str, str], tuple[int, int]] = {}
        for job, row in zip(compress(jobs, created), compress(rows, created), strict=True):
            place, run_at, size = row[7], row[9], row[16]
            way = job.tenant, job.queue, place
            number, total = moves.get(way, (0, 0))
            moves[way] = number + 1, total + size
            name = (job.tenant, job.id, job.queue, job.envelope.type)
            until = run_at if run_at > now else None
            transaction.note(EventKind.ENQUEUED, name, 0, 0, until=until)
        for (tenant, queue, place), (number, total) in moves.items():
            transaction.move((tenant, queue, None), None, place, number, total)
            transaction.lines.add((tenant, queue))


def is_plain(job: NewJob) -> bool:
    """True for a job that has none of what only some have."""
    return (
        job.key is None
        and job.group is None
        and job.ttl_us is None
        and job.origin is None
        and not job.tags
        and not is_large(job.envelope.body)
    )
