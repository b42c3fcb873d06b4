"""Events: the log, read by cursor, and its oldest part deleted."""

from __future__ import annotations

from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.job import By
from holdfast.store import EventPage
from holdfast.stores.postgres.rows import event
from holdfast.stores.postgres.statements import EXPECT
from holdfast.stores.postgres.step import Step

HORIZON = f"SELECT holdfast.horizon() WHERE {EXPECT.format('true')}"
FLOOR = "SELECT events_floor FROM holdfast.store_state"
PAGE = (
    "SELECT cursor, at, kind, tenant, job_id, queue, type, attempt, fence, until, note, signed"
    " FROM holdfast.events WHERE cursor > $1 AND cursor <= $2{where} ORDER BY cursor LIMIT $3"
)
# The log is nearly in order of time, so its oldest events are at its head; `at` needs no index.
PRUNE_TO = (
    "SELECT max(cursor), count(*) FROM (SELECT cursor, at FROM holdfast.events"
    " WHERE cursor > (SELECT events_floor FROM holdfast.store_state) AND cursor <= $3"
    " ORDER BY cursor LIMIT $1) head WHERE at <= $2"
)
PRUNE = (
    "DELETE FROM holdfast.events"
    " WHERE cursor > (SELECT events_floor FROM holdfast.store_state) AND cursor <= $1"
)
FLOOR_SAVE = "UPDATE holdfast.store_state SET events_floor = greatest(events_floor, $1)"


async def read_events(
    step: Step, tenant: str | None, after: int, limit: int, job_id: str | None
) -> EventPage:
    # The horizon first: all events below it are visible to every later statement.
    head = await step.value(HORIZON)
    if after < 0:
        return EventPage([], head, False)
    floor = await step.value(FLOOR)
    narrow, values = "", list[Any]([after, head, limit + 1])
    for column, value in (("tenant", tenant), ("job_id", job_id)):
        if value is not None:
            values.append(value)
            narrow += f" AND {column} = ${len(values)}"
    rows = await step.rows(PAGE.format(where=narrow), *values)
    events = [event(row) for row in rows[:limit]]
    reached = events[-1].cursor if events else after
    return EventPage(events, reached if len(rows) > limit else max(head, after), after < floor)


async def prune_events(step: Step, limit: int, horizon: Micros) -> int:
    """Deletes the oldest events, and notes where the log begins now."""
    head = await step.value(HORIZON)
    found = await step.row(PRUNE_TO, limit, horizon, head)
    if found is None or found[0] is None:
        return 0
    await step.run(PRUNE, found[0])
    await step.run(FLOOR_SAVE, found[0])
    return int(found[1])


def words_of(by: By | None) -> str | None:
    """Who acts, as events keep it."""
    return None if by is None else by.words
