"""Operator functions: show, replay, purge, examine. The command line, the service and the dashboard
call them.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Sequence

import msgspec

from holdfast import load as _load
from holdfast import worker_registry
from holdfast.audit import Audit
from holdfast.audit_limits import GroupOf
from holdfast.change_one import change_one
from holdfast.config import Config
from holdfast.core.bounds import (
    PAGE_MAX,
    PAYLOAD_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    REASON_MAX,
    TENANT_MAX,
)
from holdfast.core.check import check_name, check_whole
from holdfast.core.clock import Micros, micros
from holdfast.core.codec import Codecs
from holdfast.core.errors import HoldfastError, InvalidInput, JobNotFound, PayloadTooLarge
from holdfast.core.finding import Finding, Level
from holdfast.core.job import TERMINAL, By, Envelope, Event, JobRecord, NewJob, Reason, State
from holdfast.core.plural import many
from holdfast.core.scope import Scope, ScopeKind
from holdfast.dispatch import dispatched, inner_of
from holdfast.enqueue import Enqueuer, Options, plan_with
from holdfast.explain import EVERYTHING, Explained, Reader
from holdfast.explain import explain as explain_job
from holdfast.listings import configured, tallies
from holdfast.platform import PlatformHandle
from holdfast.schedules import ScheduleHandle
from holdfast.scopes import (
    GroupHandle,
    ScopeHandle,
    ScopeState,
    handle,
    recount,
)
from holdfast.store import Act, Change, Find, Hold, Ref, Selection, Store, Tally
from holdfast.stores import open_store
from holdfast.tenant import Tenant
from holdfast.typed import Registry
from holdfast.types import Types, foreign_type

STEP = 200
"""Jobs in one step of a replay or purge. Small, so that claims can run between steps."""
TIMELINE_MAX = 10_000
UNREAD_MAX = 100
"""The maximum of unreadable dead letters that `doctor` counts."""
LAG_WARNING_S = 10.0
UNSERVED_NAMED_MAX = 5
"""The maximum of queues without a worker that `doctor` names."""


Load, load = _load.Load, _load.load
"""One call for autoscalers: see `holdfast.load`."""


class Timeline(msgspec.Struct, frozen=True):
    """A job with its events."""

    job: JobRecord
    events: Sequence[Event]
    lost: bool
    """Whether earlier events were pruned."""


class TenantTotal(msgspec.Struct, frozen=True):
    """The number of one tenant's jobs by state."""

    tenant: str
    queues: int
    counts: dict[State, int]
    oldest_at: Micros | None


async def timeline(store: Store, job_id: str, tenant: str | None = None) -> Timeline:
    """The job with its events. Without a tenant all tenants are searched. Raises JobNotFound."""
    job = await one_job(store, job_id, tenant)
    events: list[Event] = []
    after, lost = 0, False
    while len(events) < TIMELINE_MAX:
        part = await store.events(job.tenant, after, PAGE_MAX, job_id=job_id)
        events += part.events
        # A gap may concern other jobs only. This job's own first event must be its enqueue.
        after = part.cursor
        if len(part.events) < PAGE_MAX:
            break
    lost = not events or events[0].at > job.created_at
    return Timeline(job, events, lost)


async def one_job(store: Store, job_id: str, tenant: str | None = None) -> JobRecord:
    """The job with this id. Without a tenant all tenants are searched. Raises JobNotFound."""
    page = await store.find(Find(select=Selection(tenant=tenant, ids=(job_id,)), limit=2))
    if not page.jobs:
        raise JobNotFound(id=job_id)
    if len(page.jobs) > 1:  # An id is unique only within its tenant.
        raise InvalidInput(field="tenant", why=f"several tenants have a job {job_id!r}; name one")
    return page.jobs[0]


async def explain(
    store: Store, job_id: str, tenant: str | None = None, *, reader: Reader = EVERYTHING
) -> Explained:
    """Why the job does not run now. Without a tenant all tenants are searched. Leaves out what the
    reader may not see.
    """
    job = await one_job(store, job_id, tenant)
    return await explain_job(store, Ref(job.tenant, job.id), reader)


async def plan_raw(
    types: Types, tenant: str, type: str, payload: dict[str, object], options: Options
) -> NewJob:
    """A job of a type whose code is not available here: a JSON payload, of which only the size is
    checked, with the queue and rules that an app published for the type.
    """
    check_name("tenant", tenant, TENANT_MAX)
    body = msgspec.json.encode(payload)
    if len(body) > PAYLOAD_MAX:
        raise PayloadTooLarge(field="payload", size=len(body), max=PAYLOAD_MAX)
    known = (await types.known([type])).get(type) or foreign_type(type)
    return plan_with(tenant, known, Envelope(known.name, known.codec, known.version, body), options)


async def preview(store: Store, select: Selection, act: Act) -> int:
    """The number of jobs that a replay or a purge of the selection would change now."""
    total, after = 0, None
    while True:
        page = await store.find(Find(select=select, after=after, limit=STEP))
        total += sum(_possible(job, act) for job in page.jobs)
        if page.cursor is None:
            return total
        after = page.cursor


def _possible(job: JobRecord, act: Act) -> bool:
    if act is Act.REPLAY:
        return job.state in TERMINAL and job.replayed_as is None
    return job.state is not State.PROCESSING


async def replay(
    store: Store, select: Selection, by: By | None = None, *, from_step: str | None = None
) -> AsyncIterator[int]:
    """Replays the selected jobs, once each. Yields the number done so far after each step. With
    `from_step` only those that have finished it, from there.
    """
    async for done in _steps(store, select, Act.REPLAY, by, from_step=from_step):
        yield done


async def purge(store: Store, select: Selection, by: By | None = None) -> AsyncIterator[int]:
    """Deletes the selected jobs that are not leased. Yields the number so far after each step."""
    async for done in _steps(store, select, Act.DELETE, by):
        yield done


async def reprioritise(store: Store, ref: Ref, priority: int, by: By | None = None) -> None:
    """Changes the priority of a waiting job. Raises NotChangeable if it runs or has ended."""
    check_whole("priority", priority, PRIORITY_MIN, PRIORITY_MAX)
    await change_one(store, ref, Act.REPRIORITISE, priority=priority, by=by)


async def reschedule(
    store: Store, ref: Ref, *, delay_us: Micros = 0, run_at: Micros | None = None, by: By | None
) -> None:
    """Changes when a waiting job may run. An instant takes precedence over a delay."""
    await change_one(store, ref, Act.RESCHEDULE, delay_us=delay_us, run_at=run_at, by=by)


def author(name: str) -> str:
    """The caller's name in a form that can be stored as an author."""
    plain = "".join(char for char in name if char.isprintable()).strip()
    return plain[:REASON_MAX].strip() or "unnamed"


async def _steps(
    store: Store, select: Selection, act: Act, by: By | None, *, from_step: str | None = None
) -> AsyncIterator[int]:
    after: int | None = 0
    total = 0
    while after is not None:
        step = Change(select=select, act=act, after=after, limit=STEP, from_step=from_step, by=by)
        changed = await store.change(step)
        total += len(changed.done)
        after = changed.cursor
        yield total


async def tenants(store: Store) -> list[TenantTotal]:
    """Every tenant with jobs, with its counts."""
    found: dict[str, list[Tally]] = {}
    async for tally in tallies(store, None):
        found.setdefault(tally.tenant, []).append(tally)
    return [_total(tenant, tallies) for tenant, tallies in sorted(found.items())]


def _total(tenant: str, tallies: list[Tally]) -> TenantTotal:
    counts: dict[State, int] = {}
    for tally in tallies:
        for state, number in tally.counts.items():
            counts[state] = counts.get(state, 0) + number
    ages = [tally.oldest_at for tally in tallies if tally.oldest_at is not None]
    return TenantTotal(tenant, len(tallies), counts, min(ages, default=None))


async def queues(store: Store, tenant: str | None = None) -> list[Tally]:
    """Every queue with jobs or slots, with its counts."""
    return [tally async for tally in tallies(store, tenant)]


async def scopes(store: Store, tenant: str | None = None) -> dict[Scope, ScopeState]:
    """Every scope with limits, a pause or other settings: of a tenant, of the platform (an empty
    tenant), or of both.
    """
    return await configured(store, tenant)


def scope(
    store: Store,
    tenant: str,
    *,
    queue: str | None = None,
    group: str | None = None,
    platform: bool = True,
) -> ScopeHandle:
    """A handle for a tenant, or for one of its queues or groups: get, set, pause, resume, slots."""
    return handle(store, tenant, queue=queue, group=group, platform=platform)


def platform(store: Store, registry: Registry | None = None) -> PlatformHandle:
    """A handle for all tenants together, which has one for each queue and each job type. Types that
    are in the registry need not be published in the store.
    """
    return PlatformHandle(store, registry)


def group(store: Store, tenant: str, name: str) -> GroupHandle:
    """A handle for a group, which can also list and cancel its jobs."""
    return GroupHandle(store, Scope(tenant, ScopeKind.GROUP, name))


def flows(store: Store, tenant: str) -> Tenant:
    """The calls of a tenant about its flows, for programs that have no app."""
    codecs, checked = Codecs(), dispatched(store)
    return Tenant(tenant, checked, Enqueuer(checked, Registry(), codecs, Config()), codecs)


def schedule(store: Store, tenant: str, name: str) -> ScheduleHandle:
    """A handle for a schedule. `schedules` lists those of a tenant, or of all."""
    return ScheduleHandle(store, tenant, name)


async def reconcile(store: Store) -> int:
    """Recounts every job. Returns by how much the counts of running jobs were corrected."""
    return await recount(store)


async def audit(
    store: Store,
    group_of: GroupOf = lambda tenant, job_id: None,
    *,
    slack_us: Micros = 0,
    copies_us: Micros = 0,
) -> Audit:
    """Checks the whole event log against the promises. `slack_us`, `copies_us`: see `Audit`."""
    found, after = Audit(group_of, slack_us=slack_us, copies_us=copies_us), 0
    while True:
        page = await store.events(None, after, PAGE_MAX)
        found.feed(page.events)
        after = page.cursor
        if len(page.events) < PAGE_MAX:
            return found


async def workers(store: Store) -> list[Hold]:
    """The workers that are present, at most WORKERS_MAX. Their notes describe them."""
    return [hold async for hold in worker_registry.holds(store)]


async def upkeep_leader(store: Store) -> Hold | None:
    """The process that does the upkeep now. Its note says how far it is behind."""
    # The shortest name with this prefix comes first.
    holds = await store.hold(under="upkeep", limit=1)
    return next((hold for hold in holds if hold.name == "upkeep"), None)


async def examine(place: str | Store) -> list[Finding]:
    """Checks a store, step by step from its URL to its content, and describes the findings.

    It reports a HoldfastError as a finding and does not raise it.
    """
    try:
        store = open_store(place) if isinstance(place, str) else place
    except HoldfastError as error:
        return [Finding(Level.BAD, "store URL", str(error))]
    package = type(inner_of(store)).__module__.rpartition(".")[0]
    found = [Finding(Level.OK, "store URL", f"{package.rpartition('.')[2]} is a known store")]
    try:
        await store.open()
    except HoldfastError as error:
        return [*found, Finding(Level.BAD, "open", str(error))]
    try:
        found.append(Finding(Level.OK, "open", "the store opens and its schema is current"))
        found += await importlib.import_module(f"{package}.doctor").examine(inner_of(store))
        found += await _general_findings(store)
    except HoldfastError as error:
        found.append(Finding(Level.BAD, "use", str(error)))
    finally:
        await store.close()
    return found


async def _general_findings(store: Store) -> list[Finding]:
    found = []
    overdue = await store.expired(1)
    lag = max((one.overdue_us for one in overdue), default=0)
    if lag > micros(LAG_WARNING_S):
        words = f"a job is {lag / 1e6:.0f} s past its deadline: is a worker with upkeep running?"
        found.append(Finding(Level.WARNING, "upkeep", words))
    else:
        found.append(Finding(Level.OK, "upkeep", "no job is left past its deadline"))
    counted = await queues(store)
    found.append(_worked(counted, await worker_registry.present_workers(store)))
    dead = sum(tally.counts.get(State.FAILED, 0) for tally in counted)
    if dead:
        words = f"{many(dead, 'job')} failed for good: see `holdfast dead list`"
        found.append(Finding(Level.WARNING, "dead letters", words))
        found += await _unread(store)
    return found


async def _unread(store: Store) -> list[Finding]:
    """The dead letters whose record or payload could not be read."""
    select = Selection(tenant=None, states=(State.FAILED,), reasons=(Reason.DECODE,))
    page = await store.find(Find(select=select, limit=UNREAD_MAX))
    if not page.jobs:
        return []
    more = " or more" if page.cursor is not None else ""
    words = (
        f"{many(len(page.jobs), 'job')}{more} could not be read, the last is {page.jobs[0].id!r}"
    )
    words += ": see `holdfast dead list --reason DECODE`"
    return [Finding(Level.WARNING, "unreadable jobs", words)]


def _worked(counted: list[Tally], present: list[worker_registry.Worker]) -> Finding:
    """Whether workers are present for the ready jobs."""
    ready = [tally for tally in counted if tally.counts.get(State.ENQUEUED, 0)]
    waiting = sum(tally.counts[State.ENQUEUED] for tally in ready)
    if waiting and not present:
        words = f"{many(waiting, 'job')} waiting and no worker is present: start one with"
        return Finding(Level.WARNING, "workers", f"{words} `holdfast worker`")
    left = [
        tally
        for tally in ready
        if not any(worker.note.serves(tally.tenant, tally.queue) for worker in present)
    ]
    if not left:
        words = f"{many(len(present), 'worker')} present, {many(waiting, 'job')} waiting"
        return Finding(Level.OK, "workers", words)
    left.sort(key=lambda tally: -tally.counts[State.ENQUEUED])
    named = ", ".join(
        f"{tally.queue!r} of {tally.tenant!r} ({many(tally.counts[State.ENQUEUED], 'job')})"
        for tally in left[:UNSERVED_NAMED_MAX]
    )
    more = len(left) - UNSERVED_NAMED_MAX
    named += f" and {many(more, 'other queue')}" if more > 0 else ""
    words = f"no worker serves {named}: start one with `holdfast worker --queues NAME`"
    return Finding(Level.WARNING, "workers", words)
