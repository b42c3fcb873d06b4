"""The event log as readers see it: from any cursor, in order, over all shards they ask for.

Cursors are numbered by time, so those of several shards compare. A shard answers with its horizon:
whatever it stores later has a cursor above. A reader of all tenants may pass a cursor only when all
shards' horizons are above it; a shard that lags behind is raised to it first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from holdfast.job import Event
from holdfast.store import EventPage
from holdfast.stores.redis.rows import event, exact, unpack
from holdfast.stores.redis.shards import Shards, together

CHUNK = 2000
"""Facts read at a time by a reader that wants only some of them."""
FACT_SIZE = 10
"""Values of a fact; all facts of an entry are one flat list."""


class Asked(msgspec.Struct, frozen=True):
    """Which facts."""

    tenant: str | None
    after: int
    limit: int
    job_id: str | None

    def concern(self, fact: list[object]) -> bool:
        return (self.tenant is None or fact[1] == self.tenant) and (
            self.job_id is None or fact[2] == self.job_id
        )


class _Told(msgspec.Struct):
    """What one shard told."""

    events: list[Event]
    floor: int
    horizon: int


async def events(shards: Shards, asked: Asked) -> EventPage:
    exact("after", asked.after)
    if asked.tenant is not None and asked.job_id is not None and asked.after >= 0:
        return await _history(shards, asked, asked.tenant, asked.job_id)
    concerned = shards.concerned(None if asked.tenant is None else (asked.tenant,))
    told = await together(_ask(shards, shard, asked) for shard in concerned)
    top = max((each.cursor for each in _merge(told, asked.limit)), default=0)
    if asked.after < 0:
        top = max(one.horizon for one in told)
    low = [place for place, one in enumerate(told) if one.horizon < top]
    if low:
        raised = await together(_ask(shards, concerned[place], asked, top) for place in low)
        for place, one in zip(low, raised, strict=True):
            told[place] = one
    horizon = min(one.horizon for one in told)
    found = [each for each in _merge(told, asked.limit + 1) if each.cursor <= horizon]
    page = found[: asked.limit]
    reached = max(asked.after, horizon)
    if len(found) > asked.limit:
        reached = page[-1].cursor if page else asked.after
    lost = asked.after >= 0 and any(asked.after < one.floor for one in told)
    return EventPage(page, reached, lost)


def _merge(told: list[_Told], most: int) -> list[Event]:
    merged = heapq.merge(*(one.events for one in told), key=lambda each: each.cursor)
    return list(islice(merged, most))


async def _ask(shards: Shards, shard: int, asked: Asked, least: int | None = None) -> _Told:
    """Up to one more fact of a shard than asked for, that concern the reader."""
    found: list[Event] = []
    after = asked.after
    while True:
        # Others' facts are passed over here, so as not to hold up the server.
        most = asked.limit if asked.tenant is None else max(asked.limit, CHUNK)
        args = (after, most, least)
        floor, horizon, *entries = await shards.call("events", shard, args, None)
        for id, fields in entries:
            last, at, flat = int(id.split(b"-")[0]), int(fields[1]), unpack(fields[5])
            cursor = last - int(fields[3]) * shards.number
            for fact in _facts(flat):
                cursor += shards.number
                if cursor > max(after, int(floor)) and asked.concern(fact):
                    found.append(event(cursor, at, fact))
            after = max(after, last)
        if asked.after < 0 or not entries or len(found) > asked.limit:
            return _Told(found, int(floor), int(horizon))


def _facts(flat: list[Any]) -> Iterator[list[Any]]:
    """The facts of an entry, also those that are told as one (lib_facts.lua)."""
    for start in range(0, len(flat), FACT_SIZE):
        kind, tenant, ids, *rest = flat[start : start + FACT_SIZE]
        if not kind.startswith("*"):
            yield [kind, tenant, ids, *rest]
            continue
        digits, _, kind = kind[1:].partition(":")
        width = len(ids) // int(digits)
        for at in range(0, len(ids), width):
            yield [kind, tenant, ids[at : at + width], *rest]


async def _history(shards: Shards, asked: Asked, tenant: str, id: str) -> EventPage:
    """The facts about one job."""
    args = (tenant, id, asked.after)
    floor, horizon, *facts = await shards.call("history", shards.of(tenant), args, None)
    found = [event(int(cursor), int(at), unpack(fact)) for cursor, at, fact in reversed(facts)]
    page = found[: asked.limit]
    reached = page[-1].cursor if page else asked.after
    if len(found) <= asked.limit:
        reached = max(reached, int(horizon))
    return EventPage(page, reached, asked.after < int(floor))
