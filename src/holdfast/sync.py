"""The one bridge for blocking code: the same calls without await, from any thread.

A thread of its own runs an event loop; concurrent calls of many threads share batches there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Protocol, TypeVar, Unpack

from holdfast.amend import Limits
from holdfast.enqueue import EnqueuedMany, Options
from holdfast.errors import InvalidInput, StoreUnavailable
from holdfast.explain import Explained
from holdfast.job import JobRecord
from holdfast.scope import Scope
from holdfast.scopes import Canceling, GroupHandle, ScopeHandle, ScopeState, Slot
from holdfast.store import Enqueued, Page, Tally
from holdfast.tenant import Tenant
from holdfast.typed import Job, Planned

T = TypeVar("T")


class Bridged(Protocol):
    """What the bridge needs of an App."""

    def tenant(self, name: str) -> Tenant: ...
    async def run_now(self, job: Job | Planned, *, tenant: str = "now") -> Any: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...


class SyncApp:
    """`app.sync`: opens itself at the first call; `close()` or `with app.sync:` ends it."""

    def __init__(self, app: Bridged) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def tenant(self, name: str) -> SyncTenant:
        return SyncTenant(self, self._app.tenant(name))

    def run_now(self, job: Job | Planned, *, tenant: str = "now") -> Any:
        return self.call(self._app.run_now(job, tenant=tenant))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the bridge's loop and waits for it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise _own_loop()
        try:
            # Under the lock, so that what is handed over comes before the winding up of `close`.
            with self._lock:
                answer = asyncio.run_coroutine_threadsafe(work, self._opened())
        except BaseException:
            work.close()
            raise
        try:
            return answer.result()
        except CancelledError:
            raise StoreUnavailable(store="app.sync", why="it was closed meanwhile") from None

    def close(self) -> None:
        """Closes the store for this side and ends the thread. May be called twice."""
        if threading.current_thread() is self._thread:
            raise _own_loop()
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            try:
                asyncio.run_coroutine_threadsafe(self._wind_up(), loop).result()
            finally:
                _end(loop, thread)

    async def _wind_up(self) -> None:
        """Closes the store; calls that still wait then are ended, so that no thread hangs."""
        try:
            await self._app.close()
        finally:
            waiting = asyncio.all_tasks() - {asyncio.current_task()}
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def __enter__(self) -> SyncApp:
        with self._lock:
            self._opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _opened(self) -> asyncio.AbstractEventLoop:
        """The running loop, made if need be. Called under the lock."""
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="holdfast-sync", daemon=True)
            thread.start()
            try:
                asyncio.run_coroutine_threadsafe(self._app.open(), loop).result()
            except BaseException:
                _end(loop, thread)
                raise
            self._loop, self._thread = loop, thread
        return self._loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def _own_loop() -> StoreUnavailable:
    return StoreUnavailable(store="app.sync", why="called from its own loop: use await")


class SyncTenant:
    """`holdfast.Tenant` without await."""

    def __init__(self, bridge: SyncApp, tenant: Tenant) -> None:
        self._bridge = bridge
        self._call = bridge.call
        self._tenant = tenant
        self.name = tenant.name

    def enqueue(
        self, job: Job | Planned, *, using: Any = None, **options: Unpack[Options]
    ) -> Enqueued:
        work = self._tenant.enqueue(job, using=using, **options)
        # A connection belongs to the thread that uses it, so such a call does not cross over.
        return self._call(work) if using is None else _here(work)

    def enqueue_many(
        self,
        jobs: Iterable[Job | Planned],
        *,
        on_batch: Callable[[list[Enqueued]], None] | None = None,
        **options: Unpack[Options],
    ) -> EnqueuedMany:
        return self._call(self._tenant.enqueue_many(jobs, on_batch=on_batch, **options))

    def cancel(self, job_id: str) -> bool:
        return self._call(self._tenant.cancel(job_id))

    def get(self, job_id: str) -> JobRecord:
        return self._call(self._tenant.get(job_id))

    def find(self, **filters: Any) -> Page:
        return self._call(self._tenant.find(**filters))

    def wait(self, job_id: str, *, timeout: float = 30.0) -> Any:
        return self._call(self._tenant.wait(job_id, timeout=timeout))

    def replay(self, job_id: str) -> str:
        return self._call(self._tenant.replay(job_id))

    def counts(self) -> list[Tally]:
        return self._call(self._tenant.counts())

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


class SyncScope:
    """`holdfast.scopes.ScopeHandle` without await."""

    def __init__(self, bridge: SyncApp, scope: ScopeHandle) -> None:
        self._call = bridge.call
        self._handle = scope
        self.scope: Scope = scope.scope

    def get(self) -> ScopeState:
        return self._call(self._handle.get())

    def set(self, *, expect: int | None = None, **changes: Unpack[Limits]) -> ScopeState:
        return self._call(self._handle.set(expect=expect, **changes))

    def pause(self, reason: str, author: str) -> ScopeState:
        return self._call(self._handle.pause(reason, author))

    def resume(self, author: str) -> ScopeState:
        return self._call(self._handle.resume(author))

    def counts(self) -> Tally:
        return self._call(self._handle.counts())

    def push_slot(self, id: str, seconds: float, *, note: str = "") -> Slot:
        return self._call(self._handle.push_slot(id, seconds, note=note))

    def remove_slot(self, id: str) -> None:
        self._call(self._handle.remove_slot(id))

    def slots(self) -> list[Slot]:
        return self._call(self._handle.slots())

    def count_slots(self) -> int:
        return self._call(self._handle.count_slots())


class SyncGroup(SyncScope):
    """`holdfast.scopes.GroupHandle` without await."""

    _handle: GroupHandle

    def __init__(self, bridge: SyncApp, group: GroupHandle) -> None:
        super().__init__(bridge, group)

    def jobs(self, **filters: Any) -> Page:
        return self._call(self._handle.jobs(**filters))

    def cancel(self) -> Iterator[Canceling]:
        """A step at a time, as the caller asks for them."""
        steps = self._handle.cancel()
        while (step := self._call(_next(steps))) is not None:
            yield step


def _here(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that awaits nothing, in this thread and without a loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        work.close()
    raise InvalidInput(field="using", why="is an async connection: call app.tenant() and await it")


async def _next(steps: AsyncIterator[T]) -> T | None:
    return await anext(steps, None)
