"""The calls of one tenant without await, for blocking code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from types import UnionType
from typing import Any, TypeVar, Unpack, overload

from holdfast.core.check import check_seconds
from holdfast.core.edge_bounds import SHADOW_ROWS_MAX
from holdfast.core.errors import WaitTimeout
from holdfast.core.job import By, JobRecord
from holdfast.definitions import ScheduleState
from holdfast.enqueue import Options
from holdfast.explain import Explained
from holdfast.handle import SyncJobHandle, handle_of
from holdfast.job_journal import JobJournal
from holdfast.many import EnqueuedMany
from holdfast.payload.sync_blobs import SyncBlobs
from holdfast.run_here import run_here
from holdfast.sources.status import SourceStatus
from holdfast.store import Enqueued, Page, Tally
from holdfast.sync_flows import SyncFlowCalls
from holdfast.sync_schedules import SyncSchedule
from holdfast.sync_scopes import Bridge, SyncGroup, SyncScope
from holdfast.sync_sources import SyncSource
from holdfast.sync_webhooks import SyncWebhook
from holdfast.tenant import Tenant, preparing
from holdfast.typed import AnyJob
from holdfast.webhooks.stored import WebhookState

R = TypeVar("R")
T = TypeVar("T")

_AWAIT = "call app.tenant() and await it"
LATE_S = 1.0
"""How long after its time-out a wait may end if the bridge does not answer."""


class SyncTenant(SyncFlowCalls):
    """`holdfast.Tenant` without await."""

    def __init__(self, bridge: Bridge, tenant: Tenant) -> None:
        self._bridge = bridge
        self._call = bridge.call
        self._tenant = tenant
        self.name = tenant.name

    def enqueue(
        self, job: AnyJob[T], *, using: Any = None, **options: Unpack[Options]
    ) -> SyncJobHandle[T]:
        if using is not None and (before := preparing(self._tenant)) is not None:
            self._call(before)
        work = self._tenant.enqueue(job, using=using, **options)
        # A connection belongs to its thread, so this call stays in the caller's thread.
        made = self._call(work) if using is None else run_here(work, "using", _AWAIT)
        return handle_of(SyncJobHandle, made, self)

    def enqueue_many(
        self,
        jobs: Iterable[AnyJob[Any]],
        *,
        on_batch: Callable[[list[Enqueued]], None] | None = None,
        **options: Unpack[Options],
    ) -> EnqueuedMany:
        return self._call(self._tenant.enqueue_many(jobs, on_batch=on_batch, **options))

    def cancel(self, job_id: str, *, by: By | None = None) -> bool:
        return self._call(self._tenant.cancel(job_id, by=by))

    def get(self, job_id: str) -> JobRecord:
        return self._call(self._tenant.get(job_id))

    def find(self, /, **filters: Any) -> Page:
        return self._call(self._tenant.find(**filters))

    @overload
    def wait(self, job: Enqueued[T], *, timeout: float = 30.0) -> T: ...
    @overload
    def wait(self, job: str, *, timeout: float = 30.0) -> Any: ...
    @overload
    def wait(self, job: Enqueued[Any] | str, *, as_: type[R], timeout: float = 30.0) -> R: ...
    @overload
    def wait(self, job: Enqueued[Any] | str, *, as_: UnionType, timeout: float = 30.0) -> Any: ...
    def wait(self, job: Enqueued[Any] | str, *, as_: Any = None, timeout: float = 30.0) -> Any:
        job_id = job if isinstance(job, str) else job.id
        most_s = check_seconds("timeout", timeout) + LATE_S
        try:
            work = self._tenant.wait(job_id, as_=as_, timeout=timeout)
            return self._call(work, timeout_s=most_s)
        except TimeoutError:
            raise WaitTimeout(id=job_id, timeout_s=timeout) from None

    def reprioritise(self, job_id: str, priority: int, *, by: By | None = None) -> None:
        self._call(self._tenant.reprioritise(job_id, priority, by=by))

    def reschedule(
        self,
        job_id: str,
        *,
        delay: float | None = None,
        run_at: datetime | None = None,
        by: By | None = None,
    ) -> None:
        self._call(self._tenant.reschedule(job_id, delay=delay, run_at=run_at, by=by))

    def signal(self, job_id: str, name: str, value: Any = None, *, by: By | None = None) -> bool:
        return self._call(self._tenant.signal(job_id, name, value, by=by))

    def journal(self, job_id: str) -> JobJournal:
        return self._call(self._tenant.journal(job_id))

    def replay(self, job_id: str, *, from_step: str | None = None, by: By | None = None) -> str:
        return self._call(self._tenant.replay(job_id, from_step=from_step, by=by))

    def counts(self) -> list[Tally]:
        return self._call(self._tenant.counts())

    @property
    def blobs(self) -> SyncBlobs:
        return SyncBlobs(self._call, self._tenant.blobs)

    def scope(self) -> SyncScope:
        return SyncScope(self._bridge, self._tenant.scope())

    def queue(self, name: str) -> SyncScope:
        return SyncScope(self._bridge, self._tenant.queue(name))

    def group(self, name: str) -> SyncGroup:
        return SyncGroup(self._bridge, self._tenant.group(name))

    def groups(self, *, after: str | None = None, limit: int = 100) -> list[Tally]:
        return self._call(self._tenant.groups(after=after, limit=limit))

    def explain(self, job_id: str) -> Explained:
        return self._call(self._tenant.explain(job_id))

    def schedule(self, name: str) -> SyncSchedule:
        return SyncSchedule(self._bridge, self._tenant.schedule(name))

    def webhook(self, name: str) -> SyncWebhook:
        return SyncWebhook(self._bridge, self._tenant.webhook(name))

    def webhooks(self) -> list[WebhookState]:
        return self._call(self._tenant.webhooks())

    def schedules(self, *, after: str | None = None, limit: int = 100) -> list[ScheduleState]:
        return self._call(self._tenant.schedules(after=after, limit=limit))

    def source(self, name: str) -> SyncSource:
        return SyncSource(self._bridge, self._tenant.source(name))

    def sources(self, *, after: str = "", limit: int = SHADOW_ROWS_MAX) -> list[SourceStatus]:
        return self._call(self._tenant.sources(after=after, limit=limit))
