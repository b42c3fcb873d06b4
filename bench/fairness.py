"""One tenant enqueues a mountain while many others send steadily: how long do the others wait?

Workers are stood for by a claimer that takes `share` jobs every `TICK_S`, after a slow answer as
many as it missed, and completes them: a service of known capacity, of which the steady tenants use
half. The wait is from the call that enqueues until the claim that leases. The garbage collector is
off: all share one process here, and its pauses would be measured instead of the store.
"""

from __future__ import annotations

import asyncio
import gc
import time

import msgspec

from bench.stores import claim_of, fill, job, opened, settle
from holdfast.core.bounds import CLAIM_MAX
from holdfast.core.job import Lease, NewJob
from holdfast.store import Store

TICK_S = 0.01


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """How the run is made."""

    loud: int
    """Jobs of the one."""
    others: int
    """Tenants beside it."""
    per_s: int
    """Jobs that the others send in all, in a second."""
    seconds: float
    batch: int
    """Jobs of one call of the loud tenant: other calls come in between, not in the midst."""

    @property
    def share(self) -> int:
        """Jobs of a tick: twice what the others send."""
        return max(1, round(2 * self.per_s * TICK_S))


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the others' jobs waited."""

    case: str
    p50_ms: float
    p95_ms: float
    sent: int
    unserved: int
    """Not claimed at the end: counted with the time they had waited so far."""


class Service:
    """The steady tenants, the loud one, and the claimer, on one store."""

    def __init__(self, store: Store, mix: Mix, one_line: bool) -> None:
        self._store = store
        self._mix = mix
        self._one_line = one_line
        self._sent: dict[str, float] = {}
        self._waits: list[float] = []

    async def run(self, case: str, loud: bool) -> Waits:
        end = time.perf_counter() + self._mix.seconds
        mountain = asyncio.create_task(self._mountain()) if loud else None
        await asyncio.gather(self._senders(end), self._claimer(end))
        if mountain is not None:
            mountain.cancel()
            await asyncio.gather(mountain, return_exceptions=True)
        return self._told(case)

    async def _claimer(self, end: float) -> None:
        began, ticks = time.perf_counter(), 0
        async with asyncio.TaskGroup() as settling:
            while (now := time.perf_counter()) < end:
                due = int((now - began) / TICK_S) + 1
                room = min(CLAIM_MAX, (due - ticks) * self._mix.share)
                ticks = due
                leases = await self._claim(room)
                settling.create_task(settle(self._store, leases))
                await asyncio.sleep(max(0.0, began + ticks * TICK_S - time.perf_counter()))

    async def _senders(self, end: float) -> None:
        began, number = time.perf_counter(), 0
        while (now := time.perf_counter()) < end:
            due = int((now - began) * self._mix.per_s)
            if due > number:
                await self._send(range(number, due))
                number = due
            await asyncio.sleep(1 / self._mix.per_s)

    async def _send(self, numbers: range) -> None:
        now = time.perf_counter()
        jobs = [self._job(f"o{number % self._mix.others}", f"s{number}") for number in numbers]
        self._sent.update((one.id, now) for one in jobs)
        await fill(self._store, jobs)

    async def _claim(self, room: int) -> list[Lease]:
        leases = await self._store.claim(claim_of(room))
        now = time.perf_counter()
        for lease in leases:
            at = self._sent.pop(lease.job.id, None)
            if at is not None:
                self._waits.append(now - at)
        return leases

    async def _mountain(self) -> None:
        for start in range(0, self._mix.loud, self._mix.batch):
            numbers = range(start, min(self._mix.loud, start + self._mix.batch))
            await fill(self._store, [self._job("loud", f"m{number}") for number in numbers])
            await asyncio.sleep(0)

    def _job(self, tenant: str, id: str) -> NewJob:
        return job("all" if self._one_line else tenant, id)

    def _told(self, case: str) -> Waits:
        now = time.perf_counter()
        waits = sorted([*self._waits, *(now - at for at in self._sent.values())])
        return Waits(
            case=case,
            p50_ms=waits[len(waits) // 2] * 1000,
            p95_ms=waits[int(len(waits) * 0.95)] * 1000,
            sent=len(waits),
            unserved=len(self._sent),
        )


async def fairness(url: str, mix: Mix) -> list[Waits]:
    """Quiet, loud, and loud with all in one line, which is first come first served over all."""
    found = []
    for case, loud, one_line in (
        ("quiet", False, False),
        ("loud, by tenants", True, False),
        ("loud, one FIFO", True, True),
    ):
        gc.collect()
        gc.disable()
        try:
            async with opened(url, "fair") as store:
                found.append(await Service(store, mix, one_line).run(case, loud))
        finally:
            gc.enable()
    return found
