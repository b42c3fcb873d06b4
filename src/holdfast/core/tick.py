"""Ticks: the instants of a schedule, each of which is a job. Pure.

The `run_at` of a tick is its instant, and its id a hash of tenant, schedule, revision and instant.
The job that it makes has an id from the same hash. So whoever fires a tick, and however often,
makes the same jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

import msgspec

from holdfast.core.bounds import EARLIER_MAX, MISSED_MAX
from holdfast.core.check import RESERVED
from holdfast.core.clock import SECOND, Micros, instant, moment
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Envelope, NewJob, Rules
from holdfast.core.retry import Backoff, Jitter, RetryPolicy
from holdfast.core.schedule import (
    QUEUE,
    TYPE,
    Definition,
    Missed,
    Overlap,
    check_schedule,
)

TAG = "schedule:"
"""The tag of ticks and of their jobs: it names the schedule."""
TICK_TAG = "tick:"
"""The tag of the jobs: the instant that they stand for."""
GROUP = "schedule/"
"""The group of the jobs of a schedule with `overlap="queue"`."""

ON_TIME: Micros = 300 * SECOND
"""A tick is on time up to so much later; `missed="skip"` makes no job later. A takeover after the
death of a worker takes a lease, 60 s by default.
"""
KEY_MIN: Micros = 24 * 3600 * SECOND
KEY_MAX: Micros = 7 * KEY_MIN
"""How long the key of a tick's job is held: a tick that is run again in this time makes no second
job, even if the first one was deleted meanwhile.
"""
KEY_TICKS = 10_000
"""Keys that a schedule holds at most, unless KEY_MIN says more."""


class Tick(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The payload of a tick's job."""

    schedule: str
    revision: Micros
    at: Micros
    earlier: tuple[tuple[Micros, Micros], ...] = ()
    """Revision and instant of the newest ticks that made jobs, for the rules of overlap."""
    asked: bool = False
    """A person asked for it: it makes its jobs and has no successor."""


TICK_RULES = Rules(
    max_attempts=1000,
    retry=RetryPolicy(kind=Backoff.EXPONENTIAL, base_s=1.0, cap_s=30.0, jitter=Jitter.EQUAL),
    timeout_us=600 * SECOND,
    keep_us=0,
)
"""A tick outlives a long outage of the store, and leaves no record when it is done."""


def _hash(tenant: str, schedule: str, revision: Micros, at: Micros) -> str:
    name = f"{len(tenant)}:{tenant}:{len(schedule)}:{schedule}:{revision}:{at}"
    return hashlib.sha256(name.encode()).hexdigest()[:40]


def tick_id(tenant: str, schedule: str, revision: Micros, at: Micros) -> str:
    """The id of the job that is a tick."""
    return f"tick-{_hash(tenant, schedule, revision, at)}"


def job_id(tenant: str, schedule: str, revision: Micros, at: Micros) -> str:
    """The id of the job that a tick makes for a tenant."""
    return f"scheduled-{_hash(tenant, schedule, revision, at)}"


def due_at(tenant: str, schedule: str, definition: Definition, at: Micros) -> Micros:
    """When a tick is fired: its instant and its jitter, which follows from its hash."""
    if not definition.jitter_us:
        return at
    number = int(_hash(tenant, schedule, definition.revision, at)[:15], 16)
    return at + number % (definition.jitter_us + 1)


def next_tick(tenant: str, schedule: str, definition: Definition, now: Micros) -> Micros | None:
    """The first instant that is not due yet; None if there is no further one."""
    # A tick before `now` may be due after it, because of its jitter.
    for at in definition.timing.after(now - definition.jitter_us - 1):
        if due_at(tenant, schedule, definition, at) > now:
            return at
    return None


class Due(msgspec.Struct, frozen=True):
    """What a tick does when it runs."""

    made: tuple[Micros, ...]
    """The instants that get a job."""
    next: Micros | None
    """The next tick; None if there is no further one."""
    dropped: tuple[Micros, Micros] | None = None
    """The first and the last instant that passed and get no job."""


def due(tenant: str, schedule: str, definition: Definition, at: Micros, now: Micros) -> Due:
    """The instants from `at` on that are due, by the rules about missed ticks, and the next tick.

    The next tick is always later than `now`, so that the ticks of a schedule cannot pile up.
    """
    passed, more = definition.timing.newest(at, now, MISSED_MAX)
    passed = [one for one in passed if due_at(tenant, schedule, definition, one) <= now]
    within = definition.within_us
    made = [one for one in passed if within is None or now - one <= within]
    if definition.missed is not Missed.ALL:
        made = made[-1:]
    if definition.missed is Missed.SKIP:
        made = [one for one in made if now - one <= ON_TIME + definition.jitter_us]
    left = [one for one in passed if one not in set(made)]
    dropped = None
    if left or more:
        dropped = (at if more else left[0], left[-1] if left else at)
    return Due(tuple(made), next_tick(tenant, schedule, definition, now), dropped)


def tick_job(
    tenant: str,
    schedule: str,
    definition: Definition,
    at: Micros,
    earlier: Iterable[tuple[Micros, Micros]] = (),
    *,
    asked: bool = False,
) -> NewJob:
    """The job that is this tick."""
    revision = definition.revision
    newest = tuple(earlier)[-EARLIER_MAX:]
    tick = Tick(schedule=schedule, revision=revision, at=at, earlier=newest, asked=asked)
    return NewJob(
        tenant=tenant,
        id=tick_id(tenant, schedule, revision, at),
        queue=QUEUE,
        envelope=Envelope(TYPE, "json", 1, msgspec.json.encode(tick)),
        rules=TICK_RULES,
        run_at=due_at(tenant, schedule, definition, at),
        tags=(f"{TAG}{schedule}",),
    )


def target(
    tenant: str,
    schedule: str,
    definition: Definition,
    at: Micros,
    *,
    id: str | None = None,
    key_us: Micros | None = None,
) -> NewJob:
    """The job that a tick makes for a tenant. With its own `id` it stands for no tick."""
    job = definition.job
    made = id or job_id(tenant, schedule, definition.revision, at)
    rules = job.rules if id else msgspec.structs.replace(job.rules, key_us=key_us or KEY_MIN)
    queued = definition.overlap is Overlap.QUEUE
    return msgspec.structs.replace(
        job.job(tenant, made),
        rules=rules,
        key=None if id else made,
        group=f"{GROUP}{schedule}" if queued else job.group,
        tags=(*job.tags, f"{TAG}{schedule}", f"{TICK_TAG}{instant_text(at)}"),
    )


def key_length(definition: Definition) -> Micros:
    """How long the keys of its jobs are held."""
    return min(KEY_MAX, max(KEY_MIN, KEY_TICKS * definition.timing.gap(definition.revision, 3)))


def instant_text(at: Micros) -> str:
    """The instant in UTC: `2026-03-29T01:00:00Z`."""
    return moment(at).isoformat().replace("+00:00", "Z")


def tick_of(tags: Iterable[str]) -> datetime | None:
    """The instant that a job with these tags stands for; None if no tick made it."""
    for tag in tags:
        if tag.startswith(TICK_TAG):
            try:
                found = datetime.fromisoformat(tag.removeprefix(TICK_TAG))
            except ValueError:
                continue
            if found.tzinfo is not None:
                return found
    return None


def schedule_name(tags: Iterable[str]) -> str | None:
    """The schedule that a job with these tags belongs to."""
    return next((tag.removeprefix(TAG) for tag in tags if tag.startswith(TAG)), None)


def check_tick(job: NewJob) -> None:
    """Raises InvalidInput unless the job is a tick as `tick_job` makes it; for calls from outside.
    Whether it is a tick of the schedule is decided when it runs.
    """
    try:
        tick = msgspec.json.decode(job.envelope.body, type=Tick)
        check_schedule(tick.schedule)
        right = job.id == tick_id(job.tenant, tick.schedule, tick.revision, tick.at)
        right = right and job.tags == (f"{TAG}{tick.schedule}",) and job.rules == TICK_RULES
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        right = False
    if not right or (job.queue, job.envelope.type) != (QUEUE, TYPE) or job.group is not None:
        raise InvalidInput(field="queue", why=RESERVED)


def is_reserved(job: NewJob) -> bool:
    """Whether the job is in the queue of ticks, or of their type."""
    return job.queue == QUEUE or job.envelope.type == TYPE


def reserved_tag(tag: str) -> bool:
    """Whether the tag tells about a schedule, so that only ticks give it to jobs."""
    return tag.startswith((TAG, TICK_TAG))


def instant_of(field: str, at: object) -> Micros:
    """The instant of a datetime with a zone. Raises InvalidInput for anything else."""
    if not isinstance(at, datetime):
        raise InvalidInput(field=field, why=f"must be a datetime, not {type(at).__name__}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise InvalidInput(field=field, why="has no time zone; use datetime(..., tzinfo=UTC)")
    return instant(at)
