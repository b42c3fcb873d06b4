"""Shadow: sources and the rows of their shadows.

The row of a source is locked first, so steps of one source come one after the other.
"""

from __future__ import annotations

from holdfast.core.errors import StaleSource
from holdfast.core.shadow import (
    Shadow,
    ShadowRead,
    ShadowRow,
    ShadowStep,
    SourceRow,
    is_repeat,
    totals,
)
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.step import Step, columns

SOURCE = (
    "SELECT source, stamp, state, row_count, size FROM holdfast.sources"
    " WHERE tenant = $1 AND source = $2"
)
LOCK = f"{SOURCE} FOR UPDATE"
PAGE = (
    "SELECT source, stamp, state, row_count, size FROM holdfast.sources"
    " WHERE tenant = $1 AND source > $2 ORDER BY source LIMIT $3"
)
OTHERS = "SELECT count(*) FROM holdfast.sources WHERE tenant = $1 AND source <> $2"
# One at a time for each tenant, so that two calls do not both make its last sources.
MAKING = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.sources/' || $1, 0))"
INSERT = (
    "INSERT INTO holdfast.sources VALUES ($1, $2, $3, $4, $5, $6)"
    " ON CONFLICT DO NOTHING RETURNING true"
)
UPDATE = (
    "UPDATE holdfast.sources SET stamp = $3, state = $4, row_count = $5, size = $6"
    " WHERE tenant = $1 AND source = $2"
)
DELETE = "DELETE FROM holdfast.sources WHERE tenant = $1 AND source = $2"

ROWS = (
    "SELECT id, version, number, seen, gone, body, at FROM holdfast.shadow"
    " WHERE tenant = $1 AND source = $2"
)
ROWS_NAMED = f"{ROWS} AND id = ANY ($3)"
ROWS_PAGE = f"{ROWS} AND id > $3 ORDER BY id LIMIT $4"
SIZES = "SELECT id, size FROM holdfast.shadow WHERE tenant = $1 AND source = $2 AND id = ANY ($3)"
ROWS_DROP = "DELETE FROM holdfast.shadow WHERE tenant = $1 AND source = $2 AND id = ANY ($3)"
ROWS_PUT = (
    "INSERT INTO holdfast.shadow"
    " SELECT $1, $2, u.id, u.version, u.number, u.seen, u.gone, $3, u.size, u.body"
    " FROM unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::boolean[],"
    " $9::integer[], $10::bytea[]) AS u(id, version, number, seen, gone, size, body)"
    " ON CONFLICT (tenant, source, id) DO UPDATE SET version = excluded.version,"
    " number = excluded.number, seen = excluded.seen, gone = excluded.gone, at = excluded.at,"
    " size = excluded.size, body = excluded.body"
)


async def apply_step(step: Step, change: ShadowStep) -> Shadow:
    """Applies the change in the open transaction. What it raises rolls that back."""
    await step.begin()
    name = (change.tenant, change.source)
    found = await step.row(LOCK, *name)
    before = None if found is None else SourceRow(*found)
    if is_repeat(change, None if before is None else before.stamp):
        return Shadow(step.now)
    sources = 0
    if before is None:
        await step.run(MAKING, change.tenant)
        sources = await step.value(OTHERS, *name)
    ids = [*(row.id for row in change.put), *change.drop]
    sizes = {row[0]: row[1] for row in await step.rows(SIZES, *name, ids)}
    rows, size = totals(change, before, sizes, sources)
    if change.state is None:
        await step.run(DELETE, *name)
    else:
        values = (*name, change.stamp, change.state, rows, size)
        if before is not None:
            await step.run(UPDATE, *values)
        elif await step.value(INSERT, *values) is None:  # Another call has made it.
            raise StaleSource(field="expect", source=change.source)
    await _write_rows(step, change)
    if change.jobs:
        for answer in await enqueue_jobs(step, change.jobs):
            if answer.error is not None:
                raise answer.error
    return Shadow(step.now)


async def _write_rows(step: Step, change: ShadowStep) -> None:
    name = (change.tenant, change.source)
    if change.drop:
        await step.run(ROWS_DROP, *name, list(change.drop))
    if change.put:
        put = [
            (row.id, row.version, row.number, row.seen, row.gone, row.size, row.body)
            for row in change.put
        ]
        await step.run(ROWS_PUT, *name, step.now, *columns(put))


async def read_shadow(step: Step, read: ShadowRead) -> Shadow:
    """What is there, in one snapshot."""
    async with step.connection.transaction(isolation="repeatable_read", readonly=True):
        await step.begin()
        if not read.source:
            page = await step.rows(PAGE, read.tenant, read.after or "", read.limit)
            return Shadow(step.now, [SourceRow(*one) for one in page])
        name = (read.tenant, read.source)
        found = await step.row(SOURCE, *name)
        if found is None:
            return Shadow(step.now)
        rows: list[ShadowRow] = []
        if read.ids:
            named = await step.rows(ROWS_NAMED, *name, list(read.ids))
            by_id = {one[0]: ShadowRow(*one) for one in named}
            rows += [by_id[id] for id in dict.fromkeys(read.ids) if id in by_id]
        if read.after is not None:
            page = await step.rows(ROWS_PAGE, *name, read.after, read.limit)
            rows += [ShadowRow(*one) for one in page]
        return Shadow(step.now, [SourceRow(*found)], rows)
