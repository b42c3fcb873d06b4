"""Polls the store once for all viewers with the same rights: counts, new events, workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from holdfast import listings
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND, Micros, seconds
from holdfast.core.job import Event, State
from holdfast.dashboard.host import Viewer
from holdfast.dashboard.samples import SPAN_S, Level, Samples
from holdfast.dashboard.words import link
from holdfast.store import Store, Tally
from holdfast.store_clock import StoreClock
from holdfast.worker_registry import Worker, present_workers

FRESH_S = 0.5
"""Viewers that ask within this time share one poll."""
BACKFILL = 20_000
"""How many of the latest events the first poll reads, for the minutes before it."""
WIDEN = 4
PAGES_MAX = 10
"""Pages of events that a poll reads. With more it estimates and skips to the end."""
TALLIES_MAX = 5000
"""Maximum queues that a poll counts. Totals include only these."""
CHANGED_MAX = 200
"""Maximum jobs that a poll names as changed. With more it only says so."""

Key = tuple[str | None, tuple[str, ...] | None]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The current state, as one poll saw it."""

    now: Micros
    counts: dict[State, int]
    oldest_at: Micros | None
    tallies: Sequence[Tally]
    workers: Sequence[Worker]
    own: bool
    """Whether it is for one tenant: slots of shared workers are then not counted."""
    samples: Samples
    changed: Sequence[str]
    """The pages of jobs that changed since the previous poll."""
    more: bool
    """Whether there were more changed jobs."""
    any: bool
    """Whether anything changed."""

    @property
    def oldest_s(self) -> float:
        at = self.oldest_at
        return 0.0 if at is None else max(0.0, seconds(self.now - at))

    def count(self, state: str) -> int:
        return self.counts.get(State(state), 0)


class Feed:
    """The feed of one tenant or all, and of some queues or all."""

    def __init__(self, store: Store, clock: StoreClock, key: Key) -> None:
        self._store = store
        self._clock = clock
        self._tenant, self._queues = key
        self._samples = Samples()
        self._cursor: int | None = None
        self._lock = asyncio.Lock()
        self._last: Snapshot | None = None
        self._looked = 0.0

    async def latest(self) -> Snapshot:
        """The latest snapshot, or a new poll if it is too old."""
        if self._last is None or time.monotonic() - self._looked > FRESH_S:
            return await self.look()
        return self._last

    async def look(self) -> Snapshot:
        """Polls the store; one poll at a time, so that events are read once."""
        async with self._lock:
            self._last = await self._look()
            self._looked = time.monotonic()
            return self._last

    async def _look(self) -> Snapshot:
        news, more = await self._news()
        tallies = await self._tallies()
        counts: dict[State, int] = {}
        for tally in tallies:
            for state, count in tally.counts.items():
                counts[state] = counts.get(state, 0) + count
        ages = [one.oldest_at for one in tallies if one.oldest_at is not None]
        changed = list(dict.fromkeys((one.tenant, one.job_id) for one in news))
        snapshot = Snapshot(
            now=await self._clock.look(),
            counts=counts,
            oldest_at=min(ages, default=None),
            tallies=tallies,
            workers=await workers(self._store, self._tenant, self._queues),
            own=self._tenant is not None,
            samples=self._samples,
            changed=[link("jobs", *ref) for ref in changed[:CHANGED_MAX]],
            more=more or len(changed) > CHANGED_MAX,
            any=bool(news) or more,
        )
        waiting, running = snapshot.count("enqueued"), snapshot.count("processing")
        self._samples.stands(snapshot.now, Level(waiting, running, snapshot.oldest_s))
        return snapshot

    async def _tallies(self) -> list[Tally]:
        """The visible queues, at most TALLIES_MAX."""
        found: list[Tally] = []
        if self._queues is not None:
            for queue in sorted(set(self._queues)):
                found += await self._store.count(self._tenant, part=queue, limit=PAGE_MAX)
        else:
            async for tally in listings.tallies(self._store, self._tenant):
                found.append(tally)
                if len(found) >= TALLIES_MAX:
                    break
        return found[:TALLIES_MAX]

    async def _news(self) -> tuple[list[Event], bool]:
        """The events since the last poll, and whether some were skipped."""
        if self._cursor is None:
            self._cursor = (await self._store.events(self._tenant, -1, 0)).cursor
            since = await self._clock.look() - SPAN_S * SECOND
            before = await past(self._store, self._tenant, self._cursor, since)
            self._samples.happened(event for event in before if self._may(event))
        start, news, full = self._cursor, [], False
        for _ in range(PAGES_MAX):
            page = await self._store.events(self._tenant, self._cursor, PAGE_MAX)
            self._cursor = page.cursor
            news += [one for one in page.events if self._may(one)]
            full = len(page.events) >= PAGE_MAX
            if not full:
                break
        scale = 1.0
        if full:
            read = max(1, self._cursor - start)
            self._cursor = (await self._store.events(self._tenant, -1, 0)).cursor
            scale = max(1.0, (self._cursor - start) / read)
        self._samples.happened(news, scale)
        return news, full

    def _may(self, event: Event) -> bool:
        return self._queues is None or event.queue in self._queues


async def past(store: Store, tenant: str | None, end: int, since: Micros) -> list[Event]:
    """The latest events up to a cursor: back to an instant, but not more than BACKFILL.

    Cursors give only an order: some stores number events one by one, others by time. So it goes
    back in growing windows and uses only complete windows.
    """
    windows: list[list[Event]] = []
    upper, width, left = end, BACKFILL, BACKFILL
    while upper > 0:
        lower = max(0, end - width)
        found = await _between(store, tenant, (lower, upper), left)
        if found is None:
            break
        windows.append(found)
        left -= len(found)
        if found and found[0].at < since:
            break
        upper, width = lower, width * WIDEN
    return [event for window in reversed(windows) for event in window]


async def _between(
    store: Store, tenant: str | None, bounds: tuple[int, int], most: int
) -> list[Event] | None:
    """The events after one cursor and up to another; None if there are too many."""
    after, upper = bounds
    found: list[Event] = []
    while True:
        page = await store.events(tenant, after, PAGE_MAX)
        found += [event for event in page.events if event.cursor <= upper]
        if len(found) > most:
            return None
        after = page.cursor
        if len(page.events) < PAGE_MAX or after >= upper:
            return found


async def workers(store: Store, tenant: str | None, queues: tuple[str, ...] | None) -> list[Worker]:
    """The present workers that serve visible queues, by name."""
    tenants = None if tenant is None else (tenant,)
    present = await present_workers(store, tenant, own=tenant is not None)
    found = [one for one in present if one.note.serves_any(tenants, queues)]
    return sorted(found, key=lambda one: one.name)


def key_of(viewer: Viewer) -> Key:
    """The key of a feed: viewers with the same key see the same."""
    return viewer.tenant, viewer.queues
