"""What operators and tenants see: pages of jobs. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.job import State
from holdfast.limits import BATCH_MAX, SELECT_MAX, within
from holdfast.store import Find, Page, Selection
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.rows import record
from holdfast.stores.postgres.step import Step


async def find(step: Step, find: Find) -> Page:
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
    places = [f"{sql.LIVE} FROM holdfast.jobs", f"{sql.DONE} FROM holdfast.history"]
    kept = [place for state, place in _KEPT if may_be(find.select, state)]
    if kept:
        named = ", ".join(
            f"${n}::{kind}" for n, kind in enumerate(sql.REACHED, start=len(values) + 1)
        )
        places += [f"{sql.LIVE} FROM {place}({named})" for place in kept]
        values += reached(find.select, find.after, find.newest_first, find.limit + 1)
    # Jobs of one snapshot, so that one that is taken or ends just now is seen once.
    parts = " UNION ALL ".join(f"(SELECT {place} {tail})" for place in places)
    rows = await step.rows(
        f"SELECT * FROM ({parts}) found ORDER BY seq {way} LIMIT {most}", *values
    )
    jobs = [record(row, step.now) for row in rows[: find.limit]]
    return Page(jobs, jobs[-1].seq if len(rows) > find.limit else None)


# -- selections ------------------------------------------------------------------------------------


def bounded(select: Selection) -> None:
    """Refuses a selection that names more of one thing than its limit."""
    within("ids", len(select.ids), BATCH_MAX)
    for field in ("queues", "types", "states", "groups", "tags", "reasons"):
        within(field, len(getattr(select, field)), SELECT_MAX)


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


_KEPT = ((State.ENQUEUED, "holdfast.packed"), (State.PROCESSING, "holdfast.held"))
"""The states of jobs in packs and in pieces, and what reads them."""


# A living job has no such column, nor has it failed.
_FAILED_AT = "CASE WHEN state = 'failed' THEN updated_at END"


def may_be(select: Selection, state: State) -> bool:
    """Whether a selection may mean jobs of this state that have nothing special, as those in packs
    and in pieces.
    """
    if select.groups or select.tags or select.reasons or select.key is not None:
        return False
    if select.failed_from is not None or select.failed_before is not None:
        return False
    return not select.states or state in select.states


def reached(select: Selection, after: int | None, newest_first: bool, most: int) -> tuple[Any, ...]:
    """A selection as the values of `statements.REACHED`."""
    return (
        select.tenant,
        list(select.ids) or None,
        list(select.queues) or None,
        list(select.types) or None,
        select.created_from,
        select.created_before,
        after,
        newest_first,
        most,
    )


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
