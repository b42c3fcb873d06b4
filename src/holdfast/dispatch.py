"""The dispatcher in front of every store: checks the arguments of each call and can measure it.

`stores.open_store` and `App` put a dispatcher in front of every store. So a store contains only its
own work, and its arguments are always within `core/bounds.py`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar, cast

from holdfast.arguments import (
    DELAY_MAX,
    PART_MAX,
    check_change,
    check_claim,
    check_cursor,
    check_find,
    check_prefix,
    check_put,
    check_ref,
    check_signal,
    check_take,
    check_tenant,
    check_watch,
)
from holdfast.core.bounds import BATCH_MAX, EXPIRED_MAX, NAME_MAX, PAGE_MAX, PRUNE_MAX, within
from holdfast.core.capabilities import Capabilities
from holdfast.core.check import check_name, check_seconds, check_whole
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput, StoreUnsupported
from holdfast.core.job import By, Lease, NewJob, State
from holdfast.core.journal import Signal, Signaled
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import Explanation, ScopeKind, decode, scope_of
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep
from holdfast.core.tiers import tier_of
from holdfast.held import check_not_held
from holdfast.payload.outer import OuterStore
from holdfast.store import (
    Acked,
    Canceled,
    Change,
    Changed,
    Claim,
    Enqueued,
    EventPage,
    Extended,
    Extension,
    Find,
    Hold,
    Lapsed,
    Page,
    Pruned,
    Put,
    Ref,
    Setting,
    Store,
    Take,
    Tally,
    Watch,
)
from holdfast.store_calls import Observer, measured

T = TypeVar("T")

OF_PLATFORM = (ScopeKind.PLATFORM, ScopeKind.TYPE)
"""Kinds of scopes that no tenant has."""


class TransactionalStore(Protocol):
    """The additional methods of a store with `transactional_enqueue` and `transactional_ack`. They
    work on the caller's connection, in its transaction, and do not await if it is a blocking one.
    """

    async def enqueue_using(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]: ...

    async def ack_using(self, connection: Any, change: Transition) -> Acked:
        """Completes a leased job. The commit must follow."""


class Dispatcher:
    """A store with checked arguments. `inner` is the store itself, for tests and its doctor."""

    def __init__(self, inner: Store, observe: Observer | None = None) -> None:
        self.inner = inner
        self.observe = observe

    @property
    def capabilities(self) -> Capabilities:
        """The current capabilities; some are known only after the store is opened."""
        return self.inner.capabilities

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._call("open", 1, self.inner.open())

    async def close(self) -> None:
        await self._call("close", 1, self.inner.close())

    async def migrate(self) -> int:
        return await self._call("migrate", 1, self.inner.migrate())

    # -- enqueue to ack --------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        check_not_held(self)
        within("jobs", len(jobs), BATCH_MAX)
        if not self.capabilities.steps and any(job.edges or job.parents for job in jobs):
            self._needs_steps()
        if whole:
            if any(job.tenant != jobs[0].tenant for job in jobs):
                raise InvalidInput(
                    field="jobs", why="must be of one tenant to be stored as a whole"
                )
            return await self._call("enqueue", len(jobs), self.inner.enqueue(jobs, whole=True))
        return await self._call("enqueue", len(jobs), self.inner.enqueue(jobs))

    async def enqueue_using(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueues in the caller's transaction, if the store supports it."""
        if not self.capabilities.transactional_enqueue:
            feature = "enqueue in the caller's transaction"
            raise StoreUnsupported(store=name_of(self), feature=feature)
        within("jobs", len(jobs), BATCH_MAX)
        call = cast(TransactionalStore, self.inner).enqueue_using(connection, jobs)
        return await self._call("enqueue_using", len(jobs), call)

    async def ack_using(self, connection: Any, change: Transition) -> Acked:
        """Completes a leased job in the caller's transaction, if the store supports it."""
        if not self.capabilities.transactional_ack:
            feature = "the completion of a job in the caller's transaction"
            raise StoreUnsupported(store=name_of(self), feature=feature)
        if change.to is not State.COMPLETED or change.lapsed:
            raise InvalidInput(field="change", why="must be a completion")
        call = cast(TransactionalStore, self.inner).ack_using(connection, change)
        return await self._call("ack_using", 1, call)

    @property
    def maps(self) -> bool:
        """Whether the bytes that jobs carry are mapped on their way to the store."""
        return isinstance(self.inner, OuterStore)

    async def mapped(self, change: Transition) -> Transition:
        """A completion as `ack_using` sends it. Raises what refuses its result."""
        return await self.inner.mapped(change) if isinstance(self.inner, OuterStore) else change

    @property
    def secret(self) -> bool:
        """Whether logs must not show the texts of jobs."""
        return isinstance(self.inner, OuterStore) and self.inner.secret

    async def prepare(self, tenant: str) -> None:
        """Reads what `enqueue_using` on a blocking connection cannot wait for."""
        if isinstance(self.inner, OuterStore):
            await self.inner.prepare(tenant)

    async def claim(self, claim: Claim) -> list[Lease]:
        check_not_held(self)
        check_claim(claim)
        return await self._call("claim", None, self.inner.claim(claim))

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        check_not_held(self)
        within("extensions", len(extensions), BATCH_MAX)
        return await self._call("extend", len(extensions), self.inner.extend(extensions))

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        check_not_held(self)
        within("transitions", len(transitions), BATCH_MAX)
        return await self._call("ack", len(transitions), self.inner.ack(transitions))

    # -- signal, cancel and change ---------------------------------------------------------------

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        check_not_held(self)
        within("signals", len(signals), BATCH_MAX)
        for signal in signals:
            check_signal(signal)
        _check_by(by)
        self._needs_steps()
        return await self._call("signal", len(signals), self.inner.signal(signals, by=by))

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        check_not_held(self)
        within("refs", len(refs), BATCH_MAX)
        for ref in refs:
            check_ref(ref)
        _check_by(by)
        return await self._call("cancel", len(refs), self.inner.cancel(refs, by=by))

    async def change(self, change: Change) -> Changed:
        check_not_held(self)
        check_change(change)
        return await self._call("change", None, self.inner.change(change))

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        within("limit", limit, EXPIRED_MAX)
        return await self._call("expired", None, self.inner.expired(limit))

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        check_not_held(self)
        within("limit", limit, PRUNE_MAX)
        check_whole("events_keep_us", events_keep_us, 0, DELAY_MAX)
        return await self._call("prune", None, self.inner.prune(limit, events_keep_us))

    # -- find, count, explain, events ------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        check_find(find)
        return await self._call("find", None, self.inner.find(find))

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
        within("limit", limit, PAGE_MAX)
        if tenant == "" or by in OF_PLATFORM:
            self._needs_platform()
        else:
            check_tenant(tenant)
        for field, name in (("part", part), *(("after", one) for one in after or ())):
            if name:
                check_name(field, name, PART_MAX)
        call = self.inner.count(tenant, by=by, part=part, after=after, limit=limit, recount=recount)
        return await self._call("count", None, call)

    async def explain(self, ref: Ref) -> Explanation:
        check_ref(ref)
        return await self._call("explain", 1, self.inner.explain(ref))

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        within("limit", limit, PAGE_MAX)
        check_tenant(tenant)
        check_cursor("after", after, -1)
        if job_id is not None:
            check_name("job_id", job_id, NAME_MAX)
        return await self._call("events", None, self.inner.events(tenant, after, limit, job_id))

    # -- settings and holds ----------------------------------------------------------------------

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        if puts:
            check_not_held(self)
        within("puts", len(puts), BATCH_MAX)
        _check_page(under, after, limit)
        for put in puts:
            self._check_put(put)
        _check_by(by)
        call = self.inner.settings(puts, under=under, after=after, limit=limit, by=by)
        return await self._call("settings", len(puts) or None, call)

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        if takes:
            check_not_held(self)
        within("takes", len(takes), BATCH_MAX)
        _check_page(under, after, limit)
        for take in takes:
            check_take(take)
        call = self.inner.hold(takes, under=under, after=after, limit=limit)
        return await self._call("hold", len(takes) or None, call)

    # -- sources ---------------------------------------------------------------------------------

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        ask.checked()
        if not self.capabilities.sources:
            raise StoreUnsupported(store=name_of(self), feature="sources")
        items = len(ask.put) if isinstance(ask, ShadowStep) else None
        return await self._call("shadow", items, self.inner.shadow(ask))

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        check_watch(watch)
        check_seconds("timeout_s", timeout_s, float("-inf"), float("inf"))
        await self._call("wait", 1, self.inner.wait(watch, timeout_s))

    # -- inside ----------------------------------------------------------------------------------

    def _check_put(self, put: Put) -> None:
        check_put(put)
        scope = scope_of(put.name)
        if scope is None:
            if tier_of(put.name) is not None:
                self._needs_tiers()
        elif scope.of_platform:
            self._needs_platform()
        elif put.value is not None and decode(put.name, put.value).tier is not None:
            self._needs_tiers()

    def _needs_steps(self) -> None:
        if not self.capabilities.steps:
            raise StoreUnsupported(store=name_of(self), feature="steps, signals and flows")

    def _needs_tiers(self) -> None:
        if not self.capabilities.tiers:
            raise StoreUnsupported(store=name_of(self), feature="tiers and defaults")

    def _needs_platform(self) -> None:
        if not self.capabilities.platform:
            raise StoreUnsupported(store=name_of(self), feature="limits of the platform")

    def _call(
        self, verb: str, items: int | None, call: Coroutine[Any, Any, T]
    ) -> Coroutine[Any, Any, T]:
        """The plain call if there is no observer, so that measuring costs nothing then."""
        observe = self.observe
        return call if observe is None else measured(observe, verb, items, call)


def _check_page(under: str | None, after: str, limit: int) -> None:
    within("limit", limit, PAGE_MAX)
    check_prefix("under", under)
    check_prefix("after", after)


def _check_by(by: By | None) -> None:
    if by is not None:
        by.checked()


# -- for those who are handed a store --------------------------------------------------------------


def dispatched(store: Store) -> Dispatcher:
    """The store with a dispatcher: the existing one, or a new one."""
    return store if isinstance(store, Dispatcher) else Dispatcher(store)


def inner_of(store: Store) -> Store:
    """The store itself, without its dispatcher and its mappers."""
    while isinstance(store, Dispatcher | OuterStore):
        store = store.inner
    return store


def name_of(store: Store) -> str:
    """The name of the store in error messages."""
    return type(inner_of(store)).__name__
