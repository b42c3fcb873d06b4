"""Makes deliveries from stored events: one bounded step for one webhook.

Deliveries are enqueued first, and the position is written after that. A process that dies between
them reads the same events again, and the ids of the deliveries follow from the events: so none is
lost, and none is made twice. The events themselves are the backlog: a webhook has at most
WEBHOOK_WAITING_MAX deliveries that have not ended, and further events wait in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.edge_bounds import WEBHOOK_WAITING_MAX
from holdfast.core.errors import QueueFull, TenantFull
from holdfast.core.job import TERMINAL, NewJob
from holdfast.core.scope import ScopeKind
from holdfast.store import EventPage, Put, Store
from holdfast.webhooks.definition import (
    CURSOR_PREFIX,
    Position,
    Webhook,
    encode,
    group_of,
    name_of,
)
from holdfast.webhooks.delivery import of_event, of_gap

logger = logging.getLogger("holdfast.webhooks")


class Progress(msgspec.Struct):
    """The position of a webhook, as this process knows it."""

    stored: Position
    version: int
    read: int
    """Events up to this cursor were read. Those after the stored one are not delivered, because the
    webhook does not want them.
    """
    written_at: Micros


class Subscriber(msgspec.Struct, frozen=True):
    """A webhook that wants events."""

    tenant: str
    name: str
    hook: Webhook


class Step(msgspec.Struct, frozen=True):
    """What one step did."""

    made: int
    more: bool
    """Whether further events may be there already."""


class Reader:
    """Reads the events of webhooks. `write_us` is how old an unwritten position may become."""

    def __init__(self, store: Store, write_us: Micros) -> None:
        self._store = store
        self._write_us = write_us

    async def step(self, one: Subscriber, progress: Progress, limit: int, now: Micros) -> Step:
        """Reads up to `limit` events and makes their deliveries, as far as there is room."""
        page = await self._store.events(one.tenant, progress.read, limit)
        jobs = [
            (event.cursor, of_event(one.hook, one.name, event))
            for event in page.events
            if one.hook.wants(event)
        ]
        room = len(jobs) + page.lost
        if room:
            room = min(room, await self._room(one))
        if page.lost:
            if not room:
                return Step(0, False)
            if not await self._gap(one, progress, page, now):
                return Step(0, False)
            room -= 1
        done = await self._enqueue([job for _, job in jobs[:room]])
        whole = done == len(jobs)
        # Everything before the first one that was not made.
        cursor = page.cursor if whole else jobs[done][0] - 1
        progress.read = max(progress.read, cursor)
        if done or now - progress.written_at >= self._write_us:
            await self._write(one, progress, now)
        return Step(done, whole and len(page.events) >= limit)

    async def _room(self, one: Subscriber) -> int:
        """How many more deliveries may be made now."""
        group = group_of(one.name)
        found = await self._store.count(one.tenant, by=ScopeKind.GROUP, part=group, limit=1)
        counts = found[0].counts if found else {}
        alive = sum(number for state, number in counts.items() if state not in TERMINAL)
        return max(0, WEBHOOK_WAITING_MAX - alive)

    async def _enqueue(self, jobs: Sequence[NewJob]) -> int:
        """Makes the deliveries. Returns how many, up to the first for which the tenant has no room:
        that one is made later. A delivery that can never be made is left out.
        """
        if not jobs:
            return 0
        for number, answer in enumerate(await self._store.enqueue(jobs)):
            if isinstance(answer.error, QueueFull | TenantFull):
                return number
            if answer.error is not None:
                logger.error("delivery %s was not made: %s", answer.id, answer.error)
        return len(jobs)

    async def _gap(self, one: Subscriber, progress: Progress, page: EventPage, now: Micros) -> bool:
        """Tells the receiver, and whoever looks at the webhook, that events are lost. False if the
        tenant has no room for that now.
        """
        gap = of_gap(one.hook, one.name, one.tenant, progress.read, now)
        if await self._enqueue([gap]) == 0:
            return False
        logger.warning(
            "webhook %r of %r: events after cursor %d were deleted before they were delivered",
            one.name,
            one.tenant,
            progress.read,
        )
        before = page.events[0].cursor - 1 if page.events else page.cursor
        progress.read = max(progress.read, before)
        progress.stored = Position(progress.read, progress.stored.gaps + 1, now)
        await self._write(one, progress, now)
        return True

    async def _write(self, one: Subscriber, progress: Progress, now: Micros) -> None:
        """Writes the position. Raises StaleSetting if somebody else has: another process that does
        the upkeep, or a person who resumed it elsewhere.
        """
        after = msgspec.structs.replace(progress.stored, cursor=progress.read)
        put = Put(name_of(one.tenant, one.name, CURSOR_PREFIX), encode(after), progress.version)
        done = await self._store.settings([put])
        progress.stored, progress.version, progress.written_at = after, done[0].version, now
