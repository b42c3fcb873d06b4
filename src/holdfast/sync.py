"""The one bridge for blocking code: the same calls without await, from any thread.

A thread of its own runs an event loop; concurrent calls of many threads share batches there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Protocol, TypeVar, Unpack

from holdfast.enqueue import EnqueuedMany, Options
from holdfast.errors import StoreUnavailable
from holdfast.job import JobRecord
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
        self._call = bridge.call
        self._tenant = tenant
        self.name = tenant.name

    def enqueue(self, job: Job | Planned, **options: Unpack[Options]) -> Enqueued:
        return self._call(self._tenant.enqueue(job, **options))

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
