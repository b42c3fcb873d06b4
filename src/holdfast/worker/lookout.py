"""How soon does a handler hear of a cancel? This task looks between the heartbeats.

It asks which of the held jobs were canceled, and sends progress that changed. Looks only read:
renewing a lease is a write and an event, so that only heartbeats, news and progress do it. Jobs
that end before the first look cost nothing.
"""

from __future__ import annotations

import asyncio
import time

from holdfast.errors import HoldfastError, StoreError, StoreUnavailable
from holdfast.job import State
from holdfast.limits import BATCH_MAX, LOOKED_TENANTS_MAX
from holdfast.loop import sleep_unless
from holdfast.store import Find, Selection, Store
from holdfast.worker.lease import Heartbeat, Holding, Holdings
from holdfast.worker.log import logger

LOOK_S = 0.5
"""Between two looks, and how long a job is held before the first."""
PROGRESS_S = 1.0
"""At least so long between two words on the progress of a job."""
SHARE = 10
"""A look is followed by a pause of so many times its own length: a slow store is not pressed."""
PAUSE_MOST_S = 1.5
RENEW_EVERY = 4
"""Looks per renewal, for a worker that may not read jobs."""
REFUSED_S = 60.0
"""How long a worker whose read was refused does not try again, and renews instead."""


class Lookout:
    """Looks after the jobs of one worker."""

    def __init__(self, store: Store, holdings: Holdings, heartbeat: Heartbeat) -> None:
        self._store = store
        self._holdings = holdings
        self._heartbeat = heartbeat
        self._looks = 0
        self._next = 0
        """Which tenant's turn it is, where there are too many for one look."""
        self._reads_from_s = 0.0
        """The monotonic instant from which it may ask the store by reading."""

    async def run(self, stop: asyncio.Event) -> None:
        pause = LOOK_S
        while True:
            await sleep_unless(stop, pause)
            if stop.is_set():
                return
            started_s = time.monotonic()
            try:
                await self._look(started_s)
            except StoreError as error:
                logger.debug("a look at held jobs did not reach the store: %s", error)
            except Exception:
                logger.exception("a look at held jobs failed")
            took_s = time.monotonic() - started_s
            pause = max(LOOK_S, min(SHARE * took_s, PAUSE_MOST_S))

    async def _look(self, now_s: float) -> None:
        self._looks += 1
        held = [
            holding
            for holding in self._holdings.all()
            if now_s - holding.since_s >= LOOK_S and holding.ending is None and not holding.settling
        ]
        news = {
            holding
            for holding in held
            if holding.unsent is not None and now_s - holding.sent_s >= PROGRESS_S
        }
        await self._heartbeat.renew(list(news))  # Also tells whether they were canceled.
        rest = [holding for holding in held if holding not in news]
        if now_s >= self._reads_from_s:
            await self._heartbeat.renew(await self._suspects(rest))
        elif self._looks % RENEW_EVERY == 0:
            await self._heartbeat.renew(rest)

    async def _suspects(self, held: list[Holding]) -> list[Holding]:
        """Those that seem to be canceled; renewing them will tell for sure, and why."""
        by_tenant: dict[str, list[Holding]] = {}
        for holding in held:
            by_tenant.setdefault(holding.lease.job.tenant, []).append(holding)
        tenants = list(by_tenant)
        first = self._next % len(tenants) if tenants else 0
        tenants = (tenants[first:] + tenants[:first])[:LOOKED_TENANTS_MAX]
        self._next = first + len(tenants)
        found: list[Holding] = []
        for tenant in tenants:
            for start in range(0, len(by_tenant[tenant]), BATCH_MAX):
                some = by_tenant[tenant][start : start + BATCH_MAX]
                try:
                    found += await self._canceled(tenant, some)
                except StoreUnavailable:
                    raise
                except HoldfastError as error:
                    # A token for work alone may renew, and nothing else.
                    logger.debug("held jobs cannot be read, renewing them instead: %s", error)
                    self._reads_from_s = time.monotonic() + REFUSED_S
                    return found
        return found

    async def _canceled(self, tenant: str, held: list[Holding]) -> list[Holding]:
        """By two questions: a canceled job that is not kept has no record any more."""
        kept = {one.lease.job.id: one for one in held if one.lease.job.rules.keep_us > 0}
        brief = {one.lease.job.id: one for one in held if one.lease.job.rules.keep_us <= 0}
        found: list[Holding] = []
        if kept:
            canceled = await self._ids(tenant, tuple(kept), (State.CANCELED,))
            found += [kept[id] for id in canceled]
        if brief:
            there = await self._ids(tenant, tuple(brief), ())
            found += [one for id, one in brief.items() if id not in there]
        return found

    async def _ids(
        self, tenant: str, ids: tuple[str, ...], states: tuple[State, ...]
    ) -> frozenset[str]:
        select = Selection(tenant=tenant, ids=ids, states=states)
        page = await self._store.find(Find(select=select, limit=len(ids)))
        return frozenset(job.id for job in page.jobs)
