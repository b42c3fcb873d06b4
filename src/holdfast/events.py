"""What can be subscribed to: stored events from any cursor, and outcomes this process saw
confirmed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

import msgspec

from holdfast.job import Event, JobRecord, Outcome, State
from holdfast.limits import PAGE_MAX
from holdfast.store import Store, Watch

logger = logging.getLogger("holdfast")

NEWS_S = 0.5
"""How long a follower sleeps when no hint arrives."""


class Gap(msgspec.Struct, frozen=True):
    """Told to a reader whose place was pruned: events up to `cursor` are missing, none after."""

    cursor: int


async def follow(
    store: Store, tenant: str | None, after: int, job_id: str | None = None
) -> AsyncIterator[Event | Gap]:
    """Every event after a cursor, then each new one as it is stored, until the caller stops."""
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
    """An outcome the store has accepted."""

    job: JobRecord
    outcome: Outcome
    state: State


Subscriber = Callable[[Confirmed], None]


class Announcer:
    """Tells this process's subscribers what the store confirmed, never what is only hoped for."""

    def __init__(self) -> None:
        self.subscribers: list[Subscriber] = []

    def announce(self, fact: Confirmed) -> None:
        for subscriber in self.subscribers:
            try:
                subscriber(fact)
            except Exception:
                # A subscriber is a guest: its failure must not touch the job that was settled.
                logger.exception("a subscriber failed on job %s", fact.job.id)
