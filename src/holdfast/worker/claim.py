"""The claim loop: asks the store for as many jobs as the worker can run."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.core.backoff import Delays
from holdfast.core.bounds import CLAIM_MAX
from holdfast.core.clock import micros
from holdfast.core.errors import StoreError
from holdfast.loop import RETRY_FIRST_S, RETRY_MOST_S, Outage, sleep_unless
from holdfast.store import Claim, Store, Watch
from holdfast.worker.lease import ActiveJob

logger = logging.getLogger("holdfast.worker")

VAIN_FIRST_S = 0.002
"""First pause when the store reported work but the claim found none, because another worker was
faster.
"""


class Claimer:
    """Claims while there is room. Waits for the store's wake-up when there is no work."""

    def __init__(
        self,
        *,
        store: Store,
        worker: str,
        watch: Watch,
        lease_s: float,
        poll_s: float,
        room: Callable[[], int],
        take: Callable[[list[ActiveJob]], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._watch = watch
        self._lease_s = lease_s
        self._poll_s = poll_s
        self._room = room
        self._take = take
        self._ahead: Claim | None = None
        """The next claim, prepared in advance, because work after a wake-up delays the job."""
        self.roomy = asyncio.Event()
        """The worker sets it when there may be room again."""
        self.polled_at = time.monotonic()
        """When the store last answered a claim: shows that this worker is still claiming."""
        self.answering = False
        """Whether the store answered the last claim."""

    async def run(self, stop: asyncio.Event) -> None:
        async with _Naps(stop) as naps:
            await self._run(stop, naps)

    async def _run(self, stop: asyncio.Event, naps: _Naps) -> None:
        retries = Delays(RETRY_FIRST_S, RETRY_MOST_S, chance=random.random)
        vain = Delays(VAIN_FIRST_S, self._poll_s)
        outage = Outage(logger, "claiming jobs")
        while not stop.is_set():
            room = min(self._room(), CLAIM_MAX)
            if room <= 0:
                self.roomy.clear()
                await naps.take(self.roomy.wait())
                continue
            try:
                started = time.monotonic()
                found = await self._claim(room)
                retries.reset()
                outage.over()
                if found < room:
                    self._ahead = self._wish(room)
                    await naps.take(self._store.wait(self._watch, self._poll_s))
                if found or time.monotonic() - started > VAIN_FIRST_S:
                    vain.reset()
                else:
                    await sleep_unless(stop, vain.next_s())
            except StoreError as error:
                self.answering = False
                outage.seen(error)
                await sleep_unless(stop, retries.next_s())

    async def _claim(self, room: int) -> int:
        # Count the lease from before the call, so that the worker never overestimates it.
        until_s = time.monotonic() + self._lease_s
        claim, self._ahead = self._ahead, None
        if claim is None or claim.limit != room:
            claim = self._wish(room)
        leases = await self._store.claim(claim)
        self.polled_at = time.monotonic()
        self.answering = True
        self._take([ActiveJob(lease, until_s) for lease in leases])
        if leases:
            # Let the jobs start before this task calls the store again. Otherwise a handler of
            # an idle worker waited 125 us for that, of 1.5 ms in total.
            await asyncio.sleep(0)
        return len(leases)

    def _wish(self, room: int) -> Claim:
        return Claim(
            worker=self._worker,
            nonce=secrets.token_hex(16),
            limit=room,
            lease_us=micros(self._lease_s),
            tenants=self._watch.tenants,
            queues=self._watch.queues,
        )


class _Naps:
    """The sleeps of one task, all of which end when the worker stops.

    They run within the task itself: a separate task for each sleep would delay every wake-up by
    40 us.
    """

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._nap: asyncio.Timeout | None = None

    async def __aenter__(self) -> _Naps:
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watcher.cancel()
        await asyncio.gather(self._watcher, return_exceptions=True)

    async def take(self, sleeping: Coroutine[Any, Any, object]) -> None:
        """Awaits the sleep, or ends it when the worker stops."""
        if self._stop.is_set():
            sleeping.close()
            return
        nap = asyncio.timeout(None)
        try:
            async with nap:
                self._nap = nap
                await sleeping
        except TimeoutError:
            if not nap.expired():
                raise
        finally:
            self._nap = None

    async def _watch(self) -> None:
        await self._stop.wait()
        if self._nap is not None:
            self._nap.reschedule(asyncio.get_running_loop().time())
