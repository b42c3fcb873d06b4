"""Change: replay, delete, reprioritise and reschedule jobs by selection."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.job import EventKind, State, replay_id
from holdfast.core.journal import Entry, Size, before_step, written
from holdfast.core.lifecycle import due_state
from holdfast.store import Act, Change, Changed, Ref
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.find import where
from holdfast.stores.postgres.journal import Journals, read_entries, size_text
from holdfast.stores.postgres.rows import Row
from holdfast.stores.postgres.step import Step
from holdfast.stores.sql_rows import BLOCKED

COPY_MAX = 20
"""Jobs that one step replays from a step of theirs: each journal can have a megabyte."""


async def change_jobs(step: Step, change: Change) -> Changed:
    await step.begin()
    if change.from_step is not None:
        change = msgspec.structs.replace(change, limit=min(change.limit, COPY_MAX))
    rows, reached = await _selected(step, change)
    done: dict[Ref, str] = {}
    if change.act is Act.REPLAY:
        await _Replays(step, change.from_step).all(rows, done)
    elif change.act is Act.DELETE:
        await _delete(step, rows, done)
    else:
        _set(step, change, rows, done)
        await step.write(rows)
        for row in rows:
            step.record(EventKind.CHANGED, row, row.run_at, change.act.value)
    step.lines |= {(row.tenant, row.queue) for row in rows}
    await step.flush()
    return Changed(done, reached)


async def _selected(step: Step, change: Change) -> tuple[list[Row], int | None]:
    """The jobs of this step that the act is possible for, locked; and where the next goes on."""
    found: list[Row] = []
    condition, values = where(change.select, step.now)
    values += [change.after, change.limit + 1]
    after, limit = f"seq > ${len(values) - 1}", f"${len(values)}"
    if change.act is not Act.REPLAY:
        found += await _found(
            step, f"SELECT {sql.ROW_LIVE} FROM holdfast.jobs", f"{condition} AND {after}"
            " AND state <> 'processing'", limit, values
        )  # fmt: skip
    if change.act in (Act.REPLAY, Act.DELETE):
        fresh = " AND replayed_as IS NULL" if change.act is Act.REPLAY else ""
        found += await _found(
            step, f"SELECT {sql.ROW_DONE} FROM holdfast.history",
            f"{condition} AND {after}{fresh}", limit, values
        )  # fmt: skip
    found.sort(key=lambda row: row.seq)
    rows = found[: change.limit]
    reached = rows[-1].seq if rows else change.after
    return rows, reached if len(found) > change.limit else None


async def _found(
    step: Step, select: str, condition: str, limit: str, values: list[Any]
) -> list[Row]:
    query = f"{select} WHERE {condition} ORDER BY seq LIMIT {limit} FOR UPDATE"
    return [Row(one) for one in await step.rows(query, *values)]


def _set(step: Step, change: Change, rows: list[Row], done: dict[Ref, str]) -> None:
    now = step.now
    for row in rows:
        if change.act is Act.REPRIORITISE:
            row.priority = change.priority
        else:
            row.run_at = change.run_at if change.run_at is not None else now + change.delay_us
            if row.state is not State.WAITING:
                row.state = due_state(row.run_at, now)
        done[Ref(row.tenant, row.id)] = row.id


async def _delete(step: Step, rows: list[Row], done: dict[Ref, str]) -> None:
    for row in rows:
        step.move(row, None)
        step.record(EventKind.DELETED, row)
        done[Ref(row.tenant, row.id)] = row.id
    living = [row.seq for row in rows if row.lived]
    await step.run(sql.REMOVE, living)
    await step.run(sql.FORGET, [row.seq for row in rows if not row.lived])
    step.parents += [row.as_parent for row in rows if row.lived and row.edges is not None]
    await step.forget(rows)
    await step.release_keys(rows)
    step.ended += [Ref(row.tenant, row.id) for row in rows if row.lived]


class _Replays:
    """New jobs for ended ones, within the caps of their tenants."""

    def __init__(self, step: Step, from_step: str | None) -> None:
        self._step, self._from = step, from_step
        self._journals = Journals(step)
        self._left: dict[str, tuple[int | None, int | None]] = {}
        """Of tenants with a cap: how many jobs and bytes there is room for."""

    async def all(self, rows: list[Row], done: dict[Ref, str]) -> None:
        await self._caps(sorted({row.tenant for row in rows}))
        await self._step.learn({row.tenant for row in rows if row.group is not None})
        for row in rows:
            id = replay_id(row.tenant, row.id)
            if await self._one(row, id):
                done[Ref(row.tenant, row.id)] = id
        await self._journals.flush()

    async def _caps(self, tenants: list[str]) -> None:
        step = self._step
        for tenant, *_ in await step.rows(sql.CAPPED, tenants):
            await step.run(sql.CAP_LOCK, tenant)
        for tenant, most_jobs, most_bytes in await step.rows(sql.CAPPED, tenants):
            tally = await step.row(sql.TALLY, "tenant", tenant, "")
            assert tally is not None, "sums have a row"
            _, jobs, size = tally
            self._left[tenant] = (
                None if most_jobs is None else most_jobs - jobs,
                None if most_bytes is None else most_bytes - size,
            )

    async def _one(self, row: Row, id: str) -> bool:
        """False when its tenant is full."""
        step, now = self._step, self._step.now
        known = await self._known(row)
        if known is None:
            return False
        # Its edges are not replayed, nor all of its journal.
        plain = row.edges is None and row.journal is None
        own = row.size if plain else await step.value(sql.PAYLOAD_SIZE, row.seq)
        jobs, size = self._left.get(row.tenant, (None, None))
        full = (jobs is not None and jobs < 1) or (size is not None and size < own)
        if full and not await step.value(sql.KNOWN, row.tenant, id):
            return False
        gated = step.gated(row.tenant, row.group)
        given = written(Size(), {}, known)[1]
        journal = size_text(given) if known else None
        own += given.bytes
        # The payload is copied inside the database and never travels.
        seq = await step.value(sql.REPLAY, row.seq, id, now, int(gated), journal, given.bytes)
        if seq is not None:
            self._journals.put(seq, known)
            at = (row.tenant, row.queue, row.group, None)
            step.count(at, None, BLOCKED if gated else "enqueued", size=own)
            step.enters_line(at, row.priority, seq)
            step.add_event(EventKind.ENQUEUED, (row.tenant, id, row.queue, row.type))
            if row.tenant in self._left:
                self._left[row.tenant] = (
                    None if jobs is None else jobs - 1,
                    None if size is None else size - own,
                )
        await step.run(sql.REPLAYED, row.seq, id)
        step.record(EventKind.REPLAYED, row, text=id)
        return True

    async def _known(self, row: Row) -> list[Entry] | None:
        """What its replay starts with; None if it has no such step."""
        if self._from is None:
            return []
        if row.journal is None:
            return None
        return before_step(await read_entries(self._step, row.seq), self._from)
