"""Events: the log from any cursor, in order, merged from the shards that the reader asks for.

Cursors are numbered by the servers' time, so those of several shards are comparable. A shard
answers with its horizon: whatever it stores later has a cursor above. A reader of all tenants may
pass a cursor only when the horizons of all shards are above it; a shard that lags is asked again
when its clock has passed that cursor.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import islice
from typing import Any

import msgspec

from holdfast.core.clock import seconds
from holdfast.core.job import Event
from holdfast.store import EventPage
from holdfast.stores.redis.rows import EVENT_SIZE, event, exact, unpack
from holdfast.stores.redis.shards import Shards, together

CHUNK = 2000
"""Events read at a time by a reader that wants only some of them."""
LAG_S_MAX = 0.25
"""How long a reader waits for a shard that lags; after that it gets a shorter page."""


class Asked(msgspec.Struct, frozen=True):
    """Which events."""

    tenant: str | None
    after: int
    limit: int
    job_id: str | None

    def wants(self, values: list[object]) -> bool:
        return (self.tenant is None or values[1] == self.tenant) and (
            self.job_id is None or values[2] == self.job_id
        )


class _Part(msgspec.Struct):
    """The answer of one shard."""

    events: list[Event]
    floor: int
    horizon: int


async def read_events(shards: Shards, asked: Asked) -> EventPage:
    exact("after", asked.after)
    if asked.tenant is not None and asked.job_id is not None and asked.after >= 0:
        return await _history(shards, asked, asked.tenant, asked.job_id)
    concerned = shards.concerned(None if asked.tenant is None else (asked.tenant,))
    parts = await together(_ask(shards, shard, asked) for shard in concerned)
    top = max((each.cursor for each in _merge(parts, asked.limit)), default=0)
    if asked.after < 0:
        top = max(part.horizon for part in parts)
    lagging = [place for place, part in enumerate(parts) if part.horizon < top]
    if lagging:
        lag_s = seconds(top - min(parts[place].horizon for place in lagging))
        await asyncio.sleep(min(lag_s, LAG_S_MAX))
        again = await together(_ask(shards, concerned[place], asked) for place in lagging)
        for place, part in zip(lagging, again, strict=True):
            parts[place] = part
    horizon = min(part.horizon for part in parts)
    found = [each for each in _merge(parts, asked.limit + 1) if each.cursor <= horizon]
    page = found[: asked.limit]
    reached = max(asked.after, horizon)
    if len(found) > asked.limit:
        reached = page[-1].cursor if page else asked.after
    lost = asked.after >= 0 and any(asked.after < part.floor for part in parts)
    return EventPage(page, reached, lost)


def _merge(parts: list[_Part], most: int) -> list[Event]:
    merged = heapq.merge(*(part.events for part in parts), key=lambda each: each.cursor)
    return list(islice(merged, most))


async def _ask(shards: Shards, shard: int, asked: Asked) -> _Part:
    """The events of a shard that the reader wants, up to one more than the limit."""
    found: list[Event] = []
    after = asked.after
    while True:
        # Events of others are filtered out here, so as not to hold up the server.
        most = asked.limit if asked.tenant is None else max(asked.limit, CHUNK)
        floor, horizon, *entries = await shards.call("events", shard, (after, most), None)
        for id, fields in entries:
            last, at, flat = int(id.split(b"-")[0]), int(fields[1]), unpack(fields[5])
            cursor = last - int(fields[3]) * shards.number
            for start in range(0, len(flat), EVENT_SIZE):
                cursor += shards.number
                values: list[Any] = flat[start : start + EVENT_SIZE]
                if cursor > max(after, int(floor)) and asked.wants(values):
                    found.append(event(cursor, at, values))
            after = max(after, last)
        if asked.after < 0 or not entries or len(found) > asked.limit:
            return _Part(found, int(floor), int(horizon))


async def _history(shards: Shards, asked: Asked, tenant: str, id: str) -> EventPage:
    """The events of one job."""
    args = (tenant, id, asked.after)
    floor, horizon, *rows = await shards.call("job_events", shards.of(tenant), args, None)
    found = [event(int(cursor), int(at), unpack(values)) for cursor, at, values in reversed(rows)]
    page = found[: asked.limit]
    reached = page[-1].cursor if page else asked.after
    if len(found) <= asked.limit:
        reached = max(reached, int(horizon))
    return EventPage(page, reached, asked.after < int(floor))
