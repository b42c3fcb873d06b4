"""The worker: claims jobs, runs them and acks them. `run` lists its parts."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextvars import copy_context
from importlib.util import find_spec
from itertools import count
from typing import Any

import msgspec

from holdfast.ack import Acker, PendingAck
from holdfast.app import App
from holdfast.config import Config
from holdfast.context import StopReason
from holdfast.core.bounds import (
    ACKS_PENDING_MAX,
    BATCH_MAX,
    QUEUE_MAX,
    TENANT_MAX,
    WORKER_MAX,
    within,
)
from holdfast.core.check import check_name
from holdfast.core.flow import QUEUE as FLOWS
from holdfast.core.job import Abandoned, Failed, Outcome
from holdfast.core.schedule import QUEUE as TICKS
from holdfast.job_logger import log_fields
from holdfast.lifespan import opened
from holdfast.loop import keep_turning
from holdfast.store import Acked, Watch
from holdfast.upkeep.leader import Upkeep
from holdfast.webhooks.definition import QUEUE as WEBHOOKS
from holdfast.worker.adapt import Adapt, Decision
from holdfast.worker.claim import Claimer
from holdfast.worker.closing import closing_entries
from holdfast.worker.lease import ActiveJob, ActiveJobs, Heartbeat, HeartbeatThread
from holdfast.worker.log import jobs, logger
from holdfast.worker.lookout import Lookout
from holdfast.worker.pool import Threads
from holdfast.worker.prefetch import WAIT_S, Prefetch
from holdfast.worker.presence import Presence
from holdfast.worker.run import Runner
from holdfast.worker.stall import Stalls
from holdfast.worker_registry import fresh_name

JOBS_IN_A_ROW = 16
"""How many jobs that never wait a task runs before it lets other tasks run."""

GRACE_S = 5.0
"""How long cancelled handlers may take to clean up before their leases are released anyway."""


class Worker:
    """Runs jobs of some tenants (None: all) and queues (None: those of its types; "*": all)."""

    def __init__(
        self,
        app: App,
        *,
        tenants: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        name: str | None = None,
        **settings: Any,
    ) -> None:
        self.app = app
        given = {**msgspec.structs.asdict(app.config), **settings}
        self.config = Config.of(**given)
        self.name = check_name("worker", name or fresh_name(), WORKER_MAX)
        if tenants is not None:
            tenants = [check_name("tenants", tenant, TENANT_MAX) for tenant in tenants]
        queues = app.registry.queues() if queues is None else queues
        queues = tuple(check_name("queues", queue, QUEUE_MAX) for queue in queues)
        if app.store.capabilities.steps and FLOWS not in queues:
            queues = (*queues, FLOWS)
        if self.config.ticks and TICKS not in queues:
            queues = (*queues, TICKS)
        if self.config.webhooks and WEBHOOKS not in queues and find_spec("aiohttp"):
            queues = (*queues, WEBHOOKS)
        within("tenants", len(tenants or ()), BATCH_MAX)  # Every claim names them all.
        within("queues", len(queues), BATCH_MAX)
        self.watch = Watch(
            tenants=None if tenants is None else tuple(tenants),
            queues=None if "*" in queues else queues,
        )
        self.active_jobs = ActiveJobs()
        self.running = 0
        self.concurrency = self.config.concurrency
        """The current concurrency."""
        self.why = "as set"
        """The reason for the current concurrency."""
        self._adapt = Adapt(self, self.config)
        self._prefetch = Prefetch(self.config)
        self._presence = Presence(self)
        self._claimer = self._make_claimer()
        self._buffer: deque[ActiveJob] = deque()
        self._suspects: deque[ActiveJob] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming = False
        """Whether a task was created that has not started yet."""
        self._alone = False
        self._returned = 0
        """Jobs released so far because the worker is stopping."""
        self._wary = False
        """Whether the last claim returned a suspect; the next claim then takes one job only."""
        self._stop = asyncio.Event()
        self._quiet = asyncio.Event()

    # -- life ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Starts the drain: no new claims, and running jobs may finish within `drain_s`."""
        self._stop.set()

    async def run(self) -> None:
        """Runs jobs until stopped, then drains. Returns when every lease is acked or released, and
        the app's lifespan is closed.
        """
        async with self.app, opened(self.app.lifespan, self.app, self._stop) as state:
            await self.app.register_schedules()
            await self.app.register_sources()
            self._threads = Threads(self.config.concurrency)
            self._runner = Runner(self.app, self._threads, self.config, state)
            self._acker = Acker(self.app.store, self.app.announcer)
            heartbeats = HeartbeatThread(self._background(), died=self.stop)
            heartbeats.start()
            logger.info("worker %s: started on queues %s", self.name, ", ".join(self._queues()))
            adapting = self._adapting()
            try:
                await self._claimer.run(self._stop)
                await self._drain(self.config.drain_s)
            except BaseException:
                self.stop()  # Cancelled or failed: release the leases at once.
                await self._drain(0.0)
                raise
            finally:
                await asyncio.gather(*adapting)
                await heartbeats.stop()
                self._threads.close()
                logger.info("worker %s: stopped", self.name)

    @property
    def ready(self) -> bool:
        """Whether the worker runs and the store answers; for readiness probes."""
        answering = self._claimer.answering and self._presence.answering
        return answering and not self._stop.is_set()

    def _adapting(self) -> list[asyncio.Task[None]]:
        if not self._adapt.on:
            return []
        return [asyncio.get_running_loop().create_task(keep_turning(self._adapt, self._stop))]

    def adapt(self, decision: Decision) -> None:
        """Changes the concurrency. Jobs that are running already may finish."""
        if decision.concurrency != self.concurrency:
            words = "worker %s: concurrency %d instead of %d: %s"
            logger.info(words, self.name, decision.concurrency, self.concurrency, decision.why)
        self.concurrency, self.why = decision.concurrency, decision.why
        self._start()
        self._claimer.roomy.set()

    def _make_claimer(self) -> Claimer:
        return Claimer(
            store=self.app.store,
            worker=self.name,
            watch=self.watch,
            lease_s=self.config.lease_s,
            poll_s=self.config.poll_s,
            room=self._room,
            take=self._take,
        )

    def _background(self) -> Any:
        """The work of the heartbeat thread: heartbeats, checks for cancels, presence, detection of
        a blocked loop and, if elected, the upkeep.
        """
        store, config = self.app.store, self.config
        heartbeat = Heartbeat(store, self.active_jobs, config.lease_s, config.beat_s)
        lookout = Lookout(store, self.active_jobs, heartbeat)
        presence, stalls = self._presence, Stalls(self.active_jobs)
        blobs = self.app.app_blobs
        bucket = None if blobs is None else blobs.bucket
        upkeep = Upkeep(store, config, self.name, bucket) if config.upkeep else None

        async def work(stop: asyncio.Event) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(heartbeat.run(stop))
                group.create_task(lookout.run(stop))
                group.create_task(presence.run(stop))
                group.create_task(stalls.run(stop))
                if upkeep is not None:
                    group.create_task(upkeep.run(stop))

        return work

    def _queues(self) -> Sequence[str]:
        return self.watch.queues or ("*",)

    # -- leases ----------------------------------------------------------------------------------

    def _room(self) -> int:
        """How many more leases may be claimed now.

        An idle slot is filled at once. The buffer behind the slots is filled only when half of the
        total is free, so that a busy worker claims in batches.
        """
        if self._suspects or self._alone or self._acker.pending >= ACKS_PENDING_MAX:
            return 0
        capacity = self.concurrency + self._prefetch.most(self.concurrency)
        free = capacity - self.running - len(self._buffer)
        starving = not self._buffer and self.running < self.concurrency
        if not starving and free * 2 < capacity:
            return 0
        return 1 if self._wary else free

    def _take(self, active_jobs: list[ActiveJob]) -> None:
        self.active_jobs.add(active_jobs)
        for active in active_jobs:
            (self._suspects if _suspect(active) else self._buffer).append(active)
        self._wary = bool(self._suspects)
        self._start()
        if len(self._buffer) > self._prefetch.least(self.concurrency):
            asyncio.get_running_loop().call_later(WAIT_S, self._release_waiting)

    def _release_waiting(self) -> None:
        """Releases jobs that were prefetched because jobs ended fast, if these did not."""
        since_s, number = time.monotonic() - WAIT_S, 0
        while len(self._buffer) > self._prefetch.least(self.concurrency):
            if self._buffer[-1].since_s > since_s:
                break
            self._ack(self._buffer.pop(), Abandoned())
            number += 1
        if number:
            logger.info("worker %s: released %s, which waited too long", self.name, jobs(number))

    def _start(self) -> None:
        """Starts the jobs that may run now. A suspect runs first and alone, so that it harms no
        other.
        """
        if self._stop.is_set():
            return
        if self._suspects:
            self._shed()
            if len(self.active_jobs) == 1:
                self._alone = True
                self._start_task(self._suspects.popleft())
            return
        if not self._coming and self._has_next():
            self._coming = True
            self._start_task(None)

    def _shed(self) -> None:
        """Releases all jobs that have not started, except one suspect. Running jobs may finish
        first.
        """
        unstarted = len(self._suspects) - 1 + len(self._buffer)
        if unstarted:
            words = "worker %s: released %s, to run a job alone that may have killed its workers"
            logger.info(words, self.name, jobs(unstarted))
        while len(self._suspects) > 1:
            self._ack(self._suspects.pop(), Abandoned())
        while self._buffer:
            self._ack(self._buffer.pop(), Abandoned())

    # -- tasks -----------------------------------------------------------------------------------

    def _has_next(self) -> bool:
        free = self.running < self.concurrency and not self._alone
        return bool(self._buffer) and free and not (self._suspects or self._stop.is_set())

    def _start_task(self, first: ActiveJob | None) -> None:
        task = asyncio.get_running_loop().create_task(self._run_jobs(first))
        self._tasks.add(task)
        task.add_done_callback(self._closed)

    async def _run_jobs(self, active: ActiveJob | None) -> None:
        """Runs jobs one after the other while there are any. A task per job would double the cost
        of a short job.

        The next task is already scheduled while there is more to do, and starts when this one
        waits. A task whose task a job has changed (a context variable, a cancel) runs no other job.
        """
        task, clean = asyncio.current_task(), copy_context()
        assert task is not None
        if active is None:
            self._coming = False
        for number in count(1):
            if active is None:
                if not self._has_next():
                    return
                active = self._buffer.popleft()
            self.running += 1
            self._start()
            try:
                await self._work(active)
            finally:
                self._worked()
            if task.cancelling() or copy_context() != clean:
                return
            active = None
            if number % JOBS_IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _work(self, active: ActiveJob) -> None:
        started = time.monotonic()
        try:
            outcome = await self._runner.run(active)
        except Exception as error:
            # A bug of ours. Without acking it, heartbeats would keep the lease for ever.
            job = active.lease.job
            logger.exception(
                "job %s: its run failed outside its handler", job.id, extra=log_fields(job)
            )
            outcome = Failed(f"the run failed outside its handler: {error!r}")
        self._adapt.ended(time.monotonic() - started)
        self._ack(active, outcome)
        await self._runner.afterwards(active)

    def _worked(self) -> None:
        self.running -= 1
        self._prefetch.ended()
        self._alone = False
        self._claimer.roomy.set()
        if self.running == 0:
            self._quiet.set()

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a run failed outside its handler", exc_info=task.exception())
        self._start()

    def _ack(self, active: ActiveJob, outcome: Outcome | None) -> None:
        active.acking = True
        if outcome is None or (active.lost and active.answer is None):
            self.active_jobs.drop(active)
            return

        def done(_: Acked) -> None:
            self.active_jobs.drop(active)
            self._claimer.roomy.set()
            if self._suspects:
                self._start()

        self._returned += isinstance(outcome, Abandoned)
        entries = closing_entries(active, outcome)
        pending = PendingAck(active.lease, outcome, active.end_s, done, entries)
        if active.answer is not None:
            self._acker.answered(pending, active.answer)
        else:
            self._acker.submit(pending)

    # -- the end ---------------------------------------------------------------------------------

    async def _drain(self, patience_s: float) -> None:
        """Releases jobs that have not started, waits for running ones, then stops them."""
        self._returned = 0
        for waiting in (self._buffer, self._suspects):
            while waiting:
                self._ack(waiting.popleft(), Abandoned())
        if self.running:
            words = "worker %s: draining, waiting for %s, at most %g s"
            logger.info(words, self.name, jobs(self.running), patience_s)
        await self._quieted(patience_s)
        if self.running:
            words = "worker %s: %s not finished after %g s, stopping them"
            logger.warning(words, self.name, jobs(self.running), patience_s)
        for active in self.active_jobs.all():
            active.end(StopReason.SHUTDOWN)
        await self._quieted(GRACE_S)
        for active in self.active_jobs.all():
            if not active.acking:
                # Its thread or coroutine does not end; release the lease anyway.
                self._ack(active, Abandoned())
        await self._acker.idle()
        if self._returned:
            logger.info("worker %s: released %s", self.name, jobs(self._returned))

    async def _quieted(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while self.running:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            return


def _suspect(active: ActiveJob) -> bool:
    """Whether this is the last attempt and every earlier one ended with an expired lease."""
    job = active.lease.job
    return job.lapses > 0 and job.attempt >= job.max_attempts and job.lapses >= job.attempt - 1
