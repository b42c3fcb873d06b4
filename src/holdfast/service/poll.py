"""Long polls: callers that wait for work. Callers that wait for the same work share one sleeper.

A store wakes every sleeper. With one sleeper per kind of work, a new job costs one claim, not one
for each caller. The sleeper wakes the caller that has waited longest. A caller that finds work
wakes the next one, because there may be more.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from holdfast.core.backoff import Delays
from holdfast.core.errors import StoreError
from holdfast.core.job import Lease, Released
from holdfast.core.lifecycle import decide
from holdfast.store import Claim, Store, Watch

NAP_S = 5.0
"""How long a sleeper sleeps if no wake-up arrives."""
VAIN_FIRST_S = 0.002
VAIN_MOST_S = 1.0
"""Pauses while the store says at once, again and again, that there is work, and claims find none:
it is not for these callers.
"""

Kind = tuple[tuple[str, ...] | None, tuple[str, ...] | None, tuple[str, ...]]
"""(tenants, queues, groups that are left out)"""


class Pollers:
    """All callers of one process that wait for work."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: dict[Kind, _Queue] = {}
        self._closed = False

    def close(self) -> None:
        """Answers every waiting caller with no jobs."""
        self._closed = True
        for queue in self._queues.values():
            queue.end()

    async def claim(
        self, claim: Claim, wait_s: float, gone: asyncio.Future[object] | None
    ) -> list[Lease]:
        """Claims ready jobs, waiting for the first. A disconnected caller gets nothing."""
        end_s = time.monotonic() + wait_s
        leases = await self._take(claim, gone)
        if leases or wait_s <= 0:
            return leases
        kind = claim.tenants, claim.queues, claim.exclude_groups
        queue = self._queues.setdefault(kind, _Queue(self._store, kind))
        queue.callers += 1
        first = False
        try:
            while not self._closed and not (gone is not None and gone.done()):
                woken = await queue.wait(end_s - time.monotonic(), gone, first=first)
                if not woken:
                    return []
                try:
                    leases = await self._take(claim, gone)
                finally:
                    queue.found(bool(leases))
                if leases:
                    return leases
                first = True  # It has waited longest and still waits.
            return []
        finally:
            queue.callers -= 1
            if not queue.callers:
                queue.end()
                self._queues.pop(kind, None)

    async def _take(self, claim: Claim, gone: asyncio.Future[object] | None) -> list[Lease]:
        """A claim whose leases are released if the caller disconnects meanwhile."""
        fresh = msgspec.structs.replace(claim, nonce=secrets.token_hex(16))
        taking = asyncio.ensure_future(self._store.claim(fresh))
        try:
            leases = await asyncio.shield(taking)
        except asyncio.CancelledError:
            await self._give_back(await taking)
            raise
        if gone is not None and gone.done():
            await self._give_back(leases)
            return []
        return leases

    async def _give_back(self, leases: Sequence[Lease]) -> None:
        """Releases the leases, without using the attempts."""
        if leases:
            await self._store.ack([decide(Released(), one.job, one.token, 0.0) for one in leases])


class _Queue:
    """The callers that wait for one kind of work, and their sleeper."""

    def __init__(self, store: Store, kind: Kind) -> None:
        self._store = store
        self._watch = Watch(tenants=kind[0], queues=kind[1])
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._sleeper: asyncio.Task[None] | None = None
        self._vain = False
        self._looked = asyncio.Event()
        self.callers = 0

    async def wait(
        self, seconds: float, gone: asyncio.Future[object] | None, *, first: bool
    ) -> bool:
        """True if there may be work for this caller; False if its time is over."""
        if seconds <= 0:
            return False
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if first else self._waiting.append)(place)
        if self._sleeper is None:
            self._sleeper = asyncio.get_running_loop().create_task(self._sleep())
        ends: set[asyncio.Future[object]] = {place, *([] if gone is None else [gone])}  # type: ignore[arg-type]
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._leave(place)
            raise
        if not place.done() or (gone is not None and gone.done()):
            self._leave(place)
            return False
        return place.result()

    def _leave(self, place: asyncio.Future[bool]) -> None:
        if place.done():
            self.found(True)  # It was woken but does not claim, so wake the next caller.
        else:
            self._waiting.remove(place)

    def found(self, something: bool) -> None:
        """Records whether a woken caller found work."""
        self._vain = not something
        self._looked.set()
        if something:
            self._wake()

    def end(self) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
        while self._waiting:
            self._waiting.popleft().set_result(False)

    def _wake(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(True)

    async def _sleep(self) -> None:
        delays = Delays(VAIN_FIRST_S, VAIN_MOST_S)
        try:
            while self._waiting:
                started = time.monotonic()
                with suppress(StoreError):
                    await self._store.wait(self._watch, NAP_S)
                at_once = time.monotonic() - started < VAIN_FIRST_S
                if not self._waiting:
                    return
                self._looked.clear()
                self._wake()
                # Otherwise the store would report the same job again and wake all callers for it.
                await self._looked.wait()
                if self._vain and at_once:
                    await asyncio.sleep(delays.next_s())
                else:
                    delays.reset()
        finally:
            self._sleeper = None
