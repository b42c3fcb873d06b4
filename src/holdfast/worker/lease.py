"""Heartbeats: renew the leases of a worker. The leases of a killed worker expire.

A thread with its own event loop sends the heartbeats, so that a handler that blocks the worker's
loop does not lose leases. The answers report canceled jobs and lost leases.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.context import Context, StopReason
from holdfast.core.bounds import BATCH_MAX
from holdfast.core.clock import micros, seconds
from holdfast.core.errors import (
    HoldfastError,
    JobCanceled,
    JobNotFound,
    JournalFull,
    KeyUnavailable,
    StoreError,
)
from holdfast.core.job import Completed, Lease
from holdfast.core.journal import Entry
from holdfast.journal import StoredJournal
from holdfast.loop import Outage, sleep_unless
from holdfast.store import Acked, Extension, Store
from holdfast.worker import log
from holdfast.worker.log import logger

if TYPE_CHECKING:
    from holdfast.worker.completion import OwnCompletion

AGAIN_S = 0.25
"""Pause after a heartbeat that did not reach the store."""


JOIN_S = 10.0
"""How long a stopping worker waits for heartbeats and upkeep to end their calls."""


LOST = frozenset({StopReason.CANCELED, StopReason.LEASE_LOST})
"""The store accepts no outcome of a run that is stopped for one of these reasons."""


class ActiveJob:
    """One lease in this worker, from its claim until the store has answered its outcome."""

    __slots__ = (
        *("context", "ending", "lease", "sent_progress", "sent_s", "acking", "since_s", "task"),
        *("_progress", "ahead_us", "entries", "error", "journal", "remembers", "started_s"),
        *("until_s", "answer", "completion", "outcome"),
    )

    def __init__(self, lease: Lease, until_s: float) -> None:
        self.lease = lease
        self.since_s = time.monotonic()
        self.until_s = until_s
        """The monotonic instant until which the lease is certainly valid."""
        self.ahead_us = lease.until - micros(until_s)
        """The store's clock minus the monotonic one; the call of the claim makes it too large."""
        self.started_s = self.since_s
        """When its handler was called."""
        self.remembers = False
        """Whether the store has journals."""
        self.journal: StoredJournal | None = None
        """Made when the handler first asks for it."""
        self.error: BaseException | None = None
        """What the handler raised."""
        self.entries: tuple[Entry, ...] = ()
        """What the ack writes to the journal."""
        self.completion: OwnCompletion | None = None
        """Made when the handler first asks for it."""
        self.answer: Acked | None = None
        """The store's, where the handler has completed the job itself, with this outcome."""
        self.outcome: Completed | None = None
        self.context: Context | None = None
        """While its handler runs."""
        self._progress: str | None = None
        """The last progress of a handler that has ended."""
        self.task: asyncio.Task[None] | None = None
        self.ending: StopReason | None = None
        self.acking = False
        self.sent_progress: str | None = None
        self.sent_s = self.since_s
        """When the progress was last sent."""

    @property
    def unsent(self) -> str | None:
        """Progress that was not sent to the store yet."""
        context = self.context  # Another thread may take it away.
        progress = self._progress if context is None else context.latest_progress
        return None if progress == self.sent_progress else progress

    @property
    def has_news(self) -> bool:
        """Whether there is something that a heartbeat may store."""
        return self.unsent is not None or (self.journal is not None and self.journal.has_unsent)

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """Notes an accepted extension."""
        self.until_s = max(self.until_s, sent_s + lease_s)

    def end_s(self) -> float:
        """The current value of `until_s`."""
        return self.until_s

    def left_s(self) -> float:
        """How long the run may certainly go on: until the end of its lease or its time-out."""
        timeout_us = self.lease.job.rules.timeout_us
        end_s = self.until_s
        if timeout_us is not None:
            end_s = min(end_s, self.started_s + seconds(timeout_us))
        return max(0.0, end_s - time.monotonic())

    def leave(self) -> None:
        """Forgets the context of a handler that has ended. Each refers to the other: without this
        only the collector of cycles would free what belongs to a run.
        """
        if self.context is not None:
            self._progress = self.context.latest_progress
            self.context = None

    @property
    def lost(self) -> bool:
        """Whether the store accepts no outcome of this run any more."""
        return self.ending in LOST

    def end(self, ending: StopReason) -> None:
        """Stops the run: cancels a coroutine or a process, and notifies a thread."""
        if self.ending is None:
            self.ending = ending
            if self.context is not None:
                self.context.stop(ending)
            if self.task is None or self.context is None or self.acking:
                # Not started, or done. A task cancelled before its first step would never run and
                # never be acked. The mark ends it as soon as it starts.
                return
            self.task.cancel()


class ActiveJobs:
    """The leases of a worker. Its loop changes them, the heartbeat thread reads them."""

    def __init__(self) -> None:
        self._held: dict[str, ActiveJob] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, active_jobs: Iterable[ActiveJob]) -> None:
        with self._lock:
            for active in active_jobs:
                self._held[active.lease.token] = active

    def drop(self, active: ActiveJob) -> None:
        with self._lock:
            self._held.pop(active.lease.token, None)

    def all(self) -> list[ActiveJob]:
        with self._lock:
            return list(self._held.values())


class Heartbeat:
    """Renews all leases every `beat_s`, in batches."""

    def __init__(
        self, store: Store, active_jobs: ActiveJobs, lease_s: float, beat_s: float
    ) -> None:
        self._store = store
        self._active = active_jobs
        self._lease_s = lease_s
        self._beat_s = beat_s
        self._loop = asyncio.get_running_loop()

    async def run(self, stop: asyncio.Event) -> None:
        delay = self._beat_s
        outage = Outage(logger, "renewing leases")
        while True:
            await sleep_unless(stop, delay)
            if stop.is_set():
                return
            try:
                await self.renew(self._active.all())
                delay = self._beat_s
                outage.over()
            except StoreError as error:
                outage.seen(error)
                delay = min(AGAIN_S, self._beat_s)
            except Exception:
                # Without heartbeats every lease would expire while its handler still runs.
                logger.exception("heartbeat failed")
                delay = min(AGAIN_S, self._beat_s)

    async def renew(self, held: Sequence[ActiveJob]) -> None:
        """Renews leases, sends new progress, and stops the runs of lost leases."""
        for start in range(0, len(held), BATCH_MAX):
            batch = held[start : start + BATCH_MAX]
            sent_s = time.monotonic()
            until_s = sent_s + self._lease_s
            extensions = [self._extension(active) for active in batch]
            try:
                answers = await self._store.extend(extensions)
            except BaseException:
                for active, extension in zip(batch, extensions, strict=True):
                    if active.journal is not None:
                        active.journal.returned(extension.entries)
                raise
            for active, extension, answer in zip(batch, extensions, answers, strict=True):
                if answer.error is None:
                    active.until_s = until_s
                    if extension.progress is not None:
                        active.sent_progress, active.sent_s = extension.progress, sent_s
                elif isinstance(answer.error, KeyUnavailable):  # The lease is renewed.
                    active.until_s = until_s
                    if active.journal is not None:
                        active.journal.returned(extension.entries)
                elif not isinstance(answer.error, JournalFull):
                    self._lost(active, answer.error)

    def _extension(self, active: ActiveJob) -> Extension:
        job = active.lease.job
        return Extension(
            tenant=job.tenant,
            id=job.id,
            token=active.lease.token,
            lease_us=micros(self._lease_s),
            progress=active.unsent,
            entries=() if active.journal is None else active.journal.unsent(),
        )

    def _lost(self, active: ActiveJob, error: HoldfastError) -> None:
        if active.acking:
            return  # Our own ack was faster, or will be refused too.
        why = _why_lost(active, error)
        if active.ending is None:
            log.ended(active.lease.job, why, error)
        self._loop.call_soon_threadsafe(active.end, why)


def _why_lost(active: ActiveJob, error: HoldfastError) -> StopReason:
    """Whether a missing job was canceled. A canceled job that is not kept leaves no record, and
    nothing else deletes a job with a valid lease.
    """
    deleted = isinstance(error, JobNotFound) and time.monotonic() < active.until_s
    canceled = deleted or isinstance(error, JobCanceled)
    return StopReason.CANCELED if canceled else StopReason.LEASE_LOST


class HeartbeatThread:
    """A thread with an event loop for the work that must continue while a handler blocks the
    worker.
    """

    def __init__(
        self, work: Callable[[asyncio.Event], Awaitable[None]], died: Callable[[], None]
    ) -> None:
        self._work = work
        self._died = died
        """Called on the worker's loop if the thread fails; the worker then drains and loses no
        leases.
        """
        self._home = asyncio.get_running_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="holdfast-heartbeat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    async def stop(self) -> None:
        """Ends the current work and waits for the thread, unless a call to the store hangs."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, JOIN_S)
        if self._thread.is_alive():
            logger.error(
                "a call to the store did not return within %.0f s; not waiting any longer", JOIN_S
            )

    def _main(self) -> None:
        try:
            asyncio.run(self._work_here())
        except BaseException:
            logger.critical("heartbeats and upkeep failed; the worker drains", exc_info=True)
            self._ready.set()
            self._home.call_soon_threadsafe(self._died)

    async def _work_here(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._work(self._stop)
