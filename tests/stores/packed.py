"""The SQLite store with every job in a pack that can be in one, for the suites of all stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import msgspec

from holdfast.job import NewJob
from holdfast.store import Enqueued
from holdfast.stores.sqlite.store import SqliteStore

BOUND_S = 60.0

Name = tuple[str, str, str]
"""(path, tenant, id)"""

_sent: dict[Name, threading.Event] = {}
"""Every job that was sent, and whether its first enqueue has returned."""


class PackedSqlite(SqliteStore):
    """Takes ids that nobody sent before for what they are: made for this call. Who sends one again
    waits until then, or that would not be true.
    """

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        first: dict[Name, threading.Event] = {}
        marked: list[NewJob] = []
        for job in jobs:
            name, event = (self.options.path, job.tenant, job.id), threading.Event()
            known = _sent.setdefault(name, event)
            if known is event:
                first[name] = event
                marked.append(msgspec.structs.replace(job, fresh=True))
            else:
                if name not in first:
                    assert await asyncio.to_thread(known.wait, BOUND_S), "the first never ended"
                marked.append(job)
        try:
            return await super().enqueue(marked)
        finally:
            for event in first.values():
                event.set()
