"""The memory store: the reference for every other. Hands job objects over without encoding them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.core.bounds import PAGE_MAX, WAIT_S_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import Clock, Micros, SystemClock
from holdfast.core.errors import NOT_OPEN, ConfigError, JobNotFound, StoreUnavailable
from holdfast.core.job import By, Lease, NewJob
from holdfast.core.journal import Signal, Signaled
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import Explanation, ScopeKind
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep
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
    Take,
    Tally,
    Watch,
)
from holdfast.stores.memory.ack import ack
from holdfast.stores.memory.cancel import cancel
from holdfast.stores.memory.change import change_jobs
from holdfast.stores.memory.claim import claim_jobs
from holdfast.stores.memory.count import count_jobs, scopes_of
from holdfast.stores.memory.count import recount as recount_jobs
from holdfast.stores.memory.enqueue import enqueue_jobs
from holdfast.stores.memory.explain import explain_job
from holdfast.stores.memory.extend import extend
from holdfast.stores.memory.find import find_jobs
from holdfast.stores.memory.holds import Holds
from holdfast.stores.memory.joins import release
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.maintenance import expired, prune
from holdfast.stores.memory.notify import soonest
from holdfast.stores.memory.settings import Settings
from holdfast.stores.memory.shadow import Sources
from holdfast.stores.memory.signal import send
from holdfast.stores.notifier import Notifier


class MemoryStore:
    """One process, gone with it. Any thread may call; one lock makes each verb one atomic step."""

    capabilities = Capabilities(
        durable=False,
        shared=False,
        encodes=False,
        payload_max=None,
        transactional_enqueue=False,
        native_wakeup=True,
        event_log=True,
        time_precision_us=1,
        cluster=False,
        scopes=True,
        platform=True,
        tiers=True,
        steps=True,
        sources=True,
    )

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._tables = Tables()
        self._settings = Settings(self._tables)
        self._holds = Holds(self._tables)
        self._sources = Sources(self._tables)
        self._notifier = Notifier()
        self._open = False

    @classmethod
    def from_url(cls, url: str, clock: Clock | None = None) -> MemoryStore:
        if url != "memory://":
            raise ConfigError(field="store", why=f"memory:// takes nothing more, got {url!r}")
        return cls(clock)

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False
        self._notifier.notify_all()

    async def migrate(self) -> int:
        return 1

    # -- life of a job ---------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        with self._step() as tables:
            return enqueue_jobs(tables, jobs, whole)

    async def claim(self, claim: Claim) -> list[Lease]:
        with self._step() as tables:
            return claim_jobs(tables, claim)

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        with self._step() as tables:
            return [extend(tables, extension) for extension in extensions]

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        with self._step() as tables:
            return [ack(tables, change) for change in transitions]

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        with self._step(by) as tables:
            return [send(tables, signal) for signal in signals]

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        with self._step(by) as tables:
            return [cancel(tables, ref) for ref in refs]

    async def change(self, change: Change) -> Changed:
        with self._step(change.by) as tables:
            return change_jobs(tables, change)

    # -- maintenance -----------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        with self._step() as tables:
            return expired(tables, limit)

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        with self._step() as tables:
            self._holds.prune()
            return prune(tables, limit, events_keep_us)

    # -- reads -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        with self._step() as tables:
            return find_jobs(tables, find)

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
        with self._step() as tables:
            correction = recount_jobs(tables) if recount else 0
            scopes = [
                scope
                for scope in scopes_of(tables, tenant, by)
                if (part is None or scope.part == part)
                and (after is None or (scope.tenant, scope.part) > after)
            ]
            return count_jobs(tables, scopes[:limit], correction)

    async def explain(self, ref: Ref) -> Explanation:
        with self._step() as tables:
            row = tables.rows.get((ref.tenant, ref.id))
            if row is None:
                raise JobNotFound(id=ref.id)
            return explain_job(tables, row)

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        with self._step() as tables:
            return tables.read_events(tenant, after, limit, job_id)

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
        with self._step(by):
            done = self._settings.put(puts)
            return done if under is None else self._settings.page(under, after, limit)

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        with self._step():
            holds = self._holds.take(takes)
            return holds if under is None else self._holds.page(under, after, limit)

    # -- sources ---------------------------------------------------------------------------------

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        with self._step():
            return self._sources.shadow(ask)

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        with self._notifier.listen(watch) as listener:
            with self._step() as tables:
                delay = soonest(tables, watch)
            await listener.sleep(min(timeout_s, WAIT_S_MAX, delay))

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _step(self, by: By | None = None) -> Iterator[Tables]:
        """One atomic step at one instant of the clock; its events name who wanted it."""
        if not self._open:
            raise StoreUnavailable(store="memory://", why=NOT_OPEN)
        tables = self._tables
        with self._lock:
            tables.now = self._clock.now()
            tables.by = None if by is None else by.words
            yield tables
            if tables.ended:
                release(tables)
            ended, tables.ended = tables.ended, []
            if ended:
                self._notifier.notify(ended=ended)
            woken, tables.lines.woken = tables.lines.woken, set()
            wakes_all, tables.wakes_all = tables.wakes_all, False
            if (woken or wakes_all) and tables.limits.platform_is_full(tables.now):
                return  # Nobody can claim until a job ends or a setting changes.
        if wakes_all:
            self._notifier.notify_all()
        elif woken:
            self._notifier.notify(woken)
