"""The values that flow along the path of a job: NewJob, JobRecord, Lease, Outcome, Event. Frozen,
no verbs.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.check import check_name, check_whole
from holdfast.clock import Micros
from holdfast.errors import InvalidInput
from holdfast.limits import (
    ATTEMPTS_MAX,
    DELAY_S_MAX,
    GROUP_MAX,
    ID_MAX,
    INSTANT_MAX,
    KEY_MAX,
    NAME_BYTES_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    REASON_MAX,
    TAG_MAX,
    TAGS_MAX,
    VERSION_MAX,
)
from holdfast.redact import Redacted
from holdfast.retry import PRESETS, RetryPolicy


class State(StrEnum):
    """Where a job stands. `lifecycle.py` says which moves are legal."""

    WAITING = "waiting"
    SCHEDULED = "scheduled"
    ENQUEUED = "enqueued"
    PROCESSING = "processing"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELED})


class Reason(StrEnum):
    """Why a failed job is in the dead letters."""

    MAX_ATTEMPTS = "MAX_ATTEMPTS"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    PERMANENT = "PERMANENT"
    TIMEOUT = "TIMEOUT"
    DECODE = "DECODE"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    EXPIRED = "EXPIRED"
    PARENT_FAILED = "PARENT_FAILED"


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A payload with what is needed to read it again, in any process and after any upgrade."""

    type: str
    codec: str
    version: int
    body: Any
    """Bytes in the named codec; the job object itself where the store hands it over unencoded."""


class Rules(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a job type fixes for its jobs.

    Stored with each job, so later changes of code do not bend it. What equals a default is left out
    when stored: these defaults are part of the format and never change. An app's own are in Config.
    """

    max_attempts: int = 3
    retry: RetryPolicy = PRESETS["default"]
    timeout_us: Micros | None = None
    keep_us: Micros = 24 * 3600 * 1_000_000
    """How long the record outlives completion or cancel; 0 deletes it at once."""
    keep_failed_us: Micros = 7 * 24 * 3600 * 1_000_000
    key_us: Micros | None = None
    """How long an idempotency key holds, from enqueue; None is `until_terminal`."""


class NewJob(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What enqueue hands to a store. Delays are lengths: the store's clock makes them instants."""

    tenant: str
    id: str
    queue: str
    envelope: Envelope
    rules: Rules
    priority: int = 0
    delay_us: Micros = 0
    run_at: Micros | None = None
    """An instant chosen by the caller; wins over `delay_us`."""
    ttl_us: Micros | None = None
    """Still waiting after this time, at first or for a retry: failed, EXPIRED."""
    key: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    origin: str | None = None
    fresh: bool = False
    """The id was made for this very call, so no job that has ended can have it. A store must not
    believe it when it repeats a call whose end it did not hear of.
    """


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A job as the store knows it. Never carries the lease token.

    Stores make it by position: by name it takes 3 us, twenty times as long.
    """

    tenant: str
    id: str
    queue: str
    envelope: Envelope
    rules: Rules
    priority: int
    key: str | None
    group: str | None
    tags: tuple[str, ...]
    origin: str | None
    """The job this one replays."""
    seq: int
    """First-enqueue sequence: order within a priority, and the cursor of pages."""
    state: State
    attempt: int
    fence: int
    """Leases so far. What a handler compares is `Lease.fence`."""
    lapses: int
    """Leases that ended by expiry: the mark of a job that may be killing its workers."""
    misses: int
    """Releases because a worker did not know the type, or the codec of the payload."""
    created_at: Micros
    updated_at: Micros
    run_at: Micros
    expires_at: Micros | None = None
    lease_until: Micros | None = None
    worker: str | None = None
    finished_at: Micros | None = None
    reason: Reason | None = None
    error: str | None = None
    result: Any = None
    """Bytes in the envelope's codec, or the object itself where the store hands it over."""
    progress: str | None = None
    replayed_as: str | None = None

    @property
    def type(self) -> str:
        return self.envelope.type

    @property
    def max_attempts(self) -> int:
        return self.rules.max_attempts


class Lease(Redacted, msgspec.Struct, frozen=True, gc=False):
    """What a claim gives: the job, and the right to settle it until a deadline."""

    job: JobRecord
    token: str
    until: Micros

    @property
    def fence(self) -> int:
        """See `fence_of`."""
        return fence_of(self.job)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Short: a job may be large, and a worker holds many."""
        return [("job", self.job.id), ("fence", self.fence), ("until", self.until)]


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The handler returned."""

    result: Any = None


class Failed(msgspec.Struct, frozen=True):
    """The handler raised, timed out, or could not be called."""

    error: str
    reason: Reason | None = None
    """A code other than MAX_ATTEMPTS for the final failure."""
    retryable: bool = True
    after_us: Micros | None = None
    """The handler's own wish, instead of the policy's delay."""


class Released(msgspec.Struct, frozen=True):
    """Given back unrun, with the attempt."""

    delay_us: Micros = 0
    miss: bool = False
    """Because this worker does not know the type, or the codec of the payload."""
    reason: Reason = Reason.UNKNOWN_TYPE
    """Of the dead letter that the last miss makes; DECODE for want of the codec."""


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to be called later; costs no attempt."""

    delay_us: Micros


class Abandoned(msgspec.Struct, frozen=True):
    """The worker shut down before the handler ended; costs no attempt."""


Outcome = Completed | Failed | Released | Snoozed | Abandoned


class EventKind(StrEnum):
    """The facts a store records."""

    ENQUEUED = "enqueued"
    LEASED = "leased"
    EXTENDED = "extended"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRYING = "retrying"
    RELEASED = "released"
    RESCUED = "rescued"
    CANCELED = "canceled"
    CHANGED = "changed"
    REPLAYED = "replayed"
    DELETED = "deleted"
    DRAINED = "drained"
    """The last job of a group has ended; the note names the group."""
    CONFIGURED = "configured"
    """The settings of a scope were changed; the note holds the new ones, `job_id` the scope."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """A stored fact about a job, in order per job."""

    cursor: int
    at: Micros
    kind: EventKind
    tenant: str
    job_id: str
    queue: str
    type: str
    attempt: int
    fence: int
    until: Micros | None = None
    """What the fact set: the lease's deadline, the retry's or the schedule's instant."""
    note: str | None = None
    """Reason and error of a failure, the new job of a replay, and the like."""
    by: str | None = None
    """Which operator did it, and why: `By.words`. None for what workers and the clock do."""


class By(msgspec.Struct, frozen=True):
    """Who acts on a job or a scope, and why. For people: nothing is decided by it."""

    author: str
    reason: str = ""

    @property
    def words(self) -> str:
        """As events keep it: `ann: wrong address`, or `ann`."""
        return f"{self.author}: {self.reason}" if self.reason else self.author

    def checked(self) -> By:
        """Itself, or InvalidInput naming what cannot be kept."""
        check_name("author", self.author, REASON_MAX)
        if self.reason:
            check_name("reason", self.reason, REASON_MAX)
        return self


def fence_of(job: JobRecord) -> int:
    """A number that grows with each lease of an id, also when the id is used again.

    Each lease takes more than a microsecond, so a later record of the id begins above all leases of
    the one before. It stays below 2**53, so that every language reads it exactly.
    """
    return job.created_at + job.fence


def effect_key(job: JobRecord) -> str:
    """The same for every attempt of this very record, and for no other, of this id or another."""
    name = f"{len(job.tenant)}:{job.tenant}:{job.id}:{job.created_at}:{job.seq}"
    return hashlib.sha256(name.encode()).hexdigest()


def replay_id(tenant: str, origin: str) -> str:
    """The id of the one job that replays another: the same from every caller, so a repeated replay
    is one.
    """
    name = f"{len(tenant)}:{tenant}:{origin}"
    return f"replay-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def again(job: NewJob) -> NewJob:
    """The job as a second call may send it: the first may have made one of its id."""
    return msgspec.structs.replace(job, fresh=False) if job.fresh else job


def _check_key(job: NewJob, key: str) -> None:
    """Refuses a key that is too long together with what it is unique in."""
    size = sum(len(name.encode()) for name in (job.tenant, job.queue, job.envelope.type, key))
    if size > NAME_BYTES_MAX:
        why = f"has {size} bytes with its tenant, queue and type, at most {NAME_BYTES_MAX}"
        raise InvalidInput(field="key", why=why)


def check_new(job: NewJob) -> NewJob:
    """The job if each name and number in it is legal.

    Tenant, queue and type are checked where they are born.
    """
    check_name("id", job.id, ID_MAX)
    check_whole("priority", job.priority, PRIORITY_MIN, PRIORITY_MAX)
    check_whole("max_attempts", job.rules.max_attempts, 1, ATTEMPTS_MAX)
    check_whole("version", job.envelope.version, 0, VERSION_MAX)
    if job.run_at is not None and not 0 <= job.run_at <= INSTANT_MAX:
        raise InvalidInput(field="run_at", why="must lie between the years 1970 and 2200")
    if job.key is not None:
        _check_key(job, check_name("key", job.key, KEY_MAX))
    if job.group is not None:
        check_name("group", job.group, GROUP_MAX)
    if job.tags:
        if len(job.tags) > TAGS_MAX:
            raise InvalidInput(field="tags", why=f"has {len(job.tags)}, at most {TAGS_MAX}")
        for tag in job.tags:
            check_name("tags", tag, TAG_MAX)
    return job


def check_rules(rules: Rules) -> Rules:
    """The rules if each number in them is legal: for those that came from outside."""
    most = int(DELAY_S_MAX) * 1_000_000
    check_whole("max_attempts", rules.max_attempts, 1, ATTEMPTS_MAX)
    rules.retry.checked()
    if rules.timeout_us is not None:
        check_whole("timeout_us", rules.timeout_us, 1, most)
    if rules.key_us is not None:
        check_whole("key_us", rules.key_us, 0, most)
    check_whole("keep_us", rules.keep_us, 0, most)
    check_whole("keep_failed_us", rules.keep_failed_us, 0, most)
    return rules
