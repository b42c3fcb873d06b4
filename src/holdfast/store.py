"""THE CONTRACT: what a store must do. Verbs take and give batches of frozen values.

Each item of a batch has its own result: done, known already, or refused and why.
Stores apply, rules decide: a store checks the token, applies the transition and records the event
in one atomic step; it holds no retry rules, no codecs, no logging. One clock decides, the store's.
Every verb may be called from any thread that runs an event loop, is bounded by `limits.py`, and is
safe to repeat.

A job's tenant is part of its name: another tenant's job is not found (P7).
`holdfast.testing.contract` states each promise as a test; a new store joins it with a dozen lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Generic, Protocol

import msgspec

from holdfast.check import check_name, check_whole
from holdfast.clock import SECOND, Micros
from holdfast.errors import HoldfastError
from holdfast.job import By, Event, JobRecord, Lease, NewJob, Reason, State
from holdfast.lifecycle import Transition
from holdfast.limits import HOLD_S_MAX, NAME_MAX, NOTE_MAX, PAGE_MAX, SETTING_MAX, within
from holdfast.redact import Redacted
from holdfast.result import Result_co
from holdfast.scope import Explanation, ScopeKind


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Every difference between stores that a caller can notice."""

    durable: bool
    """A returned enqueue survives the end of the process and of the machine's power."""
    shared: bool
    """Several processes can work on the same jobs."""
    encodes: bool
    """Payloads and results are bytes; False hands the objects over as they are."""
    payload_max: int | None
    """The store's own limit in bytes, if it has one below the configured limit."""
    transactional_enqueue: bool
    """Enqueue can join the caller's transaction."""
    native_wakeup: bool
    """`wait` is woken across processes; False means sleepers rely on polling."""
    event_log: bool
    time_precision_us: int
    cluster: bool
    scopes: bool
    """Limits, rates, pauses, order and caps of scopes are kept; False refuses to store them."""


class Enqueued(msgspec.Struct, Generic[Result_co], frozen=True, gc=False):
    """The answer to one enqueue."""

    id: str
    created: bool
    """False when the id or the key led to an earlier job."""
    error: HoldfastError | None = None
    """Refused; nothing was written for this item."""


class Claim(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """Who wants how many jobs, of whom, for how long."""

    worker: str
    nonce: str
    """Random, fresh for each claim: the secret part of its tokens. A repeated claim brings it."""
    limit: int
    lease_us: Micros
    tenants: tuple[str, ...] | None = None
    """None is every tenant."""
    queues: tuple[str, ...] | None = None
    """None is every queue of those tenants."""
    exclude_groups: tuple[str, ...] = ()


class Extension(Redacted, msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A heartbeat: the lease shall last for this long from now, never less than it does already."""

    tenant: str
    id: str
    token: str
    lease_us: Micros
    progress: str | None = None


class Extended(msgspec.Struct, frozen=True, gc=False):
    id: str
    until: Micros = 0
    error: HoldfastError | None = None


class Acked(msgspec.Struct, frozen=True, gc=False):
    """The answer to one transition: the state the job has now, or why it was refused."""

    id: str
    state: State | None = None
    error: HoldfastError | None = None


class Ref(msgspec.Struct, frozen=True, gc=False):
    """The full name of a job."""

    tenant: str
    id: str


class Canceled(msgspec.Struct, frozen=True):
    """`canceled` is True when the job is canceled now, by this call or an earlier one."""

    id: str
    canceled: bool
    error: HoldfastError | None = None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs. Empty fields do not narrow; `tags` must all be there."""

    tenant: str | None
    """None is every tenant: for operators, never for a tenant's own calls."""
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
    """Failed for good at this instant or later; narrows to failed jobs."""
    failed_before: Micros | None = None


class Act(StrEnum):
    """What `change` can do to jobs that nobody holds."""

    REPLAY = "replay"
    """A new job like the terminal one, naming its origin; once per origin."""
    DELETE = "delete"
    REPRIORITISE = "reprioritise"
    RESCHEDULE = "reschedule"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One bounded step of a change by selection; `after` is the cursor of the step before."""

    select: Selection
    act: Act
    after: int = 0
    limit: int = 200
    priority: int = 0
    delay_us: Micros = 0
    run_at: Micros | None = None
    by: By | None = None


class Changed(msgspec.Struct, frozen=True):
    """`done` maps each changed job to the id of what came of it (its own, or the replay's)."""

    done: Mapping[Ref, str]
    cursor: int | None
    """Where the next step goes on; None at the end."""


class Lapsed(Redacted, msgspec.Struct, frozen=True):
    """A job past its deadline, for `lifecycle.lapse` to decide on."""

    job: JobRecord
    token: str | None
    overdue_us: Micros


class Pruned(msgspec.Struct, frozen=True):
    jobs: int
    events: int
    more: bool
    """The limit cut it short: call again."""


class Find(msgspec.Struct, frozen=True, kw_only=True):
    select: Selection
    after: int | None = None
    """The cursor of the page before."""
    limit: int = 100
    newest_first: bool = True


class Page(msgspec.Struct, frozen=True):
    jobs: Sequence[JobRecord]
    """Fewer than asked for, or none, also where a store has searched for long: the cursor tells."""
    cursor: int | None
    """None on the last page."""


class Tally(msgspec.Struct, frozen=True):
    """How many jobs a scope has in each state: a queue of a tenant, or the tenant, or a group."""

    tenant: str
    queue: str
    """The queue's or the group's name; empty for a tenant."""
    counts: Mapping[State, int]
    oldest_at: Micros | None = None
    """Of a queue: since when the longest-waiting enqueued job could have run."""
    slots: int = 0
    """Places that outsiders hold."""
    correction: int = 0
    """By how much a recount had to correct `running`, in all; 0 unless something was damaged."""


class EventPage(msgspec.Struct, frozen=True):
    events: Sequence[Event]
    cursor: int
    """Pass it as `after` to go on."""
    lost: bool
    """Events between `after` and this page were pruned before they were read."""


class Put(msgspec.Struct, frozen=True):
    """Set a name to a value (None deletes it) if it is still at `version` (0: not there)."""

    name: str
    value: bytes | None
    version: int

    def checked(self) -> Put:
        """Itself, or InvalidInput naming what is too long."""
        check_name("name", self.name, NAME_MAX)
        within("value", len(self.value or b""), SETTING_MAX)
        return self


class Setting(msgspec.Struct, frozen=True):
    """A version is never used twice for a name, also when it was deleted in between."""

    name: str
    value: bytes
    version: int


class Take(msgspec.Struct, frozen=True):
    """Take or renew a name for a time, unless another holds it; a length of 0 gives it back."""

    name: str
    owner: str
    length_us: Micros
    note: str = ""

    def checked(self) -> Take:
        """Itself, or InvalidInput naming what is too long."""
        check_name("name", self.name, NAME_MAX)
        check_name("owner", self.owner, NAME_MAX)
        within("note", len(self.note.encode()), NOTE_MAX)
        check_whole("length_us", self.length_us, 0, int(HOLD_S_MAX) * SECOND)
        return self


class Hold(msgspec.Struct, frozen=True):
    """Who holds a name now. A free name has an empty owner."""

    name: str
    owner: str
    until: Micros
    note: str


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What a sleeper waits for: work in some lines, the end of one job, or any news."""

    tenants: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    job: Ref | None = None
    news: bool = False
    """Anything that rings a bell, for readers of events."""


class Store(Protocol):
    """The verbs, in the order a job meets them."""

    capabilities: Capabilities

    # -- life ------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Makes the store usable, with its schema at the right version. Errors say what to do."""

    async def close(self) -> None:
        """Ends all waiting; what was confirmed is kept as `durable` says. May be called twice."""

    async def migrate(self) -> int:
        """Brings the schema to the newest version and returns it; safe from many processes."""

    # -- journey ---------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Keeps the jobs (P1). A known id or a held key gives the earlier job instead (P12).

        TenantFull refuses a job in one queue more than QUEUES_MAX, or one group more than
        GROUPS_MAX; a store may count them now and then.
        """

    async def claim(self, claim: Claim) -> list[Lease]:
        """Leases up to `limit` eligible jobs, each queue by priority, then sequence (P2, P9-P11).

        Jobs that are due, and lapsed leases with attempts left, are eligible at that very instant.
        Tenants take turns by weight, and the queues of each tenant within its turn (P19). Returns
        at once, also when there is nothing.

        A claim repeated with its nonce within CLAIM_REPEAT_S gives those of its leases that still
        hold, and no other job (P15). A record that cannot be read is failed alone, as DECODE.
        """

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        """Renews leases and keeps progress; refuses as P3 says, which is how a cancel is heard."""

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        """Applies each transition whose lease still holds (P3-P6, P11), by `lifecycle.refusal` and
        `settle`.
        """

    # -- will ------------------------------------------------------------------------------------
    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        """Cancels what is not finished; from then on nothing else changes the job (P5)."""

    async def change(self, change: Change) -> Changed:
        """One step of a change to the selected jobs that nobody holds and whose state allows it."""

    # -- upkeep ----------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Lapsed]:
        """Reads jobs whose lease or time to live has passed, the longest overdue first."""

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        """Deletes finished jobs and timed keys past their keeping, and events older than given."""

    # -- sight -----------------------------------------------------------------------------------
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
        """Counts per queue, group or tenant that has jobs or slots; kept in step, not scanned.

        In order of (tenant, part), on from `after`; `part` asks for one. `recount` counts the jobs
        themselves, mends what differs and tells by how much.
        """

    async def explain(self, ref: Ref) -> Explanation:
        """Every gate that holds the job now; JobNotFound as ever.

        The eighteenth verb: gates are decided inside the store's step, and only there can they be
        told without guessing.
        """

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        """Facts after a cursor, in the order they were stored (P14); -1 gives the present end."""

    # -- names -----------------------------------------------------------------------------------
    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        """Applies all puts or, with StaleSetting, none; returns them, or a page of those `under` a
        prefix, by name, on from `after`.

        Names of `scope.PREFIX` are checked, take effect in this very step, and are events. A tenant
        has SETTINGS_MAX of them at most, deleted ones included; TenantFull otherwise.
        """

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        """Takes, renews or gives back names; returns each one's holder, or a page of those held
        `under` a prefix, by name, on from `after`. A tenant has SLOTS_MAX slots at most; TenantFull
        refuses the whole batch.
        """

    # -- wait ------------------------------------------------------------------------------------
    async def wait(self, watch: Watch, timeout_s: float) -> None:
        """Sleeps until the watched may have happened, or the time-out. May wake in vain."""
