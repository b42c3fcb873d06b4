"""Wake-ups: watches of counters that steps of other processes add to, one counter for each topic.

A topic is a queue, all lines, ends of jobs, or news (any event). A store watches a topic while any
of its sleepers waits for it: one watch for each topic, however many sleep, and WATCHES_MAX at most,
far below the 10,000 that a connection may have. Sleepers beyond that poll.

A watch can also end with an error (the connection has too many, a version was lost, the transaction
was cancelled). That is no wake-up: its sleepers look for themselves POLL_S later, and watch again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

from holdfast.core.bounds import WAIT_S_MAX
from holdfast.core.clock import SECOND, Micros, seconds
from holdfast.store import Watch
from holdfast.stores.foundationdb import binding
from holdfast.stores.foundationdb.claim_repair import is_over
from holdfast.stores.foundationdb.errors import code_of
from holdfast.stores.foundationdb.fairness_lines import open_lines
from holdfast.stores.foundationdb.layout import Keys, Space, text
from holdfast.stores.foundationdb.limits import survey
from holdfast.stores.foundationdb.limits_platform import PlatformRooms, anything_aside
from holdfast.stores.foundationdb.step import (
    TOPIC_ENDS,
    TOPIC_LINES,
    TOPIC_NEWS,
    TOPIC_PLATFORM,
    Step,
    topic_of,
)
from holdfast.stores.notifier import Notifier

WATCHES_MAX = 1000
QUEUES_MAX = 16
"""A sleeper that names more queues waits for all lines instead."""
POLL_S = 1.0
"""How long a sleeper sleeps at most where it has no watch."""


def topics_of(watch: Watch) -> list[str]:
    """The topics that a watch has to wait for."""
    if watch.news:
        return [TOPIC_NEWS]
    if watch.job is not None:
        return [TOPIC_ENDS]
    if watch.queues is not None and len(watch.queues) <= QUEUES_MAX:
        return [topic_of(queue) for queue in watch.queues]
    return [TOPIC_LINES]


class Watches:
    """The watches of one open store."""

    def __init__(self, database: Any, keys: Keys, notifier: Notifier, timeout_s: float) -> None:
        self._database = database
        self._timeout_s = timeout_s
        self._keys = keys
        self._notifier = notifier
        self._lock = threading.Lock()
        self._watches: dict[str, Any] = {}
        self._closed = False

    async def listen(self, watch: Watch) -> float:
        """Makes sure that the topics of a watch are watched; returns the seconds after which a
        sleeper should look for itself.
        """
        return await self._listen(topics_of(watch))

    async def listen_to_platform(self) -> float:
        """The same for room at the limits of the platform."""
        return await self._listen([TOPIC_PLATFORM])

    async def _listen(self, topics: list[str]) -> float:
        watched = True
        for name in topics:
            if name not in self._watches:
                watched = await self._watch(name) and watched
            elif self._watches.get(name) is None:
                watched = False  # Another sleeper is about to watch: it may be late for this one.
        return WAIT_S_MAX if watched else POLL_S

    async def _watch(self, name: str) -> bool:
        with self._lock:
            if self._closed or len(self._watches) >= WATCHES_MAX:
                return False
            if name in self._watches:
                return True
            self._watches[name] = None
        future = None
        try:
            transaction = self._database.create_transaction()
            async with asyncio.timeout(self._timeout_s):
                future = transaction.watch(self._keys.all(Space.WAKEUPS, text(name)))
                await binding.ready(transaction.commit())
        except BaseException as error:
            self._give_up(name, future)
            if isinstance(error, TimeoutError) or code_of(error) is not None:
                return False  # Polling is always right; a watch is only sooner.
            raise
        return self._armed(name, future, asyncio.get_running_loop())

    def _give_up(self, name: str, future: Any) -> None:
        with self._lock:
            self._watches.pop(name, None)
        if future is not None:
            future.cancel()  # Its transaction may have been committed all the same.

    def _armed(self, name: str, future: Any, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the watch is there now: it may have ended already."""
        with self._lock:
            if self._closed:
                future.cancel()
                return False
            self._watches[name] = future
        if future.is_ready() and _failed(future):
            self._give_up(name, future)
            return False
        future.on_ready(lambda _: self._fired(name, future, loop))
        return True

    def _fired(self, name: str, future: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Runs on the library's thread. Sleepers look, and watch again."""
        with self._lock:
            if self._watches.get(name) is not future:
                return  # Closed meanwhile: `close` of the store wakes them all.
            del self._watches[name]
        if not _failed(future):
            self._notifier.notify_all()
            return
        try:
            loop.call_soon_threadsafe(loop.call_later, POLL_S, self._notifier.notify_all)
        except RuntimeError:  # The loop has closed. Sleepers of other loops watch again then.
            self._notifier.notify_all()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            futures, self._watches = list(self._watches.values()), {}
        for future in futures:
            if future is not None:
                future.cancel()


def _failed(future: Any) -> bool:
    """Whether a watch that is over has ended with an error."""
    try:
        future.wait()
    except Exception as error:
        if code_of(error) is None:
            raise
        return True
    return False


# -- what a sleeper waits for ----------------------------------------------------------------------


async def soonest(step: Step, watch: Watch) -> tuple[float, bool]:
    """Seconds until something known will be worth a look, 0 when it already is; and whether there
    are limits of the platform, or tiers: what changes them tells all sleepers so.
    """
    if watch.news:
        return WAIT_S_MAX, False
    if watch.job is not None:
        row = await step.row(watch.job.tenant, watch.job.id)
        return (WAIT_S_MAX if row is not None and row.alive else 0.0), False
    step.settings.ask()
    lines = await open_lines(step, (watch.tenants, watch.queues))
    await step.settings.load()
    if step.settings.tiers.looks:
        return 0.0, True  # Claims look at what a changed tier may have opened.
    limited = bool(step.settings.marked)
    platform = PlatformRooms(step)
    instants = list[Micros]()
    async for (_, queue), rooms, ready in survey(step, lines):
        over_all = await platform.of_queue(queue) if limited else []
        if all(room.left() > 0 for room in (*rooms, *over_all)):
            if ready:
                return 0.0, limited
        else:
            opens = [room.opens_at() for room in rooms]
            instants += [at for at in opens if at is not None]
    if limited and await anything_aside(step, (watch.tenants, watch.queues), platform):
        return 0.0, True
    instants += [*platform.opens_at(), *[at async for at in _next_repairs(step)]]
    told = limited or bool(step.settings.tiers.values)
    return max(0.0, seconds(min(instants, default=step.now + 3600 * SECOND) - step.now)), told


async def _next_repairs(step: Step) -> AsyncIterator[Micros]:
    """When the next job is due, when the next lease lapses that a claim would make ready, and when
    time next opens a scope.
    """
    for space in (Space.DUE, Space.REOPEN, Space.HELD):
        for key, value in await step.under(step.keys.all(space), 1, snapshot=True):
            at = step.keys.instant_of(space, key)
            if space is not Space.HELD:
                yield at
            elif at > step.at.horizon:
                # The index of leases may be by versions, which are as many as microseconds.
                yield step.now + at - step.at.horizon
            else:
                # A lease that only seems to be over is looked at again a second later.
                yield step.now + (0 if is_over(step, space, key, value) else SECOND)
