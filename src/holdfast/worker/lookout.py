"""Checks for canceled jobs between heartbeats, so that a handler is told of a cancel within a
second.

The task asks the store which of the held jobs were canceled, and sends changed progress. A check
only reads: renewing a lease is a write and an event, so only heartbeats, cancels and progress do
it. Jobs that end before the first check cost nothing.
"""

from __future__ import annotations

import asyncio
import time

from holdfast.core.bounds import BATCH_MAX, LOOKED_TENANTS_MAX
from holdfast.core.errors import HoldfastError, StoreError, StoreUnavailable
from holdfast.core.job import State
from holdfast.lookup import find_jobs
from holdfast.loop import sleep_unless
from holdfast.store import Store
from holdfast.worker.lease import ActiveJob, ActiveJobs, Heartbeat
from holdfast.worker.log import logger

LOOK_S = 0.5
"""Time between two checks, and how long a job is held before the first one."""
PROGRESS_S = 1.0
"""Minimum time between two progress updates of a job."""
SHARE = 10
"""A check is followed by a pause of this many times its own duration, to spare a slow store."""
PAUSE_MOST_S = 1.5
RENEW_EVERY = 4
"""Checks per renewal, for a worker that may not read jobs."""
REFUSED_S = 60.0
"""How long a worker whose read was refused renews leases instead of reading."""


class Lookout:
    """Checks the jobs of one worker."""

    def __init__(self, store: Store, active_jobs: ActiveJobs, heartbeat: Heartbeat) -> None:
        self._store = store
        self._active = active_jobs
        self._heartbeat = heartbeat
        self._looks = 0
        self._next = 0
        """The tenant to continue with, if there are too many for one check."""
        self._reads_from_s = 0.0
        """The monotonic instant from which it may read again."""

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
                logger.debug("the check for canceled jobs did not reach the store: %s", error)
            except Exception:
                logger.exception("the check for canceled jobs failed")
            took_s = time.monotonic() - started_s
            pause = max(LOOK_S, min(SHARE * took_s, PAUSE_MOST_S))

    async def _look(self, now_s: float) -> None:
        self._looks += 1
        held = [
            active
            for active in self._active.all()
            if now_s - active.since_s >= LOOK_S and active.ending is None and not active.acking
        ]
        news = {
            active for active in held if active.has_news and now_s - active.sent_s >= PROGRESS_S
        }
        await self._heartbeat.renew(list(news))  # The answer also says whether they were canceled.
        rest = [active for active in held if active not in news]
        if now_s >= self._reads_from_s:
            await self._heartbeat.renew(await self._suspects(rest))
        elif self._looks % RENEW_EVERY == 0:
            await self._heartbeat.renew(rest)

    async def _suspects(self, held: list[ActiveJob]) -> list[ActiveJob]:
        """The jobs that seem to be canceled. Renewing their leases confirms it."""
        by_tenant: dict[str, list[ActiveJob]] = {}
        for active in held:
            by_tenant.setdefault(active.lease.job.tenant, []).append(active)
        tenants = list(by_tenant)
        first = self._next % len(tenants) if tenants else 0
        tenants = (tenants[first:] + tenants[:first])[:LOOKED_TENANTS_MAX]
        self._next = first + len(tenants)
        found: list[ActiveJob] = []
        for tenant in tenants:
            for start in range(0, len(by_tenant[tenant]), BATCH_MAX):
                some = by_tenant[tenant][start : start + BATCH_MAX]
                try:
                    found += await self._canceled(tenant, some)
                except StoreUnavailable:
                    raise
                except HoldfastError as error:
                    # A token with the right `work` alone may renew leases, but not read jobs.
                    logger.debug("held jobs cannot be read, renewing them instead: %s", error)
                    self._reads_from_s = time.monotonic() + REFUSED_S
                    return found
        return found

    async def _canceled(self, tenant: str, held: list[ActiveJob]) -> list[ActiveJob]:
        """Asks twice, because a canceled job that is not kept has no record."""
        kept = {one.lease.job.id: one for one in held if one.lease.job.rules.keep_us > 0}
        brief = {one.lease.job.id: one for one in held if one.lease.job.rules.keep_us <= 0}
        found: list[ActiveJob] = []
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
        found = await find_jobs(self._store, tenant, ids, states=states)
        return frozenset(job.id for job in found)
