"""What operators and tenants see: pages of jobs. Reads only, never in the writer's way."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from holdfast.clock import Micros
from holdfast.job import State
from holdfast.limits import BATCH_MAX, SELECT_MAX, within
from holdfast.store import Find, Page, Ref, Selection
from holdfast.stores.sqlite import packs
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.rows import record
from holdfast.stores.sqlite.transaction import Transaction

# Which packs have jobs of these states.
_PLACES = {State.ENQUEUED: "taken < number", State.PROCESSING: "left > number - taken"}


def find(connection: sqlite3.Connection, find: Find, now: Micros) -> Page:
    if find.limit == 0:
        return Page([], find.after)
    condition, values = where(find.select, now)
    way = "DESC" if find.newest_first else "ASC"
    # Few ids are looked up one by one, then sorted; else the planner walks the tenant in order.
    order = "+seq" if find.select.ids else "seq"
    if find.after is not None:
        condition += f" AND seq {'<' if find.newest_first else '>'} ?"
        values.append(find.after)
    rows = connection.execute(
        f"SELECT {sql.RECORD} FROM jobs WHERE {condition} ORDER BY {order} {way} LIMIT ?",
        (*values, find.limit + 1),
    ).fetchall()
    jobs = [record(row, now) for row in rows[: find.limit]]
    return Page(jobs, jobs[-1].seq if len(rows) > find.limit else None)


def open_page(transaction: Transaction, find: Find) -> None:
    """Opens the packs that the page may reach into."""
    _open(transaction, find.select, "DESC" if find.newest_first else "ASC", find.after, find.limit)


def open_step(transaction: Transaction, select: Selection, after: int, limit: int) -> None:
    """Opens the packs that a step of a change may reach into."""
    _open(transaction, select, "ASC", after, limit)


def packed(connection: sqlite3.Connection, find: Find) -> bool:
    """True when some of the jobs that are asked for may be in packs."""
    select = find.select
    if select.ids:
        refs = _refs(connection, select)
        return any(packs.find(connection, ref) is not None for ref in refs)
    condition = _in_packs(select)
    return condition is not None and packs.any_of(connection, *condition)


def _open(
    transaction: Transaction, select: Selection, way: str, after: int | None, limit: int
) -> None:
    if select.ids:
        packs.open_named(transaction, _refs(transaction.connection, select))
        return
    condition = _in_packs(select)
    if condition is None:
        return
    text, values = condition
    if after is not None:
        text += " AND seq < ?" if way == "DESC" else " AND seq + number - 1 > ?"
        values.append(after)
    packs.open_these(transaction, text, values, way, limit + 1)


def _refs(connection: sqlite3.Connection, select: Selection) -> list[Ref]:
    """The full names that the ids of a selection may stand for."""
    tenants = [select.tenant] if select.tenant is not None else packs.tenants(connection)
    return [Ref(tenant, id) for tenant in tenants for id in select.ids]


def _in_packs(select: Selection) -> tuple[str, list[Any]] | None:
    """Which packs may have jobs of a selection, in line or in pieces; None: none can."""
    states = set(select.states or State) & _PLACES.keys()
    if not states or any((select.groups, select.tags, select.reasons, select.key)):
        return None
    ways = " OR ".join(_PLACES[state] for state in sorted(states))
    conditions, values = [f"({ways})"], list[Any]()
    tenants = () if select.tenant is None else (select.tenant,)
    for column, names in (
        ("tenant", tenants),
        ("queue", select.queues),
        ("type", select.types),
    ):
        if names:
            conditions.append(f"{column} IN ({_marks(names)})")
            values += names
    return " AND ".join(conditions), values


# -- selections ------------------------------------------------------------------------------------


def bounded(select: Selection) -> None:
    """Refuses a selection that names more of one thing than its limit."""
    within("ids", len(select.ids), BATCH_MAX)
    for field in ("queues", "types", "states", "groups", "tags", "reasons"):
        within(field, len(getattr(select, field)), SELECT_MAX)


def where(select: Selection, now: Micros) -> tuple[str, list[Any]]:
    """The selection as a condition and its values."""
    conditions: list[str] = []
    values: list[Any] = []

    def narrow(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if select.tenant is not None:
        narrow("tenant = ?", select.tenant)
    for column, names in (
        ("id", select.ids),
        ("queue", select.queues),
        ("type", select.types),
        ("group_name", select.groups),
        ("reason", [reason.value for reason in select.reasons]),
    ):
        if names:
            narrow(f"{column} IN ({_marks(names)})", *names)
    if select.key is not None:
        narrow("key = ?", select.key)
    if select.created_from is not None:
        narrow("created_at >= ?", select.created_from)
    if select.created_before is not None:
        narrow("created_at < ?", select.created_before)
    for tag in select.tags:
        narrow("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)", tag)
    if select.states:
        narrow(*_in_states(select.states, now))
    return " AND ".join(conditions) or "1", values


def _in_states(states: Sequence[State], now: Micros) -> tuple[Any, ...]:
    """`lifecycle.seen` as a condition: a due job counts as enqueued, moved yet or not."""
    ways: list[str] = []
    values: list[Micros] = []
    # Written out, not bound: only so can an index over one state be used.
    fixed = sorted({state.value for state in states} - {"scheduled", "retrying"})
    if len(fixed) == 1:
        ways.append(f"state = '{fixed[0]}'")
    elif fixed:
        ways.append(f"state IN ({', '.join(map(repr, fixed))})")
    for state in (State.SCHEDULED, State.RETRYING):
        if state in states:
            ways.append(f"(state = '{state.value}' AND run_at > ?)")
            values.append(now)
    if State.ENQUEUED in states:
        ways.append("(state IN ('scheduled', 'retrying') AND run_at <= ?)")
        values.append(now)
    condition = ways[0] if len(ways) == 1 else f"({' OR '.join(ways)})"
    return condition, *values


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
