"""Count: how many jobs scopes have, by the counts; and counted anew when asked to."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core import bounds
from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.scope import TENANT_KINDS, ScopeKind
from holdfast.store import Tally
from holdfast.stores.postgres import maintenance_statements
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.maintenance import FOLD_MAX
from holdfast.stores.postgres.step import Step
from holdfast.stores.sql_rows import STATES

Part = tuple[str, str]
"""(tenant, the name of a queue or group, or nothing)"""

_PARTS = {ScopeKind.TENANT: "''", ScopeKind.QUEUE: "queue", ScopeKind.GROUP: "group_name"}
_SUMS = ", ".join(f"sum({name})::bigint" for name in sql.STATE_COLUMNS)
_COLUMNS = ", ".join(sql.STATE_COLUMNS)
_ZEROS = ", ".join("0" for _ in sql.STATE_COLUMNS)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes to count."""

    tenant: str | None
    by: ScopeKind
    part: str | None
    after: Part | None
    limit: int


async def count_scopes(step: Step, asked: Asked, correction: int) -> list[Tally]:
    await step.begin()
    if asked.tenant == "" or asked.by not in TENANT_KINDS:
        return await _count_platform(step, asked, correction)
    due = _Due(asked.by)
    await due.read(step)
    query, values = _query(asked, step.now)
    tallies: list[Tally] = []
    for tenant, part, *numbers, slots in await step.rows(query, *values):
        counts = due.seen((tenant, part), numbers)
        oldest = None
        if asked.by is ScopeKind.QUEUE and State.ENQUEUED in counts:
            oldest = due.oldest((tenant, part), await step.value(sql.OLDEST, tenant, part))
        tallies.append(Tally(tenant, part, counts, oldest, slots, correction))
    return tallies


async def _count_platform(step: Step, asked: Asked, correction: int) -> list[Tally]:
    """The running jobs of the platform's scopes that have settings."""
    after = None if asked.after is None else asked.after[1]
    found = await step.rows(sql.PLATFORM_COUNTS, asked.by.value, asked.part, after, asked.limit)
    return [
        Tally("", part, {State.PROCESSING: number}, None, 0, correction) for part, number in found
    ]


def _query(asked: Asked, now: Micros) -> tuple[str, list[Any]]:
    """The counts, what has changed since, and the slots, of one snapshot."""
    values: list[Any] = [asked.by.value, now]
    narrow = ""
    for column, value in (("tenant", asked.tenant), ("part", asked.part)):
        if value is not None:
            values.append(value)
            narrow += f" AND {column} = ${len(values)}"
    if asked.after is not None:
        values += asked.after
        narrow += f" AND (tenant, part) > (${len(values) - 1}, ${len(values)})"
    values.append(asked.limit)
    query = (
        f"SELECT tenant, part, {_SUMS}, sum(slots)::bigint FROM ("
        f"SELECT tenant, part, {_COLUMNS}, 0 AS slots FROM holdfast.counts"
        f" WHERE kind = $1{narrow}"
        f" UNION ALL SELECT * FROM (SELECT tenant, {_PARTS[asked.by]} AS part, {_COLUMNS}, 0"
        " FROM holdfast.deltas WHERE id >= (SELECT deltas_floor FROM holdfast.store_state)"
        f" AND queue IS NOT NULL) d WHERE part IS NOT NULL{narrow}"
        f" UNION ALL SELECT tenant, part, {_ZEROS}, 1 FROM holdfast.holds"
        f" WHERE kind = $1 AND until > $2{narrow}"
        ") scopes GROUP BY tenant, part"
        f" HAVING {' OR '.join(f'sum({name}) <> 0' for name in (*sql.STATE_COLUMNS, 'slots'))}"
        f' ORDER BY tenant COLLATE "C", part COLLATE "C" LIMIT ${len(values)}'
    )
    return query, values


class _Due:
    """Jobs that are due and not ready yet: readers see them as enqueued."""

    def __init__(self, by: ScopeKind) -> None:
        self._by = by
        self._moved: dict[Part, dict[State, int]] = {}
        self._since: dict[Part, Micros] = {}

    async def read(self, step: Step) -> None:
        query = sql.COUNT_DUE.replace("{part}", _PARTS[self._by])
        for tenant, part, state, number, run_at in await step.rows(query, step.now):
            states = self._moved.setdefault((tenant, part), {})
            states[STATES[state]] = states.get(STATES[state], 0) + number
            self._since[tenant, part] = min(run_at, self._since.get((tenant, part), run_at))

    def seen(self, part: Part, numbers: list[int]) -> dict[State, int]:
        counts = {STATES[name]: n for name, n in zip(sql.STATE_COLUMNS, numbers, strict=True)}
        for state, number in self._moved.get(part, {}).items():
            counts[state] -= number
            counts[State.ENQUEUED] += number
        return {state: number for state, number in counts.items() if number}

    def oldest(self, part: Part, ready: Micros | None) -> Micros | None:
        """Since when the longest-waiting job of a queue could have run."""
        instants = [self._since.get(part), ready]
        return min((at for at in instants if at is not None), default=None)


async def recount(step: Step) -> int:
    """Counts every job anew; returns by how many held jobs the counts were off."""
    await step.run(sql.LOCK_CLAIMS)
    await step.announce()
    await step.run(sql.FOLD, FOLD_MAX)
    correction = int(await step.value(maintenance_statements.RECOUNT))
    await step.run(maintenance_statements.RECOUNT_PLATFORM)
    await step.run(maintenance_statements.RECOUNT_LINES)
    await step.run(maintenance_statements.FIND_FULL_TENANTS, bounds.QUEUES_MAX, bounds.GROUPS_MAX)
    return correction
