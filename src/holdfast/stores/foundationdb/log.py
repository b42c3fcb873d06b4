"""The event log: runs of facts, written under the stamps of their commits and numbered later."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.job import Event, EventKind
from holdfast.store import EventPage
from holdfast.stores.foundationdb.layout import (
    SEQ,
    Space,
    after,
    seq_bytes,
    seq_number,
)
from holdfast.stores.foundationdb.step import Entry, Step
from holdfast.stores.sql_rows import KINDS

RUNS_MAX = 1000
"""Runs that one step of a reader looks at."""
_decoder = msgspec.msgpack.Decoder(Entry)


async def number(step: Step) -> int:
    """Numbers facts that were committed up to this step's version, in the order of their commits.

    Returns how many runs. Of two that number at once one is repeated.
    """
    inbox = step.keys.all(Space.INBOX)
    runs = await step.under(inbox, RUNS_MAX, snapshot=True)
    if not runs:
        return 0
    head = step.keys.all(Space.HEAD)
    cursor = seq_number(await step.get(head) or b"")
    for key, value in runs:
        entry = _decoder.decode(value)
        cursor += len(entry.facts)
        place = seq_bytes(cursor)
        step.put(step.keys.all(Space.EVENTS, place), value)
        step.put(step.keys.own(entry.tenant, Space.LOG, place), b"")
        step.drop(key)
    step.put(head, seq_bytes(cursor))
    return len(runs)


async def page(
    step: Step, tenant: str | None, after_: int, limit: int, job_id: str | None
) -> EventPage:
    end = seq_number(await step.get(step.keys.all(Space.HEAD)) or b"")
    if after_ < 0:
        return EventPage([], end, False)
    lost = after_ < seq_number(await step.get(step.keys.all(Space.FLOOR)) or b"")
    found: list[Event] = []
    place = after_
    while True:
        runs = await _runs(step, tenant, place)
        for cursor, entry in runs:
            for event in _events(cursor, entry):
                if event.cursor <= after_ or (job_id is not None and event.job_id != job_id):
                    continue
                if len(found) == limit:
                    return EventPage(found, found[-1].cursor if found else after_, lost)
                found.append(event)
        if len(runs) < RUNS_MAX:
            return EventPage(found, end, lost)
        place = runs[-1][0]


async def _runs(step: Step, tenant: str | None, after_: int) -> list[tuple[int, Entry]]:
    """The runs that end after a cursor."""
    begin = seq_bytes(after_ + 1)
    everything = step.keys.all(Space.EVENTS)
    if tenant is None:
        pairs = await step.range(everything + begin, after(everything), RUNS_MAX)
        return [(seq_number(key[-SEQ:]), _decoder.decode(value)) for key, value in pairs]
    mine = step.keys.own(tenant, Space.LOG)
    cursors = [key[-SEQ:] for key, _ in await step.range(mine + begin, after(mine), RUNS_MAX)]
    values = await step.get_many([everything + cursor for cursor in cursors])
    return [
        (seq_number(cursor), _decoder.decode(value))
        for cursor, value in zip(cursors, values, strict=True)
        if value is not None
    ]


def _events(cursor: int, entry: Entry) -> list[Event]:
    first = cursor - len(entry.facts) + 1
    return [_event(first + place, entry.tenant, fact) for place, fact in enumerate(entry.facts)]


def _event(cursor: int, tenant: str, fact: list[Any]) -> Event:
    at, kind, id, queue, type, attempt, fence, until, note, *by = fact
    named = (tenant, id, queue, type)
    return Event(cursor, at, _kind(kind), *named, attempt, fence, until, note, *by)


def _kind(name: str) -> EventKind:
    return KINDS[name]


async def prune(step: Step, limit: int, horizon: Micros) -> int:
    """Deletes runs whose facts are older; returns how many facts."""
    everything = step.keys.all(Space.EVENTS)
    count, last = 0, None
    for key, value in await step.under(everything, min(limit, RUNS_MAX), snapshot=True):
        entry = _decoder.decode(value)
        if entry.facts[-1][0] > horizon or count >= limit:
            break
        step.drop(key)
        step.drop(step.keys.own(entry.tenant, Space.LOG, key[-SEQ:]))
        count += len(entry.facts)
        last = key[-SEQ:]
    if last is not None:
        floor = step.keys.all(Space.FLOOR)
        await step.get(floor)  # In earnest: of two that prune one is repeated.
        step.put(floor, last)
    return count
