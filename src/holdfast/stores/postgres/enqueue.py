"""Enqueue: one function of the server for any jobs, from any connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.errors import (
    QUEUE_FULL_RETRY_S,
    HoldfastError,
    IdConflict,
    QueueFull,
    TenantFull,
)
from holdfast.core.job import NewJob, edge_bytes
from holdfast.store import Enqueued
from holdfast.stores.notifier import Line
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres import using
from holdfast.stores.postgres.bloom import Seen
from holdfast.stores.postgres.errors import cannot_be_stored, is_bad_value
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.rows import TAGS_BETWEEN, column
from holdfast.stores.postgres.step import Step
from holdfast.stores.sql_rows import Columns, rules_text
from holdfast.stores.whole import stands, undone

CODEC, VERSION = "json", 1
"""What the server's function assumes of payloads when it is not told."""

HINT_MAX = 7900
"""Bytes that a notification can carry."""


def hint(sender: str, lines: set[Line]) -> str:
    """What other processes are notified of: these lines, or that anything may have come up."""
    text = msgspec.json.encode([sender, sorted(lines)]).decode()
    return text if len(text.encode()) <= HINT_MAX else "*"


async def enqueue_jobs(
    step: Step, jobs: Sequence[NewJob], seen: Seen | None = None, *, whole: bool = False
) -> list[Enqueued]:
    """With `seen`: keys that were certainly not seen here are inserted without a look-up before."""
    lines = {(job.tenant, job.queue) for job in jobs}
    found = await step.rows(
        sql.ENQUEUE_WHOLE if whole else sql.ENQUEUE,
        *_columns(jobs),
        step.given,
        step.events_on,
        step.channel,
        None if step.channel is None else hint(step.sender, lines),
        not step.again and all(job.fresh for job in jobs),
        seen is not None and seen.none_of(jobs),
        *_of_flows(jobs),
    )
    made = answers(jobs, found)
    if whole and found and not stands(jobs, made):
        return undone(made)
    step.lines |= lines
    if seen is not None:
        seen.add(job for job, answer in zip(jobs, made, strict=True) if answer.error is None)
    return made


async def refuse_whole(step: Step, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """The answers to a whole call with a value that the server cannot hold: to the job that has it,
    and to the others. Stores nothing.
    """
    transaction = step.connection.transaction()
    await transaction.start()
    answers = await _by_halves(step, jobs)
    await transaction.rollback()
    return undone(answers)


async def _by_halves(step: Step, jobs: Sequence[NewJob]) -> list[Enqueued]:
    try:
        async with step.connection.transaction():
            return await enqueue_jobs(step, jobs)
    except Exception as error:
        if not is_bad_value(error):
            raise
        if len(jobs) == 1:
            return [Enqueued(jobs[0].id, False, cannot_be_stored(error))]
    half = len(jobs) // 2
    return [*await _by_halves(step, jobs[:half]), *await _by_halves(step, jobs[half:])]


def _columns(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """The jobs as the arrays of their columns; None for a column that no job has a value for."""
    return (
        [job.tenant for job in jobs],
        [job.id for job in jobs],
        [job.queue for job in jobs],
        [job.envelope.type for job in jobs],
        column([job.envelope.codec for job in jobs], CODEC),
        column([job.envelope.version for job in jobs], VERSION),
        [job.envelope.body for job in jobs],
        [rules_text(job.rules) for job in jobs],
        column([job.priority for job in jobs], 0),
        column([job.delay_us for job in jobs], 0),
        column([job.run_at for job in jobs]),
        column([job.ttl_us for job in jobs]),
        column([job.key for job in jobs]),
        column([job.rules.key_us for job in jobs]),
        column([job.group for job in jobs]),
        column([TAGS_BETWEEN.join(job.tags) if job.tags else None for job in jobs]),
        column([job.origin for job in jobs]),
        [job.rules.max_attempts for job in jobs],
        [job.rules.keep_us for job in jobs],
    )


def _of_flows(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """What jobs with parents or edges have besides, as the arrays of these columns."""
    return (
        column([job.parents for job in jobs], 0),
        column([job.ends_with_parents for job in jobs], False),
        column([using.edges_text(job) for job in jobs]),
        column([edge_bytes(job) for job in jobs], 0),
    )


async def enqueue_using(
    connection: Any, options: Options, now: Micros | None, jobs: Sequence[NewJob]
) -> list[Enqueued]:
    """On a connection of the caller. The hint has no sender, so that this process is notified as
    well when the transaction commits.
    """
    words = hint("", {(job.tenant, job.queue) for job in jobs}) if options.notify else None
    return answers(jobs, await using.enqueue(connection, options, now, jobs, words))


def answers(jobs: Sequence[NewJob], found: Sequence[Columns]) -> list[Enqueued]:
    """All jobs were created except those that the rows name."""
    made = [Enqueued(job.id, True) for job in jobs]
    for ord, *answer in found:
        made[ord - 1] = _not_made(jobs[ord - 1], answer)
    return made


def _not_made(job: NewJob, answer: Columns) -> Enqueued:
    """A row of the type `answer`."""
    word, id, queue, type, has, most = answer
    error: HoldfastError | None = None
    if word == "conflict":
        error = IdConflict(field="id", id=job.id, type=type, queue=queue)
    elif word == "many":
        error = TenantFull(tenant=job.tenant, what=queue, max=most)
    elif word == "full":
        retry = QUEUE_FULL_RETRY_S
        error = QueueFull(tenant=job.tenant, what=queue, queued=has, max=most, retry_after_s=retry)
    return Enqueued(id, False, error)
