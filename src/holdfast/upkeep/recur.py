"""Duty: restore the next ticks of schedules.

A schedule goes on because each tick enqueues the next one. A tick that ended otherwise (canceled,
deleted, failed for good, restored from an older backup) would end its schedule. So this duty reads
the definitions, a page per turn, and enqueues the ticks that are missing. It also pauses schedules
that cannot go on, so that they are visible.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from holdfast.core.bounds import EARLIER_MAX, RECUR_LOOKS_MAX, RECUR_PAGE
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput
from holdfast.core.job import TERMINAL, State
from holdfast.core.schedule import QUEUE, Definition, Overlap
from holdfast.core.tick import next_tick, tick_id, tick_job
from holdfast.definitions import (
    ScheduleState,
    jobs_named,
    pause_itself,
    schedules_page,
    waiting_ticks,
)
from holdfast.store import Ref, Store
from holdfast.store_clock import StoreClock

logger = logging.getLogger("holdfast.schedules")

_LATE = tuple(state for state in State if state not in TERMINAL and state is not State.SCHEDULED)
"""The states of a tick that is due, being fired, or tried again."""


class _Next(msgspec.Struct, frozen=True):
    state: ScheduleState
    definition: Definition
    at: Micros

    @property
    def id(self) -> str:
        return tick_id(self.state.tenant, self.state.name, self.definition.revision, self.at)


class Recur:
    """Checks one page of schedules per turn. The next turn continues with the page after it."""

    name = "recur"

    def __init__(self, store: Store, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._after: str | None = None
        self.restored = 0
        """Ticks that were missing."""

    async def turn(self) -> float:
        after = self._after or ""
        page, self._after = await schedules_page(self._store, None, after=after, limit=RECUR_PAGE)
        if page:
            now = await StoreClock(self._store).look()
            wanted = [one for state in page if (one := await self._next(state, now)) is not None]
            await self._restore(await self._missing(wanted), now)
        return self._every_s

    async def _next(self, state: ScheduleState, now: Micros) -> _Next | None:
        """The tick that should wait; None if the schedule cannot go on, which then pauses itself.
        One that cannot be read stays as it is, and is shown as such.
        """
        if state.definition is None:
            return None
        try:
            at = next_tick(state.tenant, state.name, state.definition, now)
        except InvalidInput as error:
            await pause_itself(self._store, state, str(error), now)
            return None
        return None if at is None else _Next(state, state.definition, at)

    async def _missing(self, wanted: Sequence[_Next]) -> list[_Next]:
        """Those whose next tick does not wait. One whose tick is late, because no worker was there,
        will enqueue the next one itself.
        """
        if not wanted:
            return []
        refs = [Ref(one.state.tenant, one.id) for one in wanted]
        there = {(job.tenant, job.id) for job in await jobs_named(self._store, refs)}
        late: dict[str, bool] = {}
        missing, looks = [], 0
        for one in wanted:
            tenant = one.state.tenant
            if (tenant, one.id) in there:
                continue
            if tenant not in late:
                late[tenant] = await self._late(tenant)
            if late[tenant]:
                looks += 1
                if looks > RECUR_LOOKS_MAX:
                    continue  # In a later turn: many late ticks mean that no worker is there.
                if await waiting_ticks(self._store, tenant, one.state.name):
                    continue
            missing.append(one)
        return missing

    async def _late(self, tenant: str) -> bool:
        """Whether ticks of the tenant are due, fired or tried again, by the counters."""
        for tally in await self._store.count(tenant, part=QUEUE, limit=1):
            return any(tally.counts.get(state, 0) for state in _LATE)
        return False

    async def _restore(self, missing: Sequence[_Next], now: Micros) -> None:
        for one in missing:
            state, definition = one.state, one.definition
            earlier = [] if definition.overlap is Overlap.ALLOW else self._earlier(one, now)
            job = tick_job(state.tenant, state.name, definition, one.at, earlier)
            [answer] = await self._store.enqueue([job])
            if answer.error is not None:  # The tenant has no room: in a later turn.
                logger.warning("the next tick of %r was not restored: %s", state.name, answer.error)
            elif answer.created:
                self.restored += 1
                words = "schedule %r of %r: restored its next tick, which was missing"
                logger.warning(words, state.name, state.tenant)

    def _earlier(self, one: _Next, now: Micros) -> list[tuple[Micros, Micros]]:
        """The ticks before, which may have made jobs that still run."""
        definition = one.definition
        since = definition.revision
        found, _ = definition.timing.newest(min(since, now), now, EARLIER_MAX)
        return [(since, at) for at in found]
