"""The worker: claims what it can run, runs it, settles it. Its parts are listed in `run`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextvars import copy_context
from itertools import count
from typing import Any

import msgspec

from holdfast.ack import Acker, Settlement
from holdfast.app import App
from holdfast.check import check_name
from holdfast.config import Config
from holdfast.context import StopReason, log_fields
from holdfast.job import Abandoned, Failed, Outcome
from holdfast.limits import ACKS_PENDING_MAX, PREFETCH_MAX, QUEUE_MAX, TENANT_MAX, WORKER_MAX
from holdfast.loop import keep_turning
from holdfast.roster import fresh_name
from holdfast.store import Acked, Watch
from holdfast.upkeep.leader import Upkeep
from holdfast.worker.adapt import Adapt, Decision
from holdfast.worker.claim import Claimer
from holdfast.worker.lease import Attendant, Heartbeat, Holding, Holdings
from holdfast.worker.log import jobs, logger
from holdfast.worker.lookout import Lookout
from holdfast.worker.pool import Threads
from holdfast.worker.presence import Presence
from holdfast.worker.run import Runner
from holdfast.worker.stall import Stalls

JOBS_IN_A_ROW = 16
"""How many jobs that never wait a lane runs before others have a turn."""

GRACE_S = 5.0
"""How long cancelled handlers may take to unwind before their leases are given back without them.
"""


class Worker:
    """Works for some tenants (None: all) on some queues (None: those of its types; "*": all)."""

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
        self.watch = Watch(
            tenants=None if tenants is None else tuple(tenants),
            queues=None if "*" in queues else queues,
        )
        self.holdings = Holdings()
        self.running = 0
        self.concurrency = self.config.concurrency
        """Jobs at a time, now."""
        self.why = "as set"
        """Why it is so many."""
        self._adapt = Adapt(self, self.config)
        self._presence = Presence(self)
        self._claimer = self._make_claimer()
        self._buffer: deque[Holding] = deque()
        self._suspects: deque[Holding] = deque()
        self._lanes: set[asyncio.Task[None]] = set()
        self._coming = False
        """A lane is opened that has not begun."""
        self._alone = False
        self._returned = 0
        """Jobs given back so far because the worker stops."""
        self._wary = False
        """The last claim met a suspect: the next takes one job only."""
        self._stop = asyncio.Event()
        self._quiet = asyncio.Event()

    # -- life ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Starts the drain: no new claims; running jobs may finish within `drain_s`."""
        self._stop.set()

    async def run(self) -> None:
        """Works until stopped, then drains. Returns when every lease was settled or given back."""
        async with self.app:
            self._threads = Threads(self.config.concurrency)
            self._runner = Runner(self.app, self._threads, self.config)
            self._acker = Acker(self.app.store, self.app.announcer)
            attendant = Attendant(self._background(), died=self.stop)
            attendant.start()
            logger.info("worker %s: started on queues %s", self.name, ", ".join(self._queues()))
            adapting = self._adapting()
            try:
                await self._claimer.run(self._stop)
                await self._drain(self.config.drain_s)
            except BaseException:
                self.stop()  # Cancelled, or a fault: the leases go back all the same, at once.
                await self._drain(0.0)
                raise
            finally:
                await asyncio.gather(*adapting)
                await attendant.stop()
                self._threads.close()
                logger.info("worker %s: stopped", self.name)

    @property
    def ready(self) -> bool:
        """It works, and the store answers it: what a readiness probe asks."""
        answering = self._claimer.answering and self._presence.answering
        return answering and not self._stop.is_set()

    def _adapting(self) -> list[asyncio.Task[None]]:
        if not self._adapt.on:
            return []
        return [asyncio.get_running_loop().create_task(keep_turning(self._adapt, self._stop))]

    def adapt(self, decision: Decision) -> None:
        """Runs so many at a time from now on; what runs already may end."""
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
        """What the attendant's thread does: heartbeats and looks between them, presence, a watch on
        this loop and, if elected, the upkeep.
        """
        store, config = self.app.store, self.config
        heartbeat = Heartbeat(store, self.holdings, config.lease_s, config.beat_s)
        lookout = Lookout(store, self.holdings, heartbeat)
        presence, stalls = self._presence, Stalls(self.holdings)
        upkeep = Upkeep(store, config, self.name) if config.upkeep else None

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

    # -- the way of a lease ----------------------------------------------------------------------

    def _room(self) -> int:
        """How many more leases may be claimed now.

        An idle slot is filled at once; the buffer behind the slots only when half of all is free,
        so that a busy worker claims in batches.
        """
        if self._suspects or self._alone or self._acker.pending >= ACKS_PENDING_MAX:
            return 0
        capacity = self.concurrency + self._buffer_max()
        free = capacity - self.running - len(self._buffer)
        starving = not self._buffer and self.running < self.concurrency
        if not starving and free * 2 < capacity:
            return 0
        return 1 if self._wary else free

    def _buffer_max(self) -> int:
        ahead = self.config.buffer
        if self.config.prefetch is None:
            ahead = min(self.concurrency, PREFETCH_MAX)
        return ahead

    def _take(self, holdings: list[Holding]) -> None:
        self.holdings.add(holdings)
        for holding in holdings:
            (self._suspects if _suspect(holding) else self._buffer).append(holding)
        self._wary = bool(self._suspects)
        self._start()

    def _start(self) -> None:
        """Starts what may run now. A suspect first, and alone: it shall take no other with it."""
        if self._stop.is_set():
            return
        if self._suspects:
            self._shed()
            if len(self.holdings) == 1:
                self._alone = True
                self._open_lane(self._suspects.popleft())
            return
        if not self._coming and self._has_next():
            self._coming = True
            self._open_lane(None)

    def _shed(self) -> None:
        """Gives back all that has not started, but for one suspect. What runs may finish first."""
        unstarted = len(self._suspects) - 1 + len(self._buffer)
        if unstarted:
            words = "worker %s: gave %s back, to run a job alone that may be killing its workers"
            logger.info(words, self.name, jobs(unstarted))
        while len(self._suspects) > 1:
            self._settle(self._suspects.pop(), Abandoned())
        while self._buffer:
            self._settle(self._buffer.pop(), Abandoned())

    # -- lanes -----------------------------------------------------------------------------------

    def _has_next(self) -> bool:
        free = self.running < self.concurrency and not self._alone
        return bool(self._buffer) and free and not (self._suspects or self._stop.is_set())

    def _open_lane(self, first: Holding | None) -> None:
        lane = asyncio.get_running_loop().create_task(self._lane(first))
        self._lanes.add(lane)
        lane.add_done_callback(self._closed)

    async def _lane(self, holding: Holding | None) -> None:
        """Runs jobs one after the other while there are some; a task per job costs as much again
        as a short job itself.

        Another lane is on its way while there is more to do, and begins when this one waits. A lane
        that a job left a mark on (a context variable, a cancel) runs no other.
        """
        lane, clean = asyncio.current_task(), copy_context()
        assert lane is not None
        if holding is None:
            self._coming = False
        for number in count(1):
            if holding is None:
                if not self._has_next():
                    return
                holding = self._buffer.popleft()
            self.running += 1
            self._start()
            try:
                await self._work(holding)
            finally:
                self._worked()
            if lane.cancelling() or copy_context() != clean:
                return
            holding = None
            if number % JOBS_IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _work(self, holding: Holding) -> None:
        started = time.monotonic()
        try:
            outcome = await self._runner.run(holding)
        except Exception as error:
            # A fault of ours. Unsettled, the job would be held by heartbeats for ever.
            job = holding.lease.job
            logger.exception("job %s: its run broke down", job.id, extra=log_fields(job))
            outcome = Failed(f"the run broke down outside its handler: {error!r}")
        self._adapt.ended(time.monotonic() - started)
        self._settle(holding, outcome)
        await self._runner.afterwards(holding)

    def _worked(self) -> None:
        self.running -= 1
        self._alone = False
        self._claimer.roomy.set()
        if self.running == 0:
            self._quiet.set()

    def _closed(self, lane: asyncio.Task[None]) -> None:
        self._lanes.discard(lane)
        if not lane.cancelled() and lane.exception() is not None:
            logger.error("a run broke down outside its handler", exc_info=lane.exception())
        self._start()

    def _settle(self, holding: Holding, outcome: Outcome | None) -> None:
        holding.settling = True
        if outcome is None or holding.lost:
            self.holdings.drop(holding)
            return

        def done(_: Acked) -> None:
            self.holdings.drop(holding)
            self._claimer.roomy.set()
            if self._suspects:
                self._start()

        self._returned += isinstance(outcome, Abandoned)
        self._acker.settle(Settlement(holding.lease, outcome, holding.end_s, done))

    # -- the end ---------------------------------------------------------------------------------

    async def _drain(self, patience_s: float) -> None:
        """Gives back what never started, waits for what runs, ends it; every lease is settled."""
        self._returned = 0
        for waiting in (self._buffer, self._suspects):
            while waiting:
                self._settle(waiting.popleft(), Abandoned())
        if self.running:
            words = "worker %s: draining, waiting for %s up to %g s"
            logger.info(words, self.name, jobs(self.running), patience_s)
        await self._quieted(patience_s)
        if self.running:
            words = "worker %s: %s not done after %g s, stopping them"
            logger.warning(words, self.name, jobs(self.running), patience_s)
        for holding in self.holdings.all():
            holding.end(StopReason.SHUTDOWN)
        await self._quieted(GRACE_S)
        for holding in self.holdings.all():
            if not holding.settling:
                # Its thread or coroutine does not end; the lease goes back without it.
                self._settle(holding, Abandoned())
        await self._acker.idle()
        if self._returned:
            logger.info("worker %s: gave %s back", self.name, jobs(self._returned))

    async def _quieted(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while self.running:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            return


def _suspect(holding: Holding) -> bool:
    """Whether every earlier attempt ended with the death of its worker and this one is the last."""
    job = holding.lease.job
    return job.lapses > 0 and job.attempt >= job.max_attempts and job.lapses >= job.attempt - 1
