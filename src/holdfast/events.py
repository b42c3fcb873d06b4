"""Subscriptions: stored events from any cursor, and the confirmed outcomes of this process."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

import msgspec

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.job import Event, JobRecord, Outcome, State
from holdfast.store import Store, Watch

logger = logging.getLogger("holdfast")

NEWS_S = 0.5
"""How long a follower sleeps if no wake-up arrives."""


class Gap(msgspec.Struct, frozen=True):
    """Tells a reader that events up to `cursor` were pruned; none after it is missing."""

    cursor: int


async def follow(
    store: Store, tenant: str | None, after: int, job_id: str | None = None
) -> AsyncIterator[Event | Gap]:
    """Yields every event after a cursor, then each new one as it is stored."""
    while True:
        page = await store.events(tenant, after, PAGE_MAX, job_id)
        if page.lost:
            yield Gap(page.events[0].cursor - 1 if page.events else page.cursor)
        for event in page.events:
            yield event
        after = page.cursor
        if len(page.events) < PAGE_MAX:
            await store.wait(Watch(news=True), NEWS_S)


class Confirmed(msgspec.Struct, frozen=True):
    """An outcome that the store has accepted."""

    job: JobRecord
    outcome: Outcome
    state: State


Subscriber = Callable[[Confirmed], None]


class Announcer:
    """Calls this process's subscribers with each outcome that the store has confirmed."""

    def __init__(self) -> None:
        self.subscribers: list[Subscriber] = []

    def announce(self, fact: Confirmed) -> None:
        for subscriber in self.subscribers:
            try:
                subscriber(fact)
            except Exception:
                # An error of a subscriber must not affect the acked job.
                logger.exception("a subscriber failed on job %s", fact.job.id)
