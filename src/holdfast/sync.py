"""`app.sync`, the bridge for blocking code: the same calls without await, from any thread.

A separate thread runs an event loop, where concurrent calls of many threads share batches. The
thread does not survive a fork: in the child the next call starts a new thread and opens the store
again.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from types import TracebackType, UnionType
from typing import Any, Protocol, TypeVar, overload
from weakref import WeakSet

import msgspec

from holdfast.core.errors import InvalidInput, StoreUnavailable
from holdfast.default_tenant import OfDefault
from holdfast.payload.sync_blobs import SyncBlobs
from holdfast.platform import PlatformHandle
from holdfast.store import Enqueued
from holdfast.sync_scopes import SyncPlatform
from holdfast.sync_tenant import SyncTenant
from holdfast.tenant import Tenant
from holdfast.typed import AnyJob

R = TypeVar("R")
T = TypeVar("T")

LOOK_S = 1.0
"""How often a waiting caller checks that the bridge's thread still runs."""


class Bridged(Protocol):
    """The part of an App that the bridge uses."""

    def tenant(self, name: str) -> Tenant: ...
    @property
    def default(self) -> Tenant: ...
    def platform(self) -> PlatformHandle: ...
    async def run_now(self, job: AnyJob[T], *, tenant: str = "now") -> T: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...


class SyncApp:
    """`app.sync`. It opens at the first call; `close()` or the end of a `with` closes it."""

    def __init__(self, app: Bridged) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        _bridges.add(self)

    def tenant(self, name: str) -> SyncTenant:
        return SyncTenant(self, self._app.tenant(name))

    @property
    def default(self) -> SyncTenant:
        """The handle of the default tenant. Raises ConfigError if the app has none."""
        return SyncTenant(self, self._app.default)

    enqueue = OfDefault(SyncTenant.enqueue)
    enqueue_many = OfDefault(SyncTenant.enqueue_many)
    cancel = OfDefault(SyncTenant.cancel)
    get = OfDefault(SyncTenant.get)
    find = OfDefault(SyncTenant.find)
    reprioritise = OfDefault(SyncTenant.reprioritise)
    reschedule = OfDefault(SyncTenant.reschedule)
    replay = OfDefault(SyncTenant.replay)
    counts = OfDefault(SyncTenant.counts)
    scope = OfDefault(SyncTenant.scope)
    queue = OfDefault(SyncTenant.queue)
    group = OfDefault(SyncTenant.group)
    groups = OfDefault(SyncTenant.groups)
    explain = OfDefault(SyncTenant.explain)
    signal = OfDefault(SyncTenant.signal)
    journal = OfDefault(SyncTenant.journal)
    schedule = OfDefault(SyncTenant.schedule)
    schedules = OfDefault(SyncTenant.schedules)
    webhook = OfDefault(SyncTenant.webhook)
    webhooks = OfDefault(SyncTenant.webhooks)
    source = OfDefault(SyncTenant.source)
    sources = OfDefault(SyncTenant.sources)
    start = OfDefault(SyncTenant.start)
    flow = OfDefault(SyncTenant.flow)
    flows = OfDefault(SyncTenant.flows)

    @property
    def blobs(self) -> SyncBlobs:
        """As `SyncTenant.blobs`, of the default tenant."""
        return self.default.blobs

    @overload
    def wait(self, job: Enqueued[T], *, timeout: float = 30.0) -> T: ...
    @overload
    def wait(self, job: str, *, timeout: float = 30.0) -> Any: ...
    @overload
    def wait(self, job: Enqueued[Any] | str, *, as_: type[R], timeout: float = 30.0) -> R: ...
    @overload
    def wait(self, job: Enqueued[Any] | str, *, as_: UnionType, timeout: float = 30.0) -> Any: ...
    def wait(self, job: Enqueued[Any] | str, *, as_: Any = None, timeout: float = 30.0) -> Any:
        """As `SyncTenant.wait`, of the default tenant."""
        return self.default.wait(job, as_=as_, timeout=timeout)

    def platform(self) -> SyncPlatform:
        return SyncPlatform(self, self._app.platform())

    def run_now(self, job: AnyJob[T], *, tenant: str = "now") -> T:
        return self.call(self._app.run_now(job, tenant=tenant))

    def call(self, work: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Runs a coroutine on the bridge's loop and waits for it. Raises TimeoutError after
        `timeout_s`, if given, even if the loop is blocked.
        """
        try:
            self._check_caller()
            # Under the lock, so that the call is submitted before `close` shuts the loop down.
            with self._lock:
                loop, thread = self._opened()
                answer = asyncio.run_coroutine_threadsafe(_kept_in(work), loop)
        except BaseException:
            work.close()
            raise
        try:
            result = _answered(answer, thread, timeout_s)
        except CancelledError:
            raise StoreUnavailable(
                store="app.sync", why="it was closed while the call waited"
            ) from None
        if isinstance(result, _Exit):
            raise result.error
        return result

    def close(self) -> None:
        """Closes the bridge's use of the store and ends the thread. May be called twice."""
        if threading.current_thread() is self._thread:
            raise _own_loop()
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            try:
                _answered(asyncio.run_coroutine_threadsafe(self._wind_up(), loop), thread)
            finally:
                _end(loop, thread)

    async def _wind_up(self) -> None:
        """Closes the store and ends calls that still wait, so that no thread hangs."""
        try:
            await self._app.close()
        finally:
            waiting = asyncio.all_tasks() - {asyncio.current_task()}
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def __enter__(self) -> SyncApp:
        self._check_caller()
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

    def _opened(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        """The running loop and its thread, started if necessary. Call it under the lock."""
        if self._loop is None or self._thread is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="holdfast-sync", daemon=True)
            thread.start()
            try:
                _answered(asyncio.run_coroutine_threadsafe(self._app.open(), loop), thread)
            except BaseException:
                _end(loop, thread)
                raise
            self._loop, self._thread = loop, thread
        return self._loop, self._thread

    def _check_caller(self) -> None:
        """Refuses a caller that runs an event loop, which waiting would block."""
        if threading.current_thread() is self._thread:
            raise _own_loop()
        if asyncio._get_running_loop() is not None:
            why = (
                "was called inside a coroutine and would block its event loop: use"
                " `await app.tenant(...)`, or asyncio.to_thread for blocking code"
            )
            raise InvalidInput(field="app.sync", why=why)

    def _forked(self) -> None:
        """In a forked child: drops the parent's thread and its lock, which may be held for ever."""
        if self._loop is not None:
            _parents.append(self._loop)
        self._lock = threading.Lock()
        self._loop = self._thread = None


_bridges: WeakSet[SyncApp] = WeakSet()
_parents: list[asyncio.AbstractEventLoop] = []
"""Keeps the parent's loops alive in the child, because collecting one closes a shared selector."""


def _after_fork() -> None:
    for bridge in list(_bridges):
        bridge._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _answered(answer: Future[T], thread: threading.Thread, timeout_s: float | None = None) -> T:
    """Waits for the answer of a call; raises an error if the thread has ended without one."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = LOOK_S if end is None else min(LOOK_S, end - time.monotonic())
        try:
            return answer.result(max(0.0, left_s))
        except TimeoutError:
            if answer.done():  # The error of the call itself, or its answer arrived just now.
                return answer.result()
        if not thread.is_alive():
            raise StoreUnavailable(store="app.sync", why="its thread has ended; call close()")
        if end is not None and time.monotonic() >= end:
            answer.cancel()
            raise TimeoutError


class _Exit(msgspec.Struct, frozen=True):
    """Wraps an exception that would end the loop for all other callers."""

    error: BaseException


async def _kept_in(work: Coroutine[Any, Any, T]) -> T | _Exit:
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        return _Exit(error)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def _own_loop() -> StoreUnavailable:
    return StoreUnavailable(store="app.sync", why="was called from its own event loop: use await")
