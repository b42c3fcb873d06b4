"""THE CONTRACT: what a store must do. Verbs take and return batches of frozen values.

Each item of a batch has its own result: done, already known, or refused with the reason.
Stores apply transitions; pure rules decide them. A store checks the token, applies the transition
and records the event in one atomic step. It contains no retry rules, no codecs and no logging. Only
the store's clock decides. Every verb may be called from any thread that runs an event loop and is
safe to repeat. `dispatch.py` checks all arguments before they reach a store.

A job is identified by tenant and id: a job of another tenant is not found (P7).
`holdfast.testing.contract` states each promise as a test; a new store joins it with a dozen lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Generic, Protocol

import msgspec

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import Micros
from holdfast.core.errors import HoldfastError
from holdfast.core.job import By, Event, JobRecord, Lease, NewJob, Reason, State
from holdfast.core.journal import Entry, Journal, Signal, Signaled
from holdfast.core.lifecycle import Transition
from holdfast.core.redact import Redacted
from holdfast.core.result import Result_co
from holdfast.core.scope import Explanation, ScopeKind
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep


class Enqueued(msgspec.Struct, Generic[Result_co], frozen=True):
    """The answer to one enqueue."""

    id: str
    created: bool
    """False if the id or the key belongs to an earlier job."""
    error: HoldfastError | None = None
    """Why the item was refused; nothing was written for it."""


class Claim(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """A request for leases: which worker, how many jobs, which tenants and queues, how long."""

    worker: str
    nonce: str
    """Random and new for each claim; the secret part of its tokens. A repeated claim reuses it."""
    limit: int
    lease_us: Micros
    tenants: tuple[str, ...] | None = None
    """None: every tenant."""
    queues: tuple[str, ...] | None = None
    """None: every queue of those tenants."""
    exclude_groups: tuple[str, ...] = ()


class Extension(Redacted, msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A heartbeat: extends the lease to this long from now. It never shortens the lease."""

    tenant: str
    id: str
    token: str
    lease_us: Micros
    progress: str | None = None
    entries: tuple[Entry, ...] = ()
    """Written to the job's journal in the same step."""


class Extended(msgspec.Struct, frozen=True):
    id: str
    until: Micros = 0
    error: HoldfastError | None = None


class Acked(msgspec.Struct, frozen=True):
    """The answer to one transition: the new state of the job, or why it was refused."""

    id: str
    state: State | None = None
    error: HoldfastError | None = None


class Ref(msgspec.Struct, frozen=True, gc=False):
    """The identity of a job: tenant and id."""

    tenant: str
    id: str


class Canceled(msgspec.Struct, frozen=True):
    """`canceled` is True if the job is canceled, by this call or an earlier one."""

    id: str
    canceled: bool
    error: HoldfastError | None = None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Selects jobs. An empty field does not restrict; a job must have all of `tags`."""

    tenant: str | None
    """None: every tenant. For operators, never for calls of a tenant."""
    ids: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    groups: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    key: str | None = None
    created_from: Micros | None = None
    created_before: Micros | None = None
    failed_from: Micros | None = None
    """Failed for good at this instant or later. Selects failed jobs only."""
    failed_before: Micros | None = None


class Act(StrEnum):
    """What `change` can do to jobs that are not leased."""

    REPLAY = "replay"
    """Makes a new job from a finished one, which becomes its origin; once per origin."""
    DELETE = "delete"
    REPRIORITISE = "reprioritise"
    RESCHEDULE = "reschedule"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One bounded step of a change to selected jobs. `after` is the cursor of the previous step."""

    select: Selection
    act: Act
    after: int = 0
    limit: int = 200
    priority: int = 0
    delay_us: Micros = 0
    run_at: Micros | None = None
    from_step: str | None = None
    """For REPLAY: the new job starts with its origin's signals, and with what its runs wrote before
    this step. An origin without the step is not replayed."""
    by: By | None = None


class Changed(msgspec.Struct, frozen=True):
    """`done` maps each changed job to the resulting id: its own, or that of the replay."""

    done: Mapping[Ref, str]
    cursor: int | None
    """The cursor for the next step; None at the end."""


class Lapsed(Redacted, msgspec.Struct, frozen=True):
    """A job past its deadline, for `lifecycle.lapse` to decide on."""

    job: JobRecord
    token: str | None
    overdue_us: Micros


class Pruned(msgspec.Struct, frozen=True):
    jobs: int
    events: int
    more: bool
    """True if the limit was reached: call again."""


class Find(msgspec.Struct, frozen=True, kw_only=True):
    select: Selection
    after: int | None = None
    """The cursor of the previous page."""
    limit: int = 100
    newest_first: bool = True
    journals: bool = False
    """Whether to read journals and edges too: of JOURNALS_MAX jobs and JOURNALS_BYTES_MAX."""


class Page(msgspec.Struct, frozen=True):
    jobs: Sequence[JobRecord]
    """May be shorter than the limit, or empty, before the last page; see `cursor`."""
    cursor: int | None
    """None on the last page."""
    journals: Mapping[Ref, Journal] = {}
    """Of the jobs that have one, if they were asked for."""


class Tally(msgspec.Struct, frozen=True):
    """The jobs in each state of one scope: a queue, a tenant or a group."""

    tenant: str
    queue: str
    """The name of the queue or the group; empty for a tenant."""
    counts: Mapping[State, int]
    oldest_at: Micros | None = None
    """For a queue: since when its oldest enqueued job has been ready."""
    slots: int = 0
    correction: int = 0
    """By how much a recount corrected `running`, in total; 0 unless something was damaged."""


class EventPage(msgspec.Struct, frozen=True):
    events: Sequence[Event]
    cursor: int
    """Pass it as `after` to get the next page."""
    lost: bool
    """Events between `after` and this page were pruned before they were read."""


class Put(msgspec.Struct, frozen=True):
    """Sets a name to a value (None deletes it) if it still has `version` (0: it does not exist)."""

    name: str
    value: bytes | None
    version: int


class Setting(msgspec.Struct, frozen=True):
    """A version is never reused for a name, even if the name was deleted in between."""

    name: str
    value: bytes
    version: int


class Take(msgspec.Struct, frozen=True):
    """Takes or renews a name for a time, unless another holds it. A duration of 0 releases it."""

    name: str
    owner: str
    length_us: Micros
    note: str = ""


class Hold(msgspec.Struct, frozen=True):
    """The current holder of a name. A free name has an empty owner."""

    name: str
    owner: str
    until: Micros
    note: str


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller waits for: work in some lines, the end of one job, or any change."""

    tenants: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    job: Ref | None = None
    news: bool = False
    """Any change at all, for readers of events."""


class Store(Protocol):
    """The verbs, in the order a job meets them."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def open(self) -> None:
        """Opens the store and checks its schema version. Errors say what to do."""

    async def close(self) -> None:
        """Ends all waiting calls. Keeps confirmed writes as `durable` says. May be called twice."""

    async def migrate(self) -> int:
        """Upgrades the schema and returns its version. Safe from many processes at once."""

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        """Stores the jobs (P1). For a known id or a held key it returns the earlier job (P12).
        `whole`, for jobs of one tenant: all are created, or none, and BatchRefused answers for
        those that could have been. A repeat, of which every id is known, is told as such.
        TenantFull refuses a job that needs more than QUEUES_MAX queues or GROUPS_MAX groups, which
        a store may count only now and then.
        """

    async def claim(self, claim: Claim) -> list[Lease]:
        """Leases up to `limit` eligible jobs, each queue by priority, then sequence (P2, P9-P11).

        Jobs that are due, and expired leases with attempts left, are eligible at that instant.
        Tenants take turns by weight, and the queues of each tenant within its turn (P19). Returns
        at once, also if there is no eligible job. A claim repeated with its nonce within
        CLAIM_REPEAT_S returns those of its leases that are still valid, and no other job (P15). A
        record that cannot be read fails alone, as DECODE.
        """

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        """Renews leases and stores progress. A refusal (P3) also tells the worker of a cancel."""

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        """Applies each transition whose lease is still valid (P3-P6, P11), by the rules
        `lifecycle.refusal` and `lifecycle.settle`. The end of a job, by whatever verb, tells the
        joins that its edges name (P17); JournalFull refuses entries that are too many (P16).
        """

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        """Stores a value in the journal of each job, unless it has one of that name, and makes a
        parked job ready that awaits it. Refusals: JobNotFound, JobCanceled, JobAlreadyTerminal,
        JournalFull, QueueFull (`journal.no_room`).

        It is a verb because a signal and the ack that parks a job to await it must meet in one step
        of the store. As two steps each could miss the other, and the job would not wake.
        """

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        """Cancels jobs that are not finished. After that nothing changes the job (P5)."""

    async def change(self, change: Change) -> Changed:
        """Does one step of a change to the selected jobs without a lease whose state allows it."""

    async def expired(self, limit: int) -> list[Lapsed]:
        """Reads jobs whose lease or time to live has expired, the most overdue first."""

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        """Deletes finished jobs and timed keys past their retention, and older events."""

    async def find(self, find: Find) -> Page:
        """A page of jobs in sequence order."""

    async def count(
        self,
        tenant: str | None,
        *,
        by: ScopeKind = ScopeKind.QUEUE,
        part: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = PAGE_MAX,
        recount: bool = False,
    ) -> list[Tally]:
        """The counts per queue, group or tenant with jobs or slots, from counters, without a scan.
        The order is (tenant, part), starting after `after`; `part` asks for one. `recount` counts
        the jobs themselves, corrects the counters and reports the difference.
        Empty tenant: the running jobs of the platform's scopes that have settings.
        """

    async def explain(self, ref: Ref) -> Explanation:
        """Every blocker of the job now, decided in one step. Raises JobNotFound."""

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        """The events after a cursor, in stored order (P14). -1 returns the current end."""

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        """Applies all puts, or none and raises StaleSetting. Returns them, or a page of the
        settings `under` a prefix, by name, starting after `after`. Those of scopes and tiers are
        checked, take effect in this step, and are events. A tenant may have SETTINGS_MAX of them,
        deleted ones included; TenantFull otherwise.
        """

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        """Takes, renews or releases names. Returns the holder of each, or a page of those held
        `under` a prefix, by name, after `after`. TenantFull: a tenant has at most SLOTS_MAX slots.
        """

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        """Applies one step of a source, or reads. A step is refused as a whole: by StaleSource if
        the source has another stamp than it expects, by TenantFull, and by what refuses one of its
        jobs. A job whose id exists is not a refusal.

        It is a verb because the cursor of a source, the rows of its shadow and the jobs for what
        changed must move in one step of the store. As several steps, a crash between them would
        lose a change or make its job twice.
        """

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        """Sleeps until the watched event may have happened, or the time-out. A hint only."""
