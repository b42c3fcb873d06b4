"""What happens when a worker is killed? Its leases stop being renewed here, and lapse.

A thread with an event loop of its own sends the heartbeats, so that a handler that blocks the
worker's loop does not cost it its leases. The answers tell of canceled jobs and lost leases.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from holdfast.clock import micros
from holdfast.context import Context, StopReason
from holdfast.errors import HoldfastError, JobCanceled, JobNotFound, StoreError
from holdfast.job import Lease
from holdfast.limits import BATCH_MAX
from holdfast.loop import sleep_unless
from holdfast.store import Extension, Store
from holdfast.worker import log
from holdfast.worker.log import logger

AGAIN_S = 0.25
"""Pause after a heartbeat that did not reach the store."""


JOIN_S = 10.0
"""How long a stopping worker waits for heartbeats and upkeep to end their calls."""


LOST = frozenset({StopReason.CANCELED, StopReason.LEASE_LOST})
"""Nothing that a run stopped for one of these did will be accepted."""


class Holding:
    """One lease in this worker, from its claim until the store answered its outcome."""

    __slots__ = (
        *("context", "ending", "lease", "sent_progress", "sent_s", "settling", "since_s", "task"),
        "until_s",
    )

    def __init__(self, lease: Lease, until_s: float) -> None:
        self.lease = lease
        self.since_s = time.monotonic()
        self.until_s = until_s
        """The monotonic instant until which the lease surely holds."""
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.ending: StopReason | None = None
        self.settling = False
        self.sent_progress: str | None = None
        self.sent_s = self.since_s
        """When it was sent."""

    @property
    def unsent(self) -> str | None:
        """Progress that the store does not have yet."""
        progress = None if self.context is None else self.context.latest_progress
        return None if progress == self.sent_progress else progress

    def end_s(self) -> float:
        """`until_s` as it is when asked."""
        return self.until_s

    @property
    def lost(self) -> bool:
        """The store accepts no outcome of this run any more."""
        return self.ending in LOST

    def end(self, ending: StopReason) -> None:
        """Stops the run: coroutines and processes are cancelled, threads are told."""
        if self.ending is None:
            self.ending = ending
            if self.context is not None:
                self.context.stop(ending)
            if self.task is None or self.context is None or self.settling:
                # Not begun, or done. A task cancelled before its first step would never run, and
                # so never settle; the mark ends it as soon as it begins.
                return
            self.task.cancel()


class Holdings:
    """The leases of a worker. Changed by its loop, read by the heartbeat's thread."""

    def __init__(self) -> None:
        self._held: dict[str, Holding] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, holdings: Iterable[Holding]) -> None:
        with self._lock:
            for holding in holdings:
                self._held[holding.lease.token] = holding

    def drop(self, holding: Holding) -> None:
        with self._lock:
            self._held.pop(holding.lease.token, None)

    def all(self) -> list[Holding]:
        with self._lock:
            return list(self._held.values())


class Heartbeat:
    """Renews what is held, every `beat_s`, in batches."""

    def __init__(self, store: Store, holdings: Holdings, lease_s: float, beat_s: float) -> None:
        self._store = store
        self._holdings = holdings
        self._lease_s = lease_s
        self._beat_s = beat_s
        self._loop = asyncio.get_running_loop()

    async def run(self, stop: asyncio.Event) -> None:
        delay = self._beat_s
        while True:
            await sleep_unless(stop, delay)
            if stop.is_set():
                return
            try:
                await self.renew(self._holdings.all())
                delay = self._beat_s
            except StoreError as error:
                logger.warning("heartbeat did not reach the store: %s", error)
                delay = min(AGAIN_S, self._beat_s)
            except Exception:
                # Without heartbeats every lease would lapse while its handler still runs.
                logger.exception("heartbeat failed")
                delay = min(AGAIN_S, self._beat_s)

    async def renew(self, held: Sequence[Holding]) -> None:
        """Renews leases, sends what is new of their progress, and ends the runs of lost ones."""
        for start in range(0, len(held), BATCH_MAX):
            batch = held[start : start + BATCH_MAX]
            sent_s = time.monotonic()
            until_s = sent_s + self._lease_s
            extensions = [self._extension(holding) for holding in batch]
            answers = await self._store.extend(extensions)
            for holding, extension, answer in zip(batch, extensions, answers, strict=True):
                if answer.error is None:
                    holding.until_s = until_s
                    if extension.progress is not None:
                        holding.sent_progress, holding.sent_s = extension.progress, sent_s
                else:
                    self._lost(holding, answer.error)

    def _extension(self, holding: Holding) -> Extension:
        job = holding.lease.job
        return Extension(
            tenant=job.tenant,
            id=job.id,
            token=holding.lease.token,
            lease_us=micros(self._lease_s),
            progress=holding.unsent,
        )

    def _lost(self, holding: Holding, error: HoldfastError) -> None:
        if holding.settling:
            return  # Our own ack was faster, or will be refused itself.
        why = _why_lost(holding, error)
        if holding.ending is None:
            log.ended(holding.lease.job, why, error)
        self._loop.call_soon_threadsafe(holding.end, why)


def _why_lost(holding: Holding, error: HoldfastError) -> StopReason:
    """A cancel of a job that is not kept leaves no record. Nothing else deletes a job whose lease
    still holds.
    """
    deleted = isinstance(error, JobNotFound) and time.monotonic() < holding.until_s
    canceled = deleted or isinstance(error, JobCanceled)
    return StopReason.CANCELED if canceled else StopReason.LEASE_LOST


class Attendant:
    """A thread with an event loop for what must go on while a handler blocks the worker's loop."""

    def __init__(
        self, work: Callable[[asyncio.Event], Awaitable[None]], died: Callable[[], None]
    ) -> None:
        self._work = work
        self._died = died
        """Called on the worker's loop if the work breaks down: draining loses no leases."""
        self._home = asyncio.get_running_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="holdfast-attendant", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    async def stop(self) -> None:
        """Ends the work in hand and waits for the thread, unless the store leaves it hanging."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, JOIN_S)
        if self._thread.is_alive():
            logger.error("a call to the store did not return within %.0f s; going on", JOIN_S)

    def _main(self) -> None:
        try:
            asyncio.run(self._attend())
        except BaseException:
            logger.critical("heartbeats and upkeep broke down; the worker drains", exc_info=True)
            self._ready.set()
            self._home.call_soon_threadsafe(self._died)

    async def _attend(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._work(self._stop)
