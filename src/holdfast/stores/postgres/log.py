"""The event log, read and cut. A row is a fact about one job, or about many that are alike.

The facts of a row of many have cursors one after the other, and the row has that of the first.
"""

from __future__ import annotations

from typing import Any

from holdfast.clock import Micros
from holdfast.store import EventPage
from holdfast.stores.postgres.rows import event
from holdfast.stores.postgres.statements import EXPECT
from holdfast.stores.postgres.step import Step

HORIZON = f"SELECT holdfast.horizon() WHERE {EXPECT.format('true')}"
FLOOR = "SELECT events_floor FROM holdfast.heads"
# As many rows as it takes for so many facts. Of the first row some may be known already.
PAGE = (
    "SELECT f.cursor + u.place - 1, f.at, f.kind, f.tenant, u.id, f.queue, f.type, f.attempt,"
    " f.fence, f.until, f.note, f.signed FROM"
    " (SELECT *, sum(number) OVER (ORDER BY cursor) - number AS before"
    " FROM (SELECT * FROM holdfast.events WHERE cursor > $1 - 128 AND cursor + number > $1 + 1"
    " AND cursor <= $2{where} ORDER BY cursor LIMIT $3) near) f"
    " CROSS JOIN LATERAL unnest(coalesce(f.ids, ARRAY[f.job_id])) WITH ORDINALITY AS u(id, place)"
    " WHERE f.before < $3 + 127 AND f.cursor + u.place > $1 + 1 ORDER BY 1 LIMIT $3"
)
# All jobs of a row begin alike, so few rows may have one, however long the log is.
PAGE_OF_JOB = (
    "SELECT cursor + place - 1, at, kind, tenant, $4::text, queue, type, attempt, fence, until,"
    " note, signed FROM (SELECT *, 1 AS place FROM holdfast.events"
    " WHERE job_id = $4 AND ids IS NULL{where}"
    " UNION ALL SELECT *, array_position(ids, $4) FROM holdfast.events WHERE ids IS NOT NULL"
    " AND job_id BETWEEN holdfast.stem($4) AND $4 AND last_id >= $4{where}) f"
    " WHERE cursor <= $2 AND cursor + place > $1 + 1 ORDER BY 1 LIMIT $3"
)
# The log is nearly in order of time, so its head is its past; `at` needs no index.
PRUNE_TO = (
    "SELECT max(cursor + number - 1), sum(number) FROM (SELECT cursor, at, number,"
    " sum(number) OVER (ORDER BY cursor) - number AS before FROM (SELECT cursor, at, number"
    " FROM holdfast.events WHERE cursor > (SELECT events_floor FROM holdfast.heads)"
    " AND cursor <= $3 ORDER BY cursor LIMIT $1) near) head WHERE at <= $2 AND before < $1"
)
PRUNE = (
    "DELETE FROM holdfast.events"
    " WHERE cursor > (SELECT events_floor FROM holdfast.heads) AND cursor <= $1"
)
FLOOR_SAVE = "UPDATE holdfast.heads SET events_floor = greatest(events_floor, $1)"


async def page(
    step: Step, tenant: str | None, after: int, limit: int, job_id: str | None
) -> EventPage:
    # The horizon first: what is below it is there for every later look.
    head = await step.value(HORIZON)
    if after < 0:
        return EventPage([], head, False)
    floor = await step.value(FLOOR)
    query, values = PAGE, list[Any]([after, head, limit + 1])
    if job_id is not None:
        query = PAGE_OF_JOB
        values.append(job_id)
    if tenant is not None:
        values.append(tenant)
    of_tenant = "" if tenant is None else f" AND tenant = ${len(values)}"
    rows = await step.rows(query.format(where=of_tenant), *values)
    facts = [event(row) for row in rows[:limit]]
    reached = facts[-1].cursor if facts else after
    return EventPage(facts, reached if len(rows) > limit else max(head, after), after < floor)


async def prune(step: Step, limit: int, horizon: Micros) -> int:
    """Cuts the log's oldest facts off and remembers where it begins now. The last row may hold
    more of them than were asked for.
    """
    head = await step.value(HORIZON)
    found = await step.row(PRUNE_TO, limit, horizon, head)
    if found is None or found[0] is None:
        return 0
    await step.run(PRUNE, found[0])
    await step.run(FLOOR_SAVE, found[0])
    return int(found[1])
