"""Helpers for tests of schedules: an app on the store under test, and runs of single ticks."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any, cast

import msgspec

from holdfast.app import App
from holdfast.context import Context
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import SECOND, Micros, instant
from holdfast.core.job import Lease
from holdfast.core.schedule import QUEUE
from holdfast.core.tick import Tick
from holdfast.firing import Firing, Tenants
from holdfast.schedules import ScheduleHandle
from holdfast.store import Claim, Store
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, finding
from holdfast.testing.drain import drain

PERIOD: Micros = 300 * SECOND


class Died(BaseException):
    """The process is gone."""


class Deadly:
    """A store whose process dies at a chosen call (0: at none): before it reaches the store, or
    after. Opening and closing it does nothing: the bench does that.
    """

    def __init__(self, real: Store, at: int = 0, *, late: bool = False) -> None:
        self._real = real
        self._left = at
        self._late = late

    @property
    def capabilities(self) -> Capabilities:
        return self._real.capabilities

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._late:
                raise Died
            answer = await getattr(self._real, verb)(*args, **kwargs)
            if self._left == 0:
                raise Died
            return answer

        return call


async def waiting(bench: Bench, tenant: str = ACME) -> list[str]:
    """The ids of the ticks that wait."""
    return [job.id for job in (await bench.store.find(finding(tenant, queues=(QUEUE,)))).jobs]


def periods(found: list[Micros]) -> list[int]:
    """How many periods lie between the instants."""
    return [(after - before) // PERIOD for before, after in pairwise(found)]


class Ticking:
    """An app with one job type, and a list of the instants that its jobs stood for."""

    def __init__(self, bench: Bench, **settings: Any) -> None:
        self.bench = bench
        self.app = App(cast(Store, Deadly(bench.store)), tenant=ACME, **settings)
        self.seen: list[datetime | None] = []
        self.tenants: list[str] = []

        @self.app.job(queue="reports", keep=0)
        async def report(ctx: Context, shop: int = 1) -> None:
            self.seen.append(ctx.tick)
            self.tenants.append(ctx.tenant)

        self.report = report
        self.handle: ScheduleHandle = self.app.schedule("sync:1")

    async def set(self, **given: Any) -> ScheduleHandle:
        """The schedule, every five minutes unless another timing is given."""
        if "cron" not in given:
            given = {"every": PERIOD / SECOND, **given}
        await self.handle.set(self.report(), **given)
        return self.handle

    @property
    def instants(self) -> list[Micros]:
        """The instants of the jobs that ran."""
        return [instant(at) for at in self.seen if at is not None]

    async def run(self) -> list[str]:
        """Runs everything that is due now. Returns the types of the jobs."""
        return [one.job.type for one in await drain(self.app)]

    async def walk(self, times: int, seconds: float = PERIOD / SECOND) -> None:
        """Moves the clock so often, and runs what is due each time."""
        for _ in range(times):
            self.bench.clock.advance(seconds)
            await self.run()

    async def ticks(self) -> None:
        """Runs the ticks that are due, and leaves their jobs waiting."""
        await drain(self.app, queues=[QUEUE])

    async def jobs(self) -> None:
        """Runs the jobs, and no ticks."""
        await drain(self.app, queues=["reports"])

    async def claim_tick(self) -> Lease | None:
        claim = Claim(
            worker="w1",
            nonce=secrets.token_hex(8),
            limit=1,
            lease_us=60 * SECOND,
            queues=(QUEUE,),
        )
        leases = await self.bench.store.claim(claim)
        return leases[0] if leases else None

    async def fire(self, lease: Lease, store: Any = None, tenants: Tenants | None = None) -> None:
        """What the worker does with a tick, on this or on another store object."""
        firing = Firing(store or self.bench.store, lambda name: tenants)
        await firing.fire(lease.job, msgspec.json.decode(lease.job.envelope.body, type=Tick))
