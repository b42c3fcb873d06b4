"""The shapes of the native API. Instants are RFC 3339, durations are in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.core.bounds import (
    BATCH_MAX,
    CLAIM_MAX,
    EXCLUDE_MAX,
    LEASE_S_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PROGRESS_CHARS_MAX,
    TOKEN_MAX,
    WORKER_MAX,
)
from holdfast.core.job import EventKind, Reason, State
from holdfast.core.journal import AWAITS_MAX
from holdfast.core.redact import Redacted
from holdfast.core.scope import BlockerKind
from holdfast.fields import EnqueueFields, GroupName, JobId, QueueName, Seconds, Strict, TypeName
from holdfast.service.journal_wire import Edges, Entries, EntryOut, Log
from holdfast.service.problems import Problem
from holdfast.service.shapes import Out

Token = Annotated[str, Meta(min_length=1, max_length=TOKEN_MAX)]
ERROR_KIND_MAX = 512


# -- enqueue ---------------------------------------------------------------------------------------


class NewJobIn(EnqueueFields, kw_only=True):
    """A job to enqueue. The payload is any JSON, or bytes in base64."""

    type: TypeName
    payload: Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    id: JobId | UnsetType = UNSET
    edges: Edges = ()
    """Jobs that await the end of this one."""


class NewJobsIn(Strict):
    jobs: Annotated[tuple[NewJobIn, ...], Meta(min_length=1, max_length=BATCH_MAX)]


class EnqueuedOut(Out):
    """`created` is false if the id or the key belongs to an existing job.

    `type_known` is false if no app has published the type. Then the job has default rules and waits
    for a worker that knows the type.
    """

    id: str
    created: bool
    type_known: bool
    error: Problem | None = None


class EnqueuedManyOut(Out):
    jobs: Sequence[EnqueuedOut]
    """The answers, in the order of the call."""


class PriorityIn(Strict):
    priority: Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)]


class TimeIn(Strict):
    """The answer for one job: an answer or an error."""

    delay: Seconds | UnsetType = UNSET
    run_at: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET


# -- jobs ------------------------------------------------------------------------------------------


class BlobOut(Out):
    """A reference to a blob: GET /v1/blobs/{id} has its bytes."""

    id: str
    size: int
    sha256: str
    media_type: str | None = None


class JobOut(Out):
    """A job as stored. It never contains the lease token."""

    id: str
    tenant: str
    queue: str
    type: str
    state: State
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    updated_at: datetime
    run_at: datetime
    codec: str
    payload: Raw | None = None
    """Omitted in lists, and if it is bytes."""
    payload_base64: str | None = None
    """Set if it is not JSON; `codec` names the format."""
    payload_blob: BlobOut | None = None
    """Set if it is in a bucket; `codec` then begins with `blob+`."""
    version: int = 1
    key: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    origin: str | None = None
    fence: int = 0
    expires_at: datetime | None = None
    lease_until: datetime | None = None
    worker: str | None = None
    finished_at: datetime | None = None
    reason: Reason | None = None
    error: str | None = None
    result: Raw | None = None
    result_base64: str | None = None
    result_blob: BlobOut | None = None
    progress: str | None = None
    replayed_as: str | None = None
    awaits: str | None = None
    """The signal or the join that makes the parked job ready."""


class JobsOut(Out):
    jobs: Sequence[JobOut]
    cursor: str | None = None
    """The cursor of the next page; missing on the last page."""


class ResultOut(Out):
    """`done` is false if the wait ended before the job."""

    id: str
    state: State
    done: bool
    result: Raw | None = None
    result_base64: str | None = None
    result_blob: BlobOut | None = None
    """Set if it is not JSON; `codec` names the format."""
    codec: str | None = None
    reason: Reason | None = None
    error: str | None = None


class CanceledOut(Out):
    id: str
    canceled: bool
    """False if it had already ended in another state."""


class ReplayedOut(Out):
    id: str
    replayed_as: str


class DeletedOut(Out):
    deleted: bool


class BlockerOut(Out):
    kind: BlockerKind
    words: str
    scope: str | None = None
    until: datetime | None = None
    holders: tuple[str, ...] = ()


class ExplainedOut(Out):
    """Why a job does not run now. Without blockers it can be claimed at once."""

    id: str
    state: State
    gates: Sequence[BlockerOut]
    ahead: int | None = None
    tenants: int | None = None
    not_before: datetime | None = None
    estimate_s: float | None = None


# -- work ------------------------------------------------------------------------------------------


class ClaimIn(Strict):
    """A claim: how many jobs, and for how long. `wait` is how long to wait for the first job."""

    worker: Annotated[str, Meta(min_length=1, max_length=WORKER_MAX)] = "http"
    limit: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] = 1
    lease: Annotated[float, Meta(gt=0, le=LEASE_S_MAX)] = 60.0
    wait: Annotated[float, Meta(ge=0, le=30)] = 0.0
    queues: Annotated[tuple[QueueName, ...], Meta(max_length=100)] | None = None
    exclude_groups: Annotated[tuple[GroupName, ...], Meta(max_length=EXCLUDE_MAX)] = ()


class LeaseOut(Redacted, Out):
    job: JobOut
    token: str
    until: datetime
    fence: int
    """A number that grows with each lease of the id, also if the id is reused."""
    effect_key: str
    """The idempotency key for effects: the same for every attempt of this job."""
    journal: Sequence[EntryOut] = ()
    """The steps, positions, joins and signals of the job, in no order."""
    left_out: int = 0
    """How many of them the journal would have; it is left out because it is large."""


class LeasesOut(Out):
    leases: Sequence[LeaseOut]


class OutcomeName(StrEnum):
    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    SNOOZE = "snooze"
    PARK = "park"


class AckIn(Redacted, Strict):
    """The outcome of one lease. `retry: false` fails the job for good. `park` gives the job back
    until an instant, or until what it awaits has come; it costs no attempt.
    """

    id: JobId
    token: Token
    outcome: OutcomeName
    result: Raw | UnsetType = UNSET
    result_base64: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    retry: bool | UnsetType = UNSET
    after: Seconds | UnsetType = UNSET
    """For a failure, a release, a snooze or a park: the delay until it may run again."""
    until: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET
    """For a park: the instant, instead of a delay. Neither means for ever, if it awaits."""
    awaits: Annotated[str, Meta(min_length=1, max_length=AWAITS_MAX)] | UnsetType = UNSET
    """For a park: `signal:NAME` or `join:NAME`."""
    entries: Entries = ()
    """Written to the journal in the same step."""
    log: Log = ()
    error_kind: Annotated[str, Meta(max_length=ERROR_KIND_MAX)] | UnsetType = UNSET
    """For a failure: the class of the error."""
    traceback: str | UnsetType = UNSET
    """For a failure. Long ones are cut in the middle."""
    seconds: Seconds | UnsetType = UNSET
    """For a failure: how long the attempt ran."""


class AcksIn(Strict):
    acks: Annotated[tuple[AckIn, ...], Meta(min_length=1, max_length=BATCH_MAX)]


class AckOut(Out):
    id: str
    state: State | None = None
    error: Problem | None = None


class AcksOut(Out):
    acks: Sequence[AckOut]


class ExtendIn(Redacted, Strict):
    id: JobId
    token: Token
    lease: Annotated[float, Meta(gt=0, le=LEASE_S_MAX)] = 60.0
    progress: Annotated[str, Meta(max_length=PROGRESS_CHARS_MAX)] | None = None
    entries: Entries = ()
    """Written to the journal in the same step."""
    log: Log = ()


class ExtendsIn(Strict):
    leases: Annotated[tuple[ExtendIn, ...], Meta(min_length=1, max_length=BATCH_MAX)]


class ExtendOut(Out):
    id: str
    until: datetime | None = None
    error: Problem | None = None


class ExtendsOut(Out):
    leases: Sequence[ExtendOut]


# -- changes of many -------------------------------------------------------------------------------


class DoneOut(Out):
    """The number of changed jobs, and the cursor of the next step; missing at the end."""

    done: int
    cursor: str | None = None


# -- events ----------------------------------------------------------------------------------------


class EventOut(Out):
    cursor: int
    at: datetime
    kind: EventKind
    tenant: str
    job_id: str
    queue: str
    type: str
    attempt: int
    fence: int
    until: datetime | None = None
    note: str | None = None
    by: str | None = None
    """The operator and the reason."""


class EventsOut(Out):
    events: Sequence[EventOut]
    cursor: int
    """Pass it as `after` to get the next page."""
    lost: bool = False
    """Whether events before these were pruned."""
