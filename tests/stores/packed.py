"""Stores with every job in a pack that can be in one, for the suites of all stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import msgspec
import pytest

from holdfast.job import NewJob
from holdfast.store import Enqueued
from holdfast.stores.redis import layout, packs
from holdfast.stores.redis.store import RedisStore

BOUND_S = 60.0
AGES_US = 100 * 365 * 24 * 3600 * 1_000_000

Name = tuple[str, str, str]
"""(place, tenant, id)"""

_sent: dict[Name, threading.Event] = {}
"""Every job that was sent, and whether its first enqueue has returned."""


class Believing:
    """Takes ids that nobody sent before for what they are: made for this call. Who sends one again
    waits until then, or that would not be true.
    """

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        first: dict[Name, threading.Event] = {}
        marked: list[NewJob] = []
        for job in jobs:
            name, event = (self.place(), job.tenant, job.id), threading.Event()
            known = _sent.setdefault(name, event)
            if known is event:
                first[name] = event
                marked.append(msgspec.structs.replace(job, fresh=True))
            else:
                if name not in first:
                    assert await asyncio.to_thread(known.wait, BOUND_S), "the first never ended"
                marked.append(job)
        try:
            found: list[Enqueued] = await super().enqueue(marked)  # type: ignore[misc]
            return found
        finally:
            for event in first.values():
                event.set()

    def place(self) -> str:
        """Where its jobs are: other stores there have them too."""
        raise NotImplementedError


class PackedRedis(Believing, RedisStore):
    def place(self) -> str:
        return f"{self.options.name} {self.options.prefix}"


def one_is_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one job makes a pack, and a piece when it is claimed. Ids need not begin alike."""
    monkeypatch.setattr(packs, "PACK_MIN", 1)
    monkeypatch.setattr(packs, "PIECE_KEEP_US_MAX", AGES_US)
    monkeypatch.setattr(layout, "STEM_SIZE", 0)
