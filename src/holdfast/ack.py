"""Who may change a running job? This file, nobody else: outcomes become transitions, in batches.

While a batch is on its way the next one gathers: no timer, no wait for a full batch, so that a
crash finds few finished jobs unsettled. After a failed call an outcome is sent again until its
lease has ended; from then on its deadline rescues the job. Nothing is settled twice, and nothing
is lost in silence.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

import msgspec

from holdfast.context import log_fields
from holdfast.errors import HoldfastError, StoreError, away
from holdfast.events import Announcer, Confirmed
from holdfast.job import Lease, Outcome
from holdfast.lifecycle import Transition, decide
from holdfast.limits import BATCH_MAX
from holdfast.store import Acked, Store

logger = logging.getLogger("holdfast.worker")

CALLS_MAX = 2
"""Full batches on their way at the same time. While one waits for the disk the next is put to work:
with one at a time a busy worker on PostgreSQL ran 15 % fewer jobs.
"""
RETRY_FIRST_S = 0.05
RETRY_MOST_S = 2.0


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """An outcome on its way to the store."""

    lease: Lease
    outcome: Outcome
    until_s: Callable[[], float]
    """The monotonic instant after which the lease has surely ended; heartbeats may move it."""
    done: Callable[[Acked], None]
    """Told once: what the store answered, or that it never did."""


class Acker:
    """Settles leases for one event loop. `chance` feeds the jitter of retries."""

    def __init__(
        self, store: Store, announcer: Announcer, chance: Callable[[], float] = random.random
    ) -> None:
        self._store = store
        self._announcer = announcer
        self._chance = chance
        self._waiting: list[Settlement] = []
        self._sending = 0
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        """Outcomes the store has not answered yet."""
        return len(self._waiting) + self._sending

    def settle(self, settlement: Settlement) -> None:
        """Sends the outcome with the next batch."""
        self._waiting.append(settlement)
        if not self._calls or (len(self._waiting) >= BATCH_MAX and len(self._calls) < CALLS_MAX):
            self._calls.add(asyncio.get_running_loop().create_task(self._flush()))

    async def idle(self) -> None:
        """Returns when every outcome was answered or given up."""
        while self._calls:
            await asyncio.wait(self._calls)

    async def _flush(self) -> None:
        own = asyncio.current_task()
        assert own is not None
        try:
            while self._waiting:
                batch = self._waiting[:BATCH_MAX]
                del self._waiting[:BATCH_MAX]
                self._sending += len(batch)
                try:
                    await self._send(batch)
                finally:
                    self._sending -= len(batch)
                if len(self._calls) > 1 and len(self._waiting) < BATCH_MAX:
                    break  # One is enough for what is left.
        finally:
            self._calls.discard(own)

    async def _send(self, batch: list[Settlement]) -> None:
        pause = RETRY_FIRST_S
        changes: list[Transition] | None = None
        while batch:
            try:
                changes = changes or [self._decide(one) for one in batch]
                answers = list(zip(batch, await self._store.ack(changes), strict=True))
            except StoreError as error:
                if len(batch) > 1 and not away(error):
                    await self._isolate(batch, error)
                    return
                await asyncio.sleep(pause * (0.5 + self._chance()))
                pause = min(pause * 2, RETRY_MOST_S)
                batch, changes = self._give_up_late(batch, changes or [], error)
                continue
            except Exception as error:
                await self._isolate(batch, error)
                return
            for one, answer in answers:
                self._answered(one, answer)
            return

    def _decide(self, one: Settlement) -> Transition:
        return decide(one.outcome, one.lease.job, one.lease.token, self._chance())

    def _give_up_late(
        self, batch: list[Settlement], changes: list[Transition], error: StoreError
    ) -> tuple[list[Settlement], list[Transition]]:
        """What may still be accepted; the rest is told that its lease ran out."""
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

    async def _isolate(self, batch: list[Settlement], error: Exception) -> None:
        """A batch that cannot be taken is split, so that one bad outcome fails alone, and those
        beside it do not wait until its lease has ended.
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

    def _answered(self, one: Settlement, answer: Acked) -> None:
        if answer.error is not None:
            job = one.lease.job
            words = "job %s: outcome refused: %s"
            logger.warning(words, job.id, answer.error, extra=log_fields(job))
        elif answer.state is not None and self._announcer.subscribers:
            self._announcer.announce(Confirmed(one.lease.job, one.outcome, answer.state))
        one.done(answer)
