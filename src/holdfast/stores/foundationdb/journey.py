"""How jobs come in, are extended and settled. What claims take is in `claims.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.clock import Micros
from holdfast.errors import IdConflict, JobNotFound, QueueFull
from holdfast.job import TERMINAL, EventKind, NewJob
from holdfast.lifecycle import Transition, apply, refusal, why
from holdfast.scope import Scope
from holdfast.store import Acked, Enqueued, Extended, Extension, Ref
from holdfast.stores.foundationdb import gates, places, shares
from holdfast.stores.foundationdb.layout import (
    STEP_BYTES_MAX,
    Space,
    text,
    whole,
)
from holdfast.stores.foundationdb.rows import Row, new_row, pack, plain
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import BYTES, STATES, Step
from holdfast.stores.sql_rows import size_of

RETRY_AFTER_S = 1.0
"""When a full tenant may try again."""
ROW_BYTES = 1000
"""What a job costs besides its payload, about."""

_held_key = msgspec.msgpack.Decoder(tuple[str, int | None])


def batches(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The jobs in runs that one transaction can take."""
    start = size = 0
    for place, job in enumerate(jobs):
        more = ROW_BYTES + size_of(job.envelope.body)
        if place > start and size + more > STEP_BYTES_MAX:
            yield jobs[start:place]
            start, size = place, 0
        size += more
    if jobs:
        yield jobs[start:]


# -- enqueue ---------------------------------------------------------------------------------------


def ask_enqueue(step: Step, jobs: Sequence[NewJob], *, believe: bool = True) -> None:
    """Asks for what `enqueue` will need, as far as that is known without an answer."""
    places.ask(step, (job.tenant for job in jobs))
    shares.ask(step, jobs)
    step.ask_last()
    step.ask_rows(_doubted(jobs, believe))
    step.ask(_holder_key(step, job) for job in jobs if job.key is not None)


def _doubted(jobs: Sequence[NewJob], believe: bool) -> list[tuple[str, str]]:
    """The names of jobs that may be there already."""
    return [(job.tenant, job.id) for job in jobs if not (believe and job.fresh)]


async def enqueue(
    step: Step, known: Known, jobs: Sequence[NewJob], *, believe: bool = True
) -> list[Enqueued]:
    """`believe`: that the ids are new which say so; not where this may be a second try."""
    if not jobs:
        return []
    await places.learn(step, known, (job.tenant for job in jobs))
    await step.rows(_doubted(jobs, believe))  # All at once; each is asked for again below.
    await _ask_rest(step, jobs)
    await step.number(len(jobs))
    answers = [await _enqueue(step, job, believe) for job in jobs]
    await gates.open_up(step)
    return answers


async def _ask_rest(step: Step, jobs: Sequence[NewJob]) -> None:
    """Asks for the jobs that hold keys now, and for the counts of tenants with a cap."""
    keyed = [job for job in jobs if job.key is not None]
    found = await step.get_many([_holder_key(step, job) for job in keyed], snapshot=True)
    step.ask_rows(
        (job.tenant, held_key(value)[0])
        for job, value in zip(keyed, found, strict=True)
        if value is not None
    )
    for tenant in {job.tenant for job in jobs}:
        if _capped(step, tenant):
            step.ask(_cap_keys(step, tenant))


async def _enqueue(step: Step, job: NewJob, believe: bool) -> Enqueued:
    if not (believe and job.fresh):
        earlier = await step.row(job.tenant, job.id)
        if earlier is not None:
            return _earlier(job, earlier)
    if job.key is not None and (holder := await key_holder(step, job)) is not None:
        return Enqueued(holder, False)
    refused = await shares.over(step, job.tenant, job.queue, job.group) or await full(
        step, job.tenant, size_of(job.envelope.body)
    )
    if refused is not None:
        return Enqueued(job.id, False, refused)
    await enter(step, new_row(job, step.now), job.envelope.body, job.rules.key_us)
    return Enqueued(job.id, True)


def _earlier(job: NewJob, row: Row) -> Enqueued:
    """The answer for an id that is known already."""
    if (row.type, row.queue) != (job.envelope.type, job.queue):
        clash = IdConflict(field="id", id=job.id, type=row.type, queue=row.queue)
        return Enqueued(job.id, False, clash)
    return Enqueued(job.id, False)


async def enter(step: Step, row: Row, body: bytes, key_us: Micros | None) -> None:
    """Writes a new job."""
    now = step.now
    await shares.name(step, row.tenant, row.queue, row.group)
    gates.gate(step, row)
    step.insert(row, body)
    if row.key is not None:
        until = None if key_us is None else now + key_us
        step.put(name_key(step, row), pack((row.id, until)))
        if until is not None:
            step.put(ends_key(step, row, until), b"")
    step.note(EventKind.ENQUEUED, row, row.run_at if row.run_at > now else None)


async def full(step: Step, tenant: str, size: int) -> QueueFull | None:
    """Why the tenant may not have this job waiting too; None when it may."""
    if not _capped(step, tenant):
        return None
    rules = step.rules.tenant(tenant)
    bytes_, *alive = _cap_keys(step, tenant)
    has = sum([await step.counted(key) for key in alive])
    held = await step.counted(bytes_)
    for what, number, more, most in (
        ("jobs", has, 1, rules.max_queued),
        ("bytes", held, size, rules.max_bytes),
    ):
        if most is not None and number + more > most:
            return QueueFull(
                tenant=tenant, what=what, queued=number, max=most, retry_after_s=RETRY_AFTER_S
            )
    # Of two that take the last place one must fail; who ends a job only makes room.
    step.contend(step.keys.scope(Space.GATES, Scope(tenant)) + b"\x01")
    return None


def _capped(step: Step, tenant: str) -> bool:
    rules = step.rules.tenant(tenant)
    return rules.max_queued is not None or rules.max_bytes is not None


def _cap_keys(step: Step, tenant: str) -> list[bytes]:
    """The counters of what waits: its bytes, then its jobs by state."""
    prefix = step.keys.scope(Space.COUNTS, Scope(tenant))
    alive = [place for state, place in STATES.items() if state not in TERMINAL]
    return [prefix + what for what in (BYTES, *alive)]


# -- keys ------------------------------------------------------------------------------------------


def name_key(step: Step, job: Row) -> bytes:
    assert job.key is not None
    return step.keys.own(job.tenant, Space.NAMES, text(job.queue), text(job.type), text(job.key))


def ends_key(step: Step, job: Row, until: Micros) -> bytes:
    assert job.key is not None
    parts = (text(job.tenant), text(job.queue), text(job.type), text(job.key))
    return step.keys.all(Space.KEY_ENDS, whole(until), *parts)


def held_key(value: bytes) -> tuple[str, Micros | None]:
    """The id of the job that a key stands for, and until when at least."""
    return _held_key.decode(value)


def _holder_key(step: Step, job: NewJob) -> bytes:
    assert job.key is not None
    parts = (text(job.queue), text(job.envelope.type), text(job.key))
    return step.keys.own(job.tenant, Space.NAMES, *parts)


async def key_holder(step: Step, job: NewJob) -> str | None:
    """The job that the key stands for now."""
    found = await step.get(_holder_key(step, job))
    if found is None:
        return None
    id, until = held_key(found)
    row = await step.row(job.tenant, id)
    # The id may have been pruned and used again, for a job without this key.
    same = row is not None and (row.queue, row.type, row.key) == (
        job.queue,
        job.envelope.type,
        job.key,
    )
    if row is not None and same and row.alive:
        return id
    return id if until is not None and until > step.now else None


async def release_key(step: Step, row: Row) -> None:
    """Frees the key of a job that ends or goes; a timed one stays until its time."""
    if row.key is None:
        return
    key = name_key(step, row)
    found = await step.get(key)
    if found is None:
        return
    id, until = held_key(found)
    if id == row.id and (until or 0) <= step.now:
        step.drop(key)
        if until is not None:
            step.drop(ends_key(step, row, until))


# -- extend ----------------------------------------------------------------------------------------


async def extend(step: Step, extensions: Sequence[Extension]) -> list[Extended]:
    await step.rows([(each.tenant, each.id) for each in extensions])
    return [await _extend(step, each) for each in extensions]


async def _extend(step: Step, extension: Extension) -> Extended:
    row = await step.row(extension.tenant, extension.id)
    if row is None:
        return Extended(extension.id, error=JobNotFound(id=extension.id))
    refused = refusal(row, extension.token, row.judged(step.at))
    if refused is not None:
        return Extended(extension.id, error=refused(id=extension.id))
    assert row.lease_until is not None
    row.lease_until = max(row.lease_until, step.now + extension.lease_us)
    deadline = step.at.deadline(extension.lease_us)
    if deadline > row.held_at or step.at.ahead(row.held_at, row.lease_us):
        row.held_at, row.lease_us = deadline, extension.lease_us
    row.updated_at = step.now
    if extension.progress is not None:
        row.progress = plain(extension.progress)
    step.save(row)
    step.note(EventKind.EXTENDED, row, row.lease_until)
    return Extended(extension.id, row.lease_until)


# -- ack -------------------------------------------------------------------------------------------


def ask_acts(step: Step, named: Sequence[Transition | Ref]) -> None:
    """Asks for what an act on these jobs will need."""
    places.ask(step, (each.tenant for each in named))
    step.ask_rows((each.tenant, each.id) for each in named)


async def meet(step: Step, known: Known, named: Sequence[Transition | Ref]) -> None:
    """Reads the jobs of an act, and asks for the keys that they hold."""
    await places.learn(step, known, (each.tenant for each in named))
    rows = await step.rows([(each.tenant, each.id) for each in named])
    step.ask(name_key(step, row) for row in rows if row is not None and row.key is not None)


async def ack(step: Step, known: Known, transitions: Sequence[Transition]) -> list[Acked]:
    await meet(step, known, transitions)
    acked = [await _ack(step, each) for each in transitions]
    await gates.open_up(step)
    return acked


async def _ack(step: Step, change: Transition) -> Acked:
    row = await step.row(change.tenant, change.id)
    if row is None:
        return Acked(change.id, error=JobNotFound(id=change.id))
    refused = refusal(row, change.token, row.judged(step.at), change.lapsed)
    if refused is not None:
        return Acked(change.id, error=refused(id=change.id))
    now = step.now
    settled = apply(row, change, now)
    row.error = plain(row.error)
    row.updated_at = now
    if row.state in TERMINAL:
        await finish(step, row)
    else:
        await stand(step, row)
    until = settled.run_at if settled.run_at is not None and settled.run_at > now else None
    step.note(settled.kind, row, until, why(row))
    return Acked(change.id, row.state)


async def stand(step: Step, row: Row) -> None:
    """Writes a job that waits again."""
    row.late = row.expires_at is not None and row.expires_at <= step.now and row.late
    gates.gate(step, row)
    step.save(row)
    freed(step, row)


async def finish(step: Step, row: Row) -> None:
    """Ends a job: its key is free, its record stays for its keeping, or goes at once."""
    row.finished_at = step.now
    row.gate, row.granted, row.late = 0, False, False
    await release_key(step, row)
    step.ended.append(Ref(row.tenant, row.id))
    if row.keep_until() <= step.now:
        step.remove(row)
    else:
        step.save(row)
    freed(step, row)


def freed(step: Step, row: Row) -> None:
    """A place of the job's scopes may be free: who waits for it is told."""
    if step.rules.ruled(row.tenant):
        step.lines.add((row.tenant, row.queue))


async def remove(step: Step, row: Row) -> None:
    """Deletes a job, and frees its key."""
    step.remove(row)
    await release_key(step, row)
    freed(step, row)
