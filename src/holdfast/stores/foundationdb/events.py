"""Events: batches written under the versionstamps of their commits, numbered later.

A cursor is 1, 2, 3 and so on in the order of commits. A batch in INBOX has no cursor of its own
yet, but the order of versionstamps already fixes it: a reader counts on from HEAD, without writing
anything. A store that writes moves batches from INBOX to EVENTS with the same cursors, so that
readers have little to count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import Event
from holdfast.store import EventPage
from holdfast.stores.foundationdb.layout import SEQ, Space, after, seq_bytes, seq_number
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.sql_rows import KINDS

BATCHES_MAX = 1000
"""Batches that are read at a time."""


class EventBatch(msgspec.Struct, array_like=True):
    """Consecutive events of one tenant, as stored."""

    tenant: str
    events: list[Any]


_decode = msgspec.msgpack.Decoder(EventBatch).decode


async def number_events(step: Step) -> int:
    """Numbers events that were committed up to this step's version, in the order of their commits.

    Returns how many batches. Of two steps that number at once, one is repeated.
    """
    batches = await step.under(step.keys.all(Space.INBOX), BATCHES_MAX, snapshot=True)
    if not batches:
        return 0
    cursor = await _head(step)
    for key, value in batches:
        batch = _decode(value)
        cursor += len(batch.events)
        place = seq_bytes(cursor)
        step.put(step.keys.all(Space.EVENTS, place), value)
        step.put(step.keys.own(batch.tenant, Space.LOG, place), b"")
        step.drop(key)
    step.put(step.keys.all(Space.HEAD), seq_bytes(cursor))
    return len(batches)


async def _head(step: Step) -> int:
    """The last cursor that was given."""
    return seq_number(await step.get(step.keys.all(Space.HEAD)) or b"")


# -- reading ---------------------------------------------------------------------------------------


async def read_events(
    step: Step, tenant: str | None, after_: int, limit: int, job_id: str | None
) -> EventPage:
    """A page of events, numbered or not, at one version."""
    if after_ < 0:
        return EventPage([], await _end(step), False)
    lost = after_ < seq_number(await step.get(step.keys.all(Space.FLOOR)) or b"")
    found: list[Event] = []
    async for cursor, batch in _batches(step, tenant, after_):
        for event in _events(cursor, batch):
            if event.cursor <= after_ or (job_id is not None and event.job_id != job_id):
                continue
            if len(found) == limit:
                return EventPage(found, found[-1].cursor if found else after_, lost)
            found.append(event)
    return EventPage(found, await _end(step), lost)


async def _end(step: Step) -> int:
    """The cursor of the last event there is."""
    head = await _head(step)
    return max([head, *[cursor async for cursor, _ in _inbox(step, head)]])


async def _batches(
    step: Step, tenant: str | None, after_: int
) -> AsyncIterator[tuple[int, EventBatch]]:
    """The batches of a tenant, or of all, that end after a cursor; with the cursor of the last
    event of each.
    """
    place, batches = after_, BATCHES_MAX
    while batches == BATCHES_MAX:
        some = await _numbered(step, tenant, place)
        for place, batch in some:
            yield place, batch
        batches = len(some)
    async for cursor, batch in _inbox(step, await _head(step)):
        if cursor > after_ and tenant in (None, batch.tenant):
            yield cursor, batch


async def _numbered(step: Step, tenant: str | None, after_: int) -> list[tuple[int, EventBatch]]:
    """The first numbered batches that end after a cursor."""
    begin = seq_bytes(after_ + 1)
    everything = step.keys.all(Space.EVENTS)
    if tenant is None:
        pairs = await step.range(everything + begin, after(everything), BATCHES_MAX)
        return [(seq_number(key[-SEQ:]), _decode(value)) for key, value in pairs]
    mine = step.keys.own(tenant, Space.LOG)
    cursors = [key[-SEQ:] for key, _ in await step.range(mine + begin, after(mine), BATCHES_MAX)]
    values = await step.get_many([everything + cursor for cursor in cursors])
    return [
        (seq_number(cursor), _decode(value))
        for cursor, value in zip(cursors, values, strict=True)
        if value is not None
    ]


async def _inbox(step: Step, cursor: int) -> AsyncIterator[tuple[int, EventBatch]]:
    """The batches that are not numbered yet, with the cursors that they will get."""
    prefix = step.keys.all(Space.INBOX)
    begin, end = prefix, after(prefix)
    while begin < end:
        pairs = await step.range(begin, end, BATCHES_MAX, snapshot=True)
        for _, value in pairs:
            batch = _decode(value)
            cursor += len(batch.events)
            yield cursor, batch
        begin = pairs[-1][0] + b"\0" if len(pairs) == BATCHES_MAX else end


def _events(cursor: int, batch: EventBatch) -> list[Event]:
    first = cursor - len(batch.events) + 1
    return [_event(first + place, batch.tenant, each) for place, each in enumerate(batch.events)]


def _event(cursor: int, tenant: str, stored: list[Any]) -> Event:
    at, kind, id, queue, type, attempt, fence, until, note, *by = stored
    named = (tenant, id, queue, type)
    return Event(cursor, at, KINDS[kind], *named, attempt, fence, until, note, *by)


# -- prune -----------------------------------------------------------------------------------------


async def prune_events(step: Step, limit: int, horizon: Micros) -> int:
    """Deletes numbered batches whose events are older; returns how many events."""
    everything = step.keys.all(Space.EVENTS)
    count, last = 0, None
    for key, value in await step.under(everything, min(limit, BATCHES_MAX), snapshot=True):
        batch = _decode(value)
        if batch.events[-1][0] > horizon or count >= limit:
            break
        step.drop(key)
        step.drop(step.keys.own(batch.tenant, Space.LOG, key[-SEQ:]))
        count += len(batch.events)
        last = key[-SEQ:]
    if last is not None:
        floor = step.keys.all(Space.FLOOR)
        await step.get(floor)  # With a conflict: of two steps that prune one is repeated.
        step.put(floor, last)
    return count
