"""The calls of a tenant on an app that has a default one."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.default_tenant import OfDefault
from holdfast.payload.blobs import Blobs
from holdfast.store import Enqueued
from holdfast.tenant import Tenant

R = TypeVar("R")
T = TypeVar("T")


class DefaultCalls:
    """The part of an App that acts for its default tenant."""

    if TYPE_CHECKING:

        @property
        def default(self) -> Tenant: ...

    enqueue = OfDefault(Tenant.enqueue)
    enqueue_many = OfDefault(Tenant.enqueue_many)
    cancel = OfDefault(Tenant.cancel)
    get = OfDefault(Tenant.get)
    find = OfDefault(Tenant.find)
    reprioritise = OfDefault(Tenant.reprioritise)
    reschedule = OfDefault(Tenant.reschedule)
    replay = OfDefault(Tenant.replay)
    counts = OfDefault(Tenant.counts)
    scope = OfDefault(Tenant.scope)
    queue = OfDefault(Tenant.queue)
    group = OfDefault(Tenant.group)
    groups = OfDefault(Tenant.groups)
    explain = OfDefault(Tenant.explain)
    signal = OfDefault(Tenant.signal)
    journal = OfDefault(Tenant.journal)
    events = OfDefault(Tenant.events)
    schedules = OfDefault(Tenant.schedules)
    webhook = OfDefault(Tenant.webhook)
    webhooks = OfDefault(Tenant.webhooks)
    sources = OfDefault(Tenant.sources)
    start = OfDefault(Tenant.start)
    flow = OfDefault(Tenant.flow)
    flows = OfDefault(Tenant.flows)

    @property
    def blobs(self) -> Blobs:
        """As `Tenant.blobs`, of the default tenant."""
        return self.default.blobs

    @overload
    async def wait(self, job: Enqueued[R], *, timeout: float = 30.0) -> R: ...
    @overload
    async def wait(self, job: str, *, timeout: float = 30.0) -> Any: ...
    @overload
    async def wait(self, job: Enqueued[Any] | str, *, as_: type[T], timeout: float = 30.0) -> T: ...
    @overload
    async def wait(
        self, job: Enqueued[Any] | str, *, as_: UnionType, timeout: float = 30.0
    ) -> Any: ...
    async def wait(
        self, job: Enqueued[Any] | str, *, as_: Any = None, timeout: float = 30.0
    ) -> Any:
        """As `Tenant.wait`, of the default tenant."""
        return await self.default.wait(job, as_=as_, timeout=timeout)
