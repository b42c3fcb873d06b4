"""Settles running jobs: turns outcomes into transitions and sends them to the store in batches.

No other module changes a running job. The next batch gathers while one is being sent, or while
every turn of the event loop brings more: there is no timer and no wait for a full batch, so a crash
leaves few finished jobs unsettled. After a failed call an outcome is sent again until its lease has
ended; then the expired lease makes the job claimable again. No outcome is applied twice, and every
lost outcome is logged.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import cast

import msgspec

from holdfast.core.backoff import Delays
from holdfast.core.bounds import BATCH_MAX
from holdfast.core.errors import HoldfastError, JournalFull, KeyUnavailable, StoreError
from holdfast.core.job import Failed, Lease, Outcome, Reason
from holdfast.core.journal import Entry
from holdfast.core.lifecycle import Transition, decide
from holdfast.core.outage import away
from holdfast.events import Announcer, Confirmed
from holdfast.job_logger import log_fields
from holdfast.loop import Outage
from holdfast.store import Acked, Store

logger = logging.getLogger("holdfast.worker")

CALLS_MAX = 2
"""Maximum full batches being sent at the same time. One can wait for the disk while the next is
processed: with one at a time a busy worker on PostgreSQL ran 15 % fewer jobs.
"""
GATHER_S = 0.005
"""No outcome waits longer than this for others that end in the next turns of the event loop."""
RETRY_FIRST_S = 0.05
RETRY_MOST_S = 2.0


class PendingAck(msgspec.Struct, frozen=True, gc=False):
    """An outcome that the store has not answered yet."""

    lease: Lease
    outcome: Outcome
    until_s: Callable[[], float]
    """The monotonic instant after which the lease has certainly ended; heartbeats may move it."""
    done: Callable[[Acked], None]
    """Called once, with the store's answer or with the error if there was none."""
    entries: tuple[Entry, ...] = ()
    """Written to the job's journal with the outcome."""


class Acker:
    """Settles leases for one event loop. `chance` provides the randomness for retry jitter."""

    def __init__(
        self, store: Store, announcer: Announcer, chance: Callable[[], float] = random.random
    ) -> None:
        self._store = store
        self._announcer = announcer
        self._chance = chance
        self._outage = Outage(logger, "storing outcomes")
        self._waiting: list[PendingAck] = []
        self._sending = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._later: set[asyncio.Task[None]] = set()
        """What sends outcomes again that could not be mapped."""

    @property
    def pending(self) -> int:
        """The number of outcomes that the store has not answered yet."""
        return len(self._waiting) + self._sending + len(self._later)

    def submit(self, pending: PendingAck) -> None:
        """Sends the outcome with the next batch."""
        self._waiting.append(pending)
        if not self._calls or (len(self._waiting) >= BATCH_MAX and len(self._calls) < CALLS_MAX):
            self._calls.add(asyncio.get_running_loop().create_task(self._flush()))

    def answered(self, pending: PendingAck, answer: Acked) -> None:
        """Tells of an outcome that the store has applied already."""
        self._answered(pending, answer)

    async def idle(self) -> None:
        """Returns when every outcome has been answered or given up."""
        while tasks := self._calls | self._later:
            await asyncio.wait(tasks)

    async def _flush(self) -> None:
        own = asyncio.current_task()
        assert own is not None
        try:
            while self._waiting:
                await self._gather()
                batch = self._waiting[:BATCH_MAX]
                del self._waiting[:BATCH_MAX]
                self._sending += len(batch)
                try:
                    await self._send(batch)
                finally:
                    self._sending -= len(batch)
                if len(self._calls) > 1 and len(self._waiting) < BATCH_MAX:
                    break  # One sender is enough for the rest.
        finally:
            self._calls.discard(own)

    async def _gather(self) -> None:
        """Waits while every turn of the event loop brings another outcome: jobs that never wait end
        by the dozen, and one call can settle them all.
        """
        number, until_s = 0, time.monotonic() + GATHER_S
        while number < len(self._waiting) < BATCH_MAX and time.monotonic() < until_s:
            number = len(self._waiting)
            await asyncio.sleep(0)

    async def _send(self, batch: list[PendingAck]) -> None:
        delays = Delays(RETRY_FIRST_S, RETRY_MOST_S, chance=self._chance)
        changes: list[Transition] | None = None
        while batch:
            try:
                changes = changes or [self._decide(one) for one in batch]
                answers = list(zip(batch, await self._store.ack(changes), strict=True))
            except StoreError as error:
                if len(batch) > 1 and not away(error):
                    await self._isolate(batch, error)
                    return
                self._outage.seen(error)
                await asyncio.sleep(delays.next_s())
                batch, changes = self._give_up_late(batch, changes or [], error)
                continue
            except Exception as error:
                await self._isolate(batch, error)
                return
            self._outage.over()
            for one, answer in answers:
                self._answered(one, answer)
            return

    def _decide(self, one: PendingAck) -> Transition:
        change = decide(one.outcome, one.lease.job, one.lease.token, self._chance())
        return msgspec.structs.replace(change, entries=one.entries) if one.entries else change

    def _give_up_late(
        self, batch: list[PendingAck], changes: list[Transition], error: StoreError
    ) -> tuple[list[PendingAck], list[Transition]]:
        """The outcomes that the store may still accept. The others get LeaseExpired."""
        now = time.monotonic()
        kept = []
        for one, change in zip(batch, changes, strict=True):
            if one.until_s() > now:
                kept.append((one, change))
            else:
                job = one.lease.job
                words = "job %s: outcome not stored: %s"
                logger.error(words, job.id, error, extra=log_fields(job))
                one.done(Acked(one.lease.job.id, error=error))
        return [one for one, _ in kept], [change for _, change in kept]

    async def _isolate(self, batch: list[PendingAck], error: Exception) -> None:
        """Sends a refused batch again in halves, so that one invalid outcome fails alone and does
        not delay the others.
        """
        if len(batch) > 1:
            middle = len(batch) // 2
            await asyncio.gather(self._send(batch[:middle]), self._send(batch[middle:]))
            return
        [one] = batch
        job = one.lease.job
        words = "job %s: outcome cannot be stored"
        logger.error(words, job.id, exc_info=error, extra=log_fields(job))
        wrapped = (
            error if isinstance(error, HoldfastError) else StoreError(store="", why=str(error))
        )
        one.done(Acked(one.lease.job.id, error=wrapped))

    async def _again(self, one: PendingAck) -> None:
        """Sends an outcome again that could not be mapped: its key may be there then. Others do not
        wait for it.
        """
        try:
            await asyncio.sleep(RETRY_MOST_S)
        finally:
            self._later.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        self.submit(one)

    def _answered(self, one: PendingAck, answer: Acked) -> None:
        if isinstance(answer.error, JournalFull):
            # What it has to remember cannot be stored, so the job cannot go on.
            failed = Failed(str(answer.error), Reason.PERMANENT, retryable=False)
            self.submit(msgspec.structs.replace(one, outcome=failed, entries=()))
            return
        if isinstance(answer.error, KeyUnavailable) and one.until_s() > time.monotonic():
            self._later.add(asyncio.get_running_loop().create_task(self._again(one)))
            return
        if answer.error is not None:
            job = one.lease.job
            words = "job %s: outcome refused: %s"
            logger.warning(words, job.id, answer.error, extra=log_fields(job))
        elif answer.state is not None and self._announcer.subscribers:
            self._announcer.announce(Confirmed(one.lease.job, one.outcome, answer.state))
        one.done(answer)
