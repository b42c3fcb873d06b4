"""The handle of a flow that was started: its status, and what can be done with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from holdfast.core.bounds import FLOWS_PAGE_MAX, NODES_READ, within
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput, JobNotFound, did_you_mean
from holdfast.core.flow import CANCEL_SIGNAL, HEAD, head_of
from holdfast.core.job import TERMINAL, By, JobRecord, State
from holdfast.core.journal import EntryKind, Join, Journal, join_of
from holdfast.core.mapped import told
from holdfast.enqueue import Enqueuer
from holdfast.lookup import find_jobs
from holdfast.store import Find, Ref, Selection, Store
from holdfast.workflow.cancel import cancel_flow
from holdfast.workflow.retry import RetryMode, retry_flow


class FlowState(StrEnum):
    """The state of a flow."""

    RUNNING = "running"
    CANCELING = "canceling"
    """It is to be canceled, and some of its nodes have not ended yet."""
    FINISHING = "finishing"
    """All nodes have ended. Compensations and last jobs run."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class FlowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a flow is. The numbers are kept by the store with each end of a node."""

    id: str
    name: str
    state: FlowState
    total: int
    """The nodes of this run."""
    left: int
    """How many have not ended."""
    failed: int
    """How many have ended without having completed."""
    taken: int
    """The nodes that this run has taken over from the one that it retries."""
    created_at: Micros
    finished_at: Micros | None = None
    error: str | None = None
    origin: str | None = None
    """The flow that this one retries."""


class FlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as it is now."""

    number: int
    id: str
    type: str | None = None
    """None: its record is gone."""
    state: State | None = None
    attempt: int = 0
    error: str | None = None
    taken: bool = False
    """Whether an earlier run has completed it."""


class FlowPage(msgspec.Struct, frozen=True):
    """A page of flows. Pass its cursor as `after` to get the next one."""

    flows: Sequence[FlowStatus]
    cursor: int | None


class Owner(Protocol):
    """The part of a tenant that a run uses."""

    @property
    def name(self) -> str: ...
    @property
    def wait(self) -> Any: ...


class FlowRun:
    """A flow that was started. Made by `acme.start(flow)` and `acme.flow(id)`."""

    def __init__(
        self, id: str, tenant: Owner, store: Store, enqueuer: Enqueuer, *, created: bool = False
    ) -> None:
        self.id = id
        self.created = created
        """Whether the call that returned this has started it."""
        self._tenant = tenant
        self._store = store
        self._enqueuer = enqueuer

    async def status(self) -> FlowStatus:
        """How far it is. Raises JobNotFound."""
        job, journal = await self._head()
        return status_of(job, journal)

    async def wait(self, *, timeout: float = 30.0) -> FlowStatus:
        """Waits until it has completed, its last jobs included. Raises JobFailed, whose error names
        the failed nodes, JobCanceled or WaitTimeout.
        """
        await self._head()
        await self._tenant.wait(self.id, timeout=timeout)
        return await self.status()

    async def nodes(self, *, after: int | None = None, limit: int = 100) -> list[FlowNode]:
        """The nodes, by number. `after` is the last number of the previous page."""
        within("limit", limit, NODES_READ)
        job, _ = await self._head()
        head, first = head_of(job), 0 if after is None else after + 1
        ids = head.ids(self.id)[max(0, first) :][:limit]
        own = set(head.own(self.id))
        found = {job.id: job for job in await find_jobs(self._store, self._tenant.name, ids)}
        return [
            _node(number, id, found.get(id), taken=id not in own)
            for number, id in enumerate(ids, max(0, first))
        ]

    async def cancel(self, *, by: By | None = None) -> bool:
        """Cancels every node that has not ended. Then the completed ones are undone and the last
        jobs run. False: all nodes had ended already.
        """
        job, _ = await self._head()
        return await cancel_flow(self._store, job, None if by is None else by.checked())

    async def retry(self, mode: RetryMode | str = "failed_and_downstream") -> FlowRun:
        """Starts a new run of a flow that has ended. It takes over completed nodes and makes the
        others again. A flow is retried once: a second call returns the same run.

        "failed_only" makes the nodes again that have not completed, "failed_and_downstream" also
        all nodes after them, "all" every node. A node that was undone counts as not completed.
        """
        job, journal = await self._head()
        how = _mode(mode)
        id, created = await retry_flow(self._store, self._enqueuer, job, journal, how)
        return FlowRun(id, self._tenant, self._store, self._enqueuer, created=created)

    async def _head(self) -> tuple[JobRecord, Journal]:
        select = Selection(tenant=self._tenant.name, ids=(self.id,))
        page = await self._store.find(Find(select=select, limit=1, journals=True))
        for job in page.jobs:
            if job.type == HEAD:
                return job, page.journals.get(Ref(job.tenant, job.id), Journal())
        raise JobNotFound(id=self.id)


async def flows_page(
    store: Store,
    tenant: str,
    *,
    name: str | None,
    states: Iterable[State],
    after: int | None,
    limit: int,
) -> FlowPage:
    """A page of the flows of a tenant, newest first."""
    within("limit", limit, FLOWS_PAGE_MAX)
    tags = () if name is None else (name,)
    select = Selection(tenant=tenant, types=(HEAD,), states=tuple(states), tags=tags)
    page = await store.find(Find(select=select, after=after, limit=limit, journals=True))
    none = Journal()
    found = [status_of(job, page.journals.get(Ref(tenant, job.id), none)) for job in page.jobs]
    return FlowPage(found, page.cursor)


def status_of(job: JobRecord, journal: Journal) -> FlowStatus:
    """What the head of a flow says about it."""
    head = head_of(job)
    join, canceling = Join(0, 0), False
    for entry in journal.entries:
        if (entry.kind, entry.name) == (EntryKind.JOIN, ""):
            join = join_of(entry)
        canceling = canceling or (entry.kind, entry.name) == (EntryKind.SIGNAL, CANCEL_SIGNAL)
    return FlowStatus(
        id=job.id,
        name=head.name,
        state=_state(job, canceling=canceling),
        total=join.total,
        left=join.left,
        failed=join.failed,
        taken=head.nodes - join.total,
        created_at=job.created_at,
        finished_at=job.finished_at,
        error=None if job.error is None else told(job.error),
        origin=head.origin,
    )


def _state(job: JobRecord, *, canceling: bool) -> FlowState:
    if job.state in TERMINAL:
        return FlowState(job.state.value)
    if job.state is not State.WAITING:
        return FlowState.FINISHING
    return FlowState.CANCELING if canceling else FlowState.RUNNING


def _node(number: int, id: str, job: JobRecord | None, *, taken: bool) -> FlowNode:
    if job is None:
        return FlowNode(number=number, id=id, taken=taken)
    return FlowNode(
        number=number,
        id=id,
        type=job.type,
        state=job.state,
        attempt=job.attempt,
        error=None if job.error is None else told(job.error),
        taken=taken,
    )


def _mode(given: RetryMode | str) -> RetryMode:
    try:
        return RetryMode(given)
    except ValueError:
        hint = did_you_mean(str(given), RetryMode)
        why = f"must be all, failed_only or failed_and_downstream, got {given!r}.{hint}"
        raise InvalidInput(field="mode", why=why) from None
