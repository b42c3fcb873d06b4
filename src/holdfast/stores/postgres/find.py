"""Find: pages of jobs by selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.job import State
from holdfast.core.journal import Journal, fitting
from holdfast.store import Find, Page, Ref, Selection
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.journal import read_bytes, read_journals
from holdfast.stores.postgres.rows import record
from holdfast.stores.postgres.step import Step


async def find_jobs(step: Step, find: Find) -> Page:
    if find.limit == 0:
        return Page([], find.after)
    await step.begin()
    condition, values = where(find.select, step.now)
    way = "DESC" if find.newest_first else "ASC"
    if find.after is not None:
        values.append(find.after)
        condition += f" AND seq {'<' if find.newest_first else '>'} ${len(values)}"
    values.append(find.limit + 1)
    most = f"${len(values)}"
    tail = f"WHERE {condition} ORDER BY seq {way} LIMIT {most}"
    tables = (f"{sql.LIVE} FROM holdfast.jobs", f"{sql.DONE} FROM holdfast.history")
    # In one snapshot, so that a job that ends just now is seen once.
    parts = " UNION ALL ".join(f"(SELECT {place} {tail})" for place in tables)
    rows = await step.rows(
        f"SELECT * FROM ({parts}) found ORDER BY seq {way} LIMIT {most}", *values
    )
    jobs = [record(row, step.now) for row in rows[: find.limit]]
    journals: dict[int, Journal] = {}
    if find.journals and jobs:
        sizes = await read_bytes(step, [job.seq for job in jobs])
        jobs = jobs[: fitting(sizes.get(job.seq, 0) for job in jobs)]
        journals = await read_journals(step, [job.seq for job in jobs])
    cursor = jobs[-1].seq if len(rows) > len(jobs) else None
    named = {Ref(job.tenant, job.id): journals[job.seq] for job in jobs if job.seq in journals}
    return Page(jobs, cursor, named)


# -- selections ------------------------------------------------------------------------------------


def where(select: Selection, now: int) -> tuple[str, list[Any]]:
    """The selection as a condition and its values."""
    conditions: list[str] = []
    values: list[Any] = []

    def narrow(condition: str, value: Any) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    if select.tenant is not None:
        narrow("tenant = {}", select.tenant)
    for column, names in (
        ("id", select.ids),
        ("queue", select.queues),
        ("type", select.types),
        ("group_name", select.groups),
        ("reason", [reason.value for reason in select.reasons]),
    ):
        if names:
            narrow(f"{column} = ANY ({{}}::text[])", list(names))
    if select.key is not None:
        narrow("key = {}", select.key)
    if select.created_from is not None:
        narrow("created_at >= {}::bigint", select.created_from)
    if select.created_before is not None:
        narrow("created_at < {}::bigint", select.created_before)
    if select.failed_from is not None:
        narrow(f"{_FAILED_AT} >= {{}}::bigint", select.failed_from)
    if select.failed_before is not None:
        narrow(f"{_FAILED_AT} < {{}}::bigint", select.failed_before)
    if select.tags:
        narrow("tags @> {}::text[]", list(select.tags))
    if select.states:
        narrow(_in_states(select.states), now)
    return " AND ".join(conditions) or "true", values


# Of a living job it is NULL, since it has not failed.
_FAILED_AT = "CASE WHEN state = 'failed' THEN updated_at END"


def _in_states(states: Sequence[State]) -> str:
    """`lifecycle.seen` as a condition: a due job counts as enqueued, moved yet or not."""
    # Written out, not bound: only so can an index over one state be used.
    fixed = sorted({state.value for state in states} - {"scheduled", "retrying"})
    ways = [f"state IN ({', '.join(map(repr, fixed))})"] if fixed else []
    for state in (State.SCHEDULED, State.RETRYING):
        if state in states:
            ways.append(f"(state = '{state.value}' AND run_at > {{0}}::bigint)")
    if State.ENQUEUED in states:
        ways.append("(state IN ('scheduled', 'retrying') AND run_at <= {0}::bigint)")
    ways.append("({0}::bigint IS NULL)")  # The instant is bound, also where nothing asks for it.
    return f"({' OR '.join(ways)})"
