"""The journal of a run: what its handler remembers, and what earlier attempts have remembered.

A handler runs from its beginning in each attempt. A step whose result is stored returns that result
at once, so the handler soon is where the last attempt was. What it remembers is written under its
lease, so a worker that has lost the lease cannot write.

Parking raises `Park`, which no `except Exception` catches. The runner turns it into the outcome.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast.context import Fail
from holdfast.core.backoff import Delays
from holdfast.core.blob import is_offloaded
from holdfast.core.bounds import (
    ENTRIES_MAX,
    ENTRY_NAME_MAX,
    INSTANT_MAX,
    LOG_BYTES_MAX,
    STEP_BYTES_MAX,
)
from holdfast.core.check import check_name, check_seconds
from holdfast.core.clock import Micros, instant, micros
from holdfast.core.codec import JsonCodec
from holdfast.core.edge_bounds import OFFLOADED_MAX
from holdfast.core.errors import InvalidInput, JournalFull, KeyUnavailable, StoreError
from holdfast.core.job import Lease, Parked
from holdfast.core.journal import Entry, EntryKind, Join, Key, await_signal, join_of
from holdfast.journal_map import Children, Making
from holdfast.payload.app_blobs import AppBlobs, needed
from holdfast.steps import StepOptions, TimedOut, pause_s, tried
from holdfast.store import Extended, Extension
from holdfast.typed import result_of

R = TypeVar("R")

RETRY_FIRST_S = 0.05
RETRY_MOST_S = 2.0
FINISH_S = 5.0
"""How long a stopped run may take to store the result of a step that has run already."""


class Park(BaseException):
    """Ends a run whose job sleeps or waits. Not an Exception, so that handlers let it pass."""

    def __init__(self, outcome: Parked, *entries: Entry) -> None:
        super().__init__("the job is parked")
        self.outcome = outcome
        self.entries = entries


class Session(msgspec.Struct, frozen=True):
    """What a run's journal is written with."""

    lease: Lease
    lease_us: Micros
    ahead_us: Micros
    """The store's clock minus the monotonic one, at most the length of the claim too much."""
    extend: Callable[[Extension], Awaitable[Extended]]
    until_s: Callable[[], float]
    """The monotonic instant until which the lease is certainly valid."""
    renewed: Callable[[float], None]
    """Told the monotonic instant at which an extension was sent that was accepted."""
    children: Children
    blobs: AppBlobs | None = None
    """Where large results of steps are."""


class StoredJournal:
    """The journal of one run. Steps may run at the same time."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        lease = session.lease
        self._session = session
        self._known: dict[Key, Entry] = {(one.kind, one.name): one for one in lease.journal}
        self._used: set[str] = set()
        self._positions: dict[str, bytes] = {}
        """Where cursors have come to, as far as that is not stored yet."""
        self._lines: list[str] = []
        self._dropped = 0
        self._lock = threading.Lock()
        """Heartbeats take positions and lines from another thread."""
        self._codec = JsonCodec()
        self._loop = loop

    # -- steps -----------------------------------------------------------------------------------

    async def step(self, name: str, fn: Any, args: Any, kwargs: Any, options: StepOptions) -> Any:
        """See `Context.step`."""
        found = self._begin(name)
        if found is not None:
            return self._read(await self._body(found), result_of(_plain(fn)))

        async def run() -> Any:
            if inspect.iscoroutinefunction(fn):
                return await fn(*args, **kwargs)
            result = await asyncio.to_thread(fn, *args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        result = await tried(run, options)
        return await self._keep(name, result, result_of(_plain(fn)))

    def step_here(self, name: str, fn: Any, args: Any, kwargs: Any, options: StepOptions) -> Any:
        """See `SyncContext.step`: the same in the handler's own thread."""
        if inspect.iscoroutinefunction(fn):
            return self.block(self.step(name, fn, args, kwargs, options))
        if options.timeout is not None:
            why = "works for coroutine functions only: a thread cannot be stopped"
            raise InvalidInput(field="timeout", why=why)
        found = self._begin(name)
        if found is not None:
            return self._read(self.block(self._body(found)), result_of(_plain(fn)))
        for number in range(1, options.tries + 1):
            try:
                result = fn(*args, **kwargs)
                break
            except Exception:
                if number == options.tries:
                    raise
                self.block(asyncio.sleep(pause_s(options, number)))
        return self.block(self._keep(name, result, result_of(_plain(fn))))

    def _begin(self, name: str) -> Entry | None:
        """What an earlier attempt remembers of the step. Refuses a name that this run has used."""
        check_name("name", name, ENTRY_NAME_MAX)
        with self._lock:
            if name in self._used:
                why = f"{name!r} was used before in this run; each step needs a name of its own"
                raise InvalidInput(field="name", why=why)
            self._used.add(name)
        return self._known.get((EntryKind.STEP, name))

    async def _body(self, step: Entry) -> bytes:
        """The result of a step, also if that was offloaded."""
        if not is_offloaded(step.value):
            return step.value
        return await needed(self._session.blobs).step_of(self._session.lease.job, step)

    async def _keep(self, name: str, result: Any, kind: Any) -> Any:
        """Stores the result of a step; returns it as a later attempt would find it."""
        most = STEP_BYTES_MAX if self._session.blobs is None else OFFLOADED_MAX
        value = self._encoded(name, result, most)
        await self._finish(self._remember(name, value))
        return self._read(value, kind)

    async def _remember(self, name: str, value: bytes) -> None:
        session = self._session
        if session.blobs is not None:
            value = await session.blobs.step(session.lease.job, name, value, session.until_s)
        await self.write(Entry(EntryKind.STEP, name, value))

    def _encoded(self, name: str, result: Any, most: int = STEP_BYTES_MAX) -> bytes:
        try:
            value = self._codec.encode(result)
        except Exception as error:
            raise Fail(f"the result of step {name!r} cannot be stored: {error}") from error
        if len(value) > most:
            why = f"the result of step {name!r} has {len(value)} bytes, at most {most}"
            raise Fail(f"{why} are allowed; store it elsewhere and return a reference")
        return value

    def _read(self, value: bytes, kind: Any) -> Any:
        """The value as this type, or as plain data if it does not fit."""
        try:
            return self._codec.decode(value, kind)
        except Exception:
            return self._codec.decode(value, Any)

    # -- parking ---------------------------------------------------------------------------------

    def sleep(self, name: str, length_s: float | None, until: datetime | None) -> None:
        """See `Context.sleep`."""
        done = self._begin(name)
        length_us = None if length_s is None else micros(length_s)
        if done is None:
            value = msgspec.json.encode({"sleeps_us": length_us})
            at = None if until is None else instant(until)
            raise Park(Parked(length_us or 0, at), Entry(EntryKind.STEP, name, value))
        entry = self._known[EntryKind.STEP, name]
        end = instant(until) if until is not None else entry.at + (length_us or 0)
        if end > self.now():
            raise Park(Parked(run_at=end))  # It was woken early.

    async def wait_for(self, name: str, kind: Any, timeout: float | None) -> Any:
        """See `Context.wait_for`."""
        if timeout is not None:
            check_seconds("timeout", timeout)
        if self._begin(name) is not None:  # Only a wait that timed out is a step.
            return TimedOut()
        signal = self._known.get((EntryKind.SIGNAL, name))
        if signal is not None:
            return self._signaled(name, signal.value, kind)
        length_us = None if timeout is None else micros(timeout)
        begun = self._known.get((EntryKind.POSITION, name))
        if begun is None:
            value = msgspec.json.encode({"waits_us": length_us})
            entry = Entry(EntryKind.POSITION, name, value)
            raise Park(_waiting(name, length_us), entry)
        if length_us is None:
            raise Park(_waiting(name, None))
        left = begun.at + length_us - self.now()
        if left > 0:
            raise Park(_waiting(name, left))
        await self.write(Entry(EntryKind.STEP, name, b'{"timed_out":true}'))
        return TimedOut()

    def _signaled(self, name: str, value: bytes, kind: Any) -> Any:
        try:
            return self._codec.decode(value, kind)
        except Exception as error:
            wanted = getattr(kind, "__name__", kind)
            raise Fail(f"the signal {name!r} is not {wanted}: {error}") from error

    def now(self) -> Micros:
        """The instant of the store's clock; it may be the length of one call ahead."""
        return micros(time.monotonic()) + self._session.ahead_us

    # -- children --------------------------------------------------------------------------------

    async def map(self, name: str, job_type: Any, items: Any, on_failure: str) -> list[Any]:
        """See `Context.map`."""
        if on_failure not in ("raise", "collect"):
            why = f"must be 'raise' or 'collect', got {on_failure!r}"
            raise InvalidInput(field="on_failure", why=why)
        total = (await self.fan_out(name, job_type, items)).total
        return await self._session.children.results(name, total, collect=on_failure == "collect")

    async def fan_out(self, name: str, job_type: Any, items: Any) -> Join:
        """Makes a job of each item and parks until all have ended; returns how they ended."""
        self._begin(name)
        children = self._session.children
        join = self._known.get((EntryKind.JOIN, name))
        position = self._known.get((EntryKind.POSITION, name))
        making = Making(join, position, self.write, partial(self._keep_position, name))
        total = await children.prepare(name, job_type, items, making)
        if total == 0:
            return Join(0, 0)
        if join is None or not children.complete(join):
            raise Park(children.parked(name))
        return join_of(join)

    def _keep_position(self, name: str, value: bytes | None) -> None:
        """Has the next heartbeat store a position; None: it is no longer of use."""
        with self._lock:
            self._positions.pop(name, None)
            if value is not None:
                self._positions[name] = value

    def parents(self) -> Join | None:
        """How the parents of the job have ended; None if it was enqueued without any."""
        join = self._known.get((EntryKind.JOIN, ""))
        return None if join is None else join_of(join)

    def has_signal(self, name: str) -> bool:
        """Whether a signal had come when this run began."""
        return (EntryKind.SIGNAL, name) in self._known

    # -- cursors ---------------------------------------------------------------------------------

    async def cursor(self, name: str, fetch_after: Any) -> AsyncIterator[Any]:
        """See `Context.cursor`."""
        self._begin(name)
        known = self._known.get((EntryKind.POSITION, name))
        position = None if known is None else self._read(known.value, Any)
        while True:
            found = fetch_after(position)
            found = await found if inspect.isawaitable(found) else found
            if found is None:
                return
            if not isinstance(found, tuple) or len(found) != 2:
                why = f"of {name!r} must return (page, position) or None, got {found!r:.100}"
                raise InvalidInput(field="fetch_after", why=why)
            page, position = found
            value = self._encoded(name, position)
            yield page
            self._keep_position(name, value)

    # -- the log ---------------------------------------------------------------------------------

    def log(self, text: str) -> None:
        """See `Context.log`."""
        line = str(text)
        with self._lock:
            self._lines.append(line[:LOG_BYTES_MAX])
            while len(self._lines) > 1 and sum(map(len, self._lines)) > LOG_BYTES_MAX // 4:
                self._lines.pop(0)
                self._dropped += 1

    def unsent(self) -> tuple[Entry, ...]:
        """Takes what the next heartbeat or ack is to store. `returned` gives it back."""
        with self._lock:
            if not self._positions and not self._lines:
                return ()
            names = list(self._positions)[: ENTRIES_MAX - 2]  # An ack adds an error or a step.
            entries = [Entry(EntryKind.POSITION, name, self._positions.pop(name)) for name in names]
            if self._lines:
                entries.append(Entry(EntryKind.LOG, "", _lines(self._lines, self._dropped)))
            self._lines, self._dropped = [], 0
        return tuple(entries)

    @property
    def has_unsent(self) -> bool:
        """Whether there is anything for the next heartbeat."""
        return bool(self._positions or self._lines)

    def returned(self, entries: Sequence[Entry]) -> None:
        """Takes back what did not reach the store, as far as nothing newer is there."""
        with self._lock:
            for entry in entries:
                if entry.kind is EntryKind.POSITION:
                    self._positions.setdefault(entry.name, entry.value)
                elif entry.kind is EntryKind.LOG and not self._lines:
                    self._lines = msgspec.json.decode(entry.value, type=list[str])

    # -- writing ---------------------------------------------------------------------------------

    async def write(self, *entries: Entry) -> None:
        """Stores entries under the lease. Raises what refused them, or StoreError if the store does
        not answer while the lease lasts.
        """
        session = self._session
        job = session.lease.job
        extension = Extension(
            tenant=job.tenant,
            id=job.id,
            token=session.lease.token,
            lease_us=session.lease_us,
            entries=entries,
        )
        delays = Delays(RETRY_FIRST_S, RETRY_MOST_S, chance=random.random)
        while True:
            sent_s = time.monotonic()
            try:
                answer = await session.extend(extension)
                if not isinstance(answer.error, KeyUnavailable):
                    break
                raise answer.error
            except StoreError:
                pause_s = delays.next_s()
                if time.monotonic() + pause_s >= session.until_s():
                    raise
                await asyncio.sleep(pause_s)
        if isinstance(answer.error, JournalFull):
            raise Fail(str(answer.error))
        if answer.error is not None:
            raise answer.error
        session.renewed(sent_s)

    async def _finish(self, writing: Coroutine[Any, Any, None]) -> None:
        """Awaits a write that a stop of the run must not interrupt: its effect has happened."""
        task = asyncio.ensure_future(writing)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=FINISH_S)
            raise

    def block(self, call: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine on the worker's loop, for a handler in a thread."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


def _plain(fn: Any) -> Any:
    """The function inside of partials, whose annotation says what a step returns."""
    while hasattr(fn, "func"):
        fn = fn.func
    return fn


def _waiting(name: str, length_us: Micros | None) -> Parked:
    run_at = INSTANT_MAX if length_us is None else None
    return Parked(length_us or 0, run_at, await_signal(name))


def _lines(lines: Sequence[str], dropped: int) -> bytes:
    """Lines as a log entry, which must fit."""
    shown = list(lines)
    if dropped:
        shown.insert(0, f"({dropped} lines were dropped)")
    value = msgspec.json.encode(shown)
    while len(value) > LOG_BYTES_MAX:
        shown = [line[: len(line) // 2] for line in shown]
        value = msgspec.json.encode(shown)
    return value
