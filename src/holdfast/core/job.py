"""The values of a job on its path: NewJob, JobRecord, Lease, Outcome, Event. Frozen, without
methods that change anything.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.bounds import (
    ATTEMPTS_MAX,
    DELAY_S_MAX,
    EDGES_MAX,
    GROUP_MAX,
    ID_MAX,
    INSTANT_MAX,
    KEY_MAX,
    NAME_BYTES_MAX,
    PARENTS_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    REASON_MAX,
    TAG_MAX,
    TAGS_MAX,
    VERSION_MAX,
)
from holdfast.core.check import check_name, check_whole
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput
from holdfast.core.journal import Edge, Entry
from holdfast.core.redact import Redacted
from holdfast.core.retry import PRESETS, RetryPolicy


class State(StrEnum):
    """The state of a job. `lifecycle.py` defines the legal transitions."""

    WAITING = "waiting"
    SCHEDULED = "scheduled"
    ENQUEUED = "enqueued"
    PROCESSING = "processing"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


EDGE_BYTES = 16
"""What an edge takes besides its names."""
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
    """A payload with its codec and version, so that any process can read it after any upgrade."""

    type: str
    codec: str
    version: int
    body: Any
    """Bytes in the named codec, or the job object itself if the store does not encode."""


class Rules(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The rules of a job type for its jobs: attempts, retry policy, time-out, retention.

    They are stored with each job, so later changes of the code do not affect it. A field equal to
    its default is not stored: these defaults are part of the format and never change. The defaults
    of an app are in Config.
    """

    max_attempts: int = 3
    retry: RetryPolicy = PRESETS["default"]
    timeout_us: Micros | None = None
    keep_us: Micros = 24 * 3600 * 1_000_000
    """How long the record is kept after completion or cancel; 0 deletes it at once."""
    keep_failed_us: Micros = 7 * 24 * 3600 * 1_000_000
    key_us: Micros | None = None
    """How long an idempotency key is held, from the enqueue; None: `until_terminal`."""


class NewJob(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What enqueue passes to a store. The store's clock turns delays into instants."""

    tenant: str
    id: str
    queue: str
    envelope: Envelope
    rules: Rules
    priority: int = 0
    delay_us: Micros = 0
    run_at: Micros | None = None
    """An instant chosen by the caller; takes precedence over `delay_us`."""
    ttl_us: Micros | None = None
    """The job fails with EXPIRED if it still waits after this time, at first or for a retry."""
    key: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    origin: str | None = None
    edges: tuple[Edge, ...] = ()
    """The jobs that await the end of this one."""
    parents: int = 0
    """How many edges lead to this job. It is `waiting` until all these parents have ended."""
    ends_with_parents: bool = False
    """It completes with its parents, without a run. It runs if one has not, or after a signal."""
    fresh: bool = False
    """The id was generated for this call, so no ended job can have it. A store must ignore this
    when it repeats a call whose answer was lost.
    """


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A job as stored. It never contains the lease token.

    Stores construct it with positional arguments: by name it takes 3 us, twenty times as long.
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
    """The id of the job that this one replays."""
    seq: int
    """Sequence of the first enqueue: the order within a priority, and the cursor of pages."""
    state: State
    attempt: int
    fence: int
    """The number of leases so far. Handlers compare `Lease.fence` instead."""
    lapses: int
    """The number of leases that expired. A high number marks a job that may kill its workers."""
    misses: int
    """The number of releases because a worker did not know the type or the codec."""
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
    """Bytes in the envelope's codec, or the object itself if the store does not encode."""
    progress: str | None = None
    replayed_as: str | None = None
    awaits: str | None = None
    """The signal or the join that makes a parked or waiting job ready; see `core/journal.py`."""

    @property
    def type(self) -> str:
        return self.envelope.type

    @property
    def max_attempts(self) -> int:
        return self.rules.max_attempts


class Lease(Redacted, msgspec.Struct, frozen=True, gc=False):
    """What a claim returns: the job, and the right to ack it until a deadline."""

    job: JobRecord
    token: str
    until: Micros
    journal: tuple[Entry, ...] = ()
    """The steps, positions, joins and signals of the job, in no order."""
    left_out: int = 0
    """How many it would have, but it is large: `find` reads at least so many while this holds."""

    @property
    def fence(self) -> int:
        """See `fence_of`."""
        return fence_of(self.job)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Short, because a job may be large and a worker holds many."""
        return [("job", self.job.id), ("fence", self.fence), ("until", self.until)]


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The handler returned."""

    result: Any = None


class Failed(msgspec.Struct, frozen=True):
    """The handler raised, timed out, or could not be called."""

    error: str
    reason: Reason | None = None
    """The reason code of the final failure, if not MAX_ATTEMPTS."""
    retryable: bool = True
    after_us: Micros | None = None
    """The delay that the handler asked for, instead of the policy's."""


class Released(msgspec.Struct, frozen=True):
    """The job is given back without having run; the attempt does not count."""

    delay_us: Micros = 0
    miss: bool = False
    """Whether the worker did not know the type or the codec of the payload."""
    reason: Reason = Reason.UNKNOWN_TYPE
    """The reason code if this was the last try; DECODE for an unknown codec."""


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to run again later; costs no attempt."""

    delay_us: Micros


class Parked(msgspec.Struct, frozen=True):
    """The handler sleeps, or waits for a signal or a join; costs no attempt."""

    delay_us: Micros = 0
    run_at: Micros | None = None
    """An instant, used instead of the delay."""
    awaits: str | None = None
    """What makes the job ready before that; see `core/journal.py`."""


class Abandoned(msgspec.Struct, frozen=True):
    """The worker shut down before the handler ended; costs no attempt."""


Outcome = Completed | Failed | Released | Snoozed | Parked | Abandoned


class EventKind(StrEnum):
    """The kinds of events that a store records."""

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
    SIGNALED = "signaled"
    """A signal was stored. The note has its name."""
    READY = "ready"
    """What the job waited for has come: its parents have ended, or a signal or a join that it
    awaited. The note names it.
    """
    DRAINED = "drained"
    """The last job of a group has ended. The note names the group."""
    CONFIGURED = "configured"
    """The settings of a scope were changed. The note has the new ones, `job_id` the scope."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """A stored event about a job. Events of one job are in order."""

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
    """The instant that the event set: a lease's deadline, or the time of a retry or schedule."""
    note: str | None = None
    """Details, such as reason and error of a failure, or the new job of a replay."""
    by: str | None = None
    """The operator and the reason (`By.words`). None for events caused by workers or by time."""


class By(msgspec.Struct, frozen=True):
    """The author and the reason of an action on a job or a scope. Information for people only."""

    author: str
    reason: str = ""

    @property
    def words(self) -> str:
        """The text stored in events: `ann: wrong address`, or `ann`."""
        return f"{self.author}: {self.reason}" if self.reason else self.author

    def checked(self) -> By:
        """Returns itself. Raises InvalidInput, which names the field, if it cannot be stored."""
        check_name("author", self.author, REASON_MAX)
        if self.reason:
            check_name("reason", self.reason, REASON_MAX)
        return self


def fence_of(job: JobRecord) -> int:
    """The fence: a number that grows with each lease of an id, also when the id is reused.

    Each lease takes more than a microsecond, so a later record of the id starts above all fences of
    the earlier one. The number stays below 2**53, so that every language reads it exactly.
    """
    return job.created_at + job.fence


def effect_key(job: JobRecord) -> str:
    """The effect key: the same for every attempt of this record, different for any other."""
    name = f"{len(job.tenant)}:{job.tenant}:{job.id}:{job.created_at}:{job.seq}"
    return hashlib.sha256(name.encode()).hexdigest()


def replay_id(tenant: str, origin: str) -> str:
    """The id of the replay of a job. It is the same for every caller, so a repeated replay makes
    one job.
    """
    name = f"{len(tenant)}:{tenant}:{origin}"
    return f"replay-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def edge_bytes(job: NewJob) -> int:
    """The bytes of a job's edges. A tenant's cap on bytes counts them with the payload."""
    return sum([len(edge.target) + len(edge.join) + EDGE_BYTES for edge in job.edges])


def again(job: NewJob) -> NewJob:
    """The job in the form for a repeated call: the first call may have created it."""
    return msgspec.structs.replace(job, fresh=False) if job.fresh else job


def _check_key(job: NewJob, key: str) -> None:
    """Refuses a key that is too long together with its tenant, queue and type."""
    size = sum(len(name.encode()) for name in (job.tenant, job.queue, job.envelope.type, key))
    if size > NAME_BYTES_MAX:
        why = f"has {size} bytes with its tenant, queue and type, at most {NAME_BYTES_MAX}"
        raise InvalidInput(field="key", why=why)


def check_new(job: NewJob) -> NewJob:
    """The job if each name and number in it is valid.

    Tenant, queue and type are checked where they are defined.
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
    if job.edges:
        if len(job.edges) > EDGES_MAX:
            raise InvalidInput(field="edges", why=f"has {len(job.edges)}, at most {EDGES_MAX}")
        for edge in job.edges:
            edge.checked()
    if job.parents:
        check_whole("parents", job.parents, 0, PARENTS_MAX)
    elif job.ends_with_parents:
        raise InvalidInput(field="ends_with_parents", why="needs parents")
    if job.tags:
        if len(job.tags) > TAGS_MAX:
            raise InvalidInput(field="tags", why=f"has {len(job.tags)}, at most {TAGS_MAX}")
        for tag in job.tags:
            check_name("tags", tag, TAG_MAX)
    return job


def check_rules(rules: Rules) -> Rules:
    """The rules if each number in them is valid; for rules from outside."""
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
