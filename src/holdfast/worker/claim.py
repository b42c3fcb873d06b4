"""Why was my job not picked up? This loop asks the store for as many jobs as the worker can run."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.clock import micros
from holdfast.errors import StoreError
from holdfast.limits import CLAIM_MAX
from holdfast.loop import sleep_unless
from holdfast.store import Claim, Store, Watch
from holdfast.worker.lease import Holding

logger = logging.getLogger("holdfast.worker")

FAULT_FIRST_S = 0.1
FAULT_MOST_S = 5.0
VAIN_FIRST_S = 0.002
"""First pause when the store said there is work and the claim found none: another worker was
faster.
"""


class Claimer:
    """Claims while there is room, sleeps on the store's wake-up when there is no work."""

    def __init__(
        self,
        *,
        store: Store,
        worker: str,
        watch: Watch,
        lease_s: float,
        poll_s: float,
        room: Callable[[], int],
        take: Callable[[list[Holding]], None],
    ) -> None:
        self._store = store
        self._worker = worker
        self._watch = watch
        self._lease_s = lease_s
        self._poll_s = poll_s
        self._room = room
        self._take = take
        self._ahead: Claim | None = None
        """The next claim, made before it is needed: a job waits for what is done after the hint."""
        self.roomy = asyncio.Event()
        """Set by the worker whenever there may be room again."""
        self.polled_at = time.monotonic()
        """When the store last answered a claim: the sign that this worker still consumes."""
        self.answering = False
        """What the last claim was told: an answer, or that the store is away."""

    async def run(self, stop: asyncio.Event) -> None:
        async with _Naps(stop) as naps:
            await self._run(stop, naps)

    async def _run(self, stop: asyncio.Event, naps: _Naps) -> None:
        pause, vain = FAULT_FIRST_S, VAIN_FIRST_S
        while not stop.is_set():
            room = min(self._room(), CLAIM_MAX)
            if room <= 0:
                self.roomy.clear()
                await naps.take(self.roomy.wait())
                continue
            try:
                started = time.monotonic()
                found = await self._claim(room)
                pause = FAULT_FIRST_S
                if found < room:
                    self._ahead = self._wish(room)
                    await naps.take(self._store.wait(self._watch, self._poll_s))
                if found or time.monotonic() - started > VAIN_FIRST_S:
                    vain = VAIN_FIRST_S
                else:
                    await sleep_unless(stop, vain)
                    vain = min(vain * 2, self._poll_s)
            except StoreError as error:
                self.answering = False
                logger.warning("claim failed, trying again in %.1f s: %s", pause, error)
                await sleep_unless(stop, pause * (0.5 + random.random()))
                pause = min(pause * 2, FAULT_MOST_S)

    async def _claim(self, room: int) -> int:
        # The lease counts from before the call, so that this side never trusts it for too long.
        until_s = time.monotonic() + self._lease_s
        claim, self._ahead = self._ahead, None
        if claim is None or claim.limit != room:
            claim = self._wish(room)
        leases = await self._store.claim(claim)
        self.polled_at = time.monotonic()
        self.answering = True
        self._take([Holding(lease, until_s) for lease in leases])
        if leases:
            # They begin before this task calls the store again, which is not urgent: a handler of
            # an idle worker waited 125 us for that, of 1.5 ms in all.
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
    """The sleeps of one task, all of them ended by the stop.

    Within the task itself: one of its own for each sleep would make every wake-up 40 us later.
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
        """Awaits the sleep, or ends it when told to stop."""
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
