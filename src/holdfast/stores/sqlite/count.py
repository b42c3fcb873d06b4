"""Count: jobs per state and scope, from the counts table; `recount` rebuilds that table."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, State
from holdfast.core.scope import NO_SETTINGS, TENANT_KINDS, Scope, ScopeKind, scope_of, slot_scope_of
from holdfast.store import Tally
from holdfast.stores.sql_rows import STATES
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.limits_platform import count_running, platform_changed
from holdfast.stores.sqlite.limits_room import key_of, live, taken
from holdfast.stores.sqlite.limits_tiers import check_all
from holdfast.stores.sqlite.scope_cache import read_settings
from holdfast.stores.sqlite.settings import settings_page
from holdfast.stores.sqlite.transaction import Transaction

Part = tuple[str, str]
"""(tenant, the name of a queue or group, or nothing)"""

_PARTS = {ScopeKind.TENANT: "''", ScopeKind.QUEUE: "queue", ScopeKind.GROUP: "group_name"}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes to count."""

    tenant: str | None
    by: ScopeKind
    part: str | None
    after: Part | None
    limit: int


def count_jobs(
    connection: sqlite3.Connection, asked: Asked, now: Micros, correction: int = 0
) -> list[Tally]:
    if asked.tenant == "" or asked.by not in TENANT_KINDS:
        return _platform_tallies(connection, asked, now, correction)
    due = _Due(connection, asked.by, now)
    tallies: list[Tally] = []
    after = asked.after
    while len(tallies) < asked.limit:
        query, values = _page(asked, after)
        rows = connection.execute(query, values).fetchall()
        for tenant, part, *numbers, held in rows:
            scope = Scope(tenant, asked.by, part)
            counts = due.seen((tenant, part), numbers)
            slots = live(connection, scope, held, now)
            if counts or slots:
                oldest = due.oldest(scope, counts)
                tallies.append(Tally(tenant, part, counts, oldest, slots, correction))
        if len(rows) < asked.limit:
            break
        after = (rows[-1][0], rows[-1][1])
    return tallies[: asked.limit]


def _platform_tallies(
    connection: sqlite3.Connection, asked: Asked, now: Micros, correction: int
) -> list[Tally]:
    """The running jobs of those of the platform's scopes that have settings."""
    under = Scope("", asked.by).name
    after = "" if asked.after is None else Scope(asked.after[0], asked.by, asked.after[1]).name
    found = (scope_of(one.name) for one in settings_page(connection, (under, after, asked.limit)))
    scopes = [scope for scope in found if scope is not None]
    if asked.part is not None:
        one = Scope("", asked.by, asked.part)
        has_settings = one.name > after and read_settings(connection, one) != NO_SETTINGS
        scopes = [one] if has_settings else []
    tallies: list[Tally] = []
    for scope in scopes:
        running, _ = taken(connection, scope, False, now)
        counts = {State.PROCESSING: running}
        tallies.append(Tally("", scope.part, counts, None, 0, correction))
    return tallies


def _page(asked: Asked, after: Part | None) -> tuple[str, list[Any]]:
    query, values = sql.COUNTS, list[Any]([asked.by.value])
    for condition, value in ((" AND tenant = ?", asked.tenant), (" AND part = ?", asked.part)):
        if value is not None:
            query += condition
            values.append(value)
    if after is not None:
        query += " AND (tenant, part) > (?, ?)"
        values += after
    return f"{query} ORDER BY tenant, part LIMIT ?", [*values, asked.limit]


class _Due:
    """Jobs that are due and not marked enqueued yet: readers see them as enqueued."""

    def __init__(self, connection: sqlite3.Connection, by: ScopeKind, now: Micros) -> None:
        self._connection = connection
        self._moved: dict[Part, dict[State, int]] = {}
        self._since: dict[Part, Micros] = {}
        for statement in sql.COUNT_DUE:
            rows = connection.execute(statement.format(part=_PARTS[by]), (now,))
            for tenant, part, state, number, run_at in rows:
                states = self._moved.setdefault((tenant, part), {})
                states[STATES[state]] = states.get(STATES[state], 0) + number
                self._since[tenant, part] = min(run_at, self._since.get((tenant, part), run_at))

    def seen(self, part: Part, numbers: list[int]) -> dict[State, int]:
        counts = {STATES[name]: n for name, n in zip(scope_sql.STATE_COLUMNS, numbers, strict=True)}
        for state, number in self._moved.get(part, {}).items():
            counts[state] -= number
            counts[State.ENQUEUED] += number
        return {state: number for state, number in counts.items() if number}

    def oldest(self, scope: Scope, counts: dict[State, int]) -> Micros | None:
        """Since when the job of a queue that waits longest could have run."""
        if scope.kind is not ScopeKind.QUEUE or State.ENQUEUED not in counts:
            return None
        part = (scope.tenant, scope.part)
        instants = [self._since.get(part)]
        found = self._connection.execute(sql.OLDEST, part).fetchone()
        instants.append(None if found is None else found[0])
        return min((at for at in instants if at is not None), default=None)


def recount(transaction: Transaction) -> int:
    """Counts every job and slot again; returns by how many running jobs the counts were wrong."""
    transaction.write_counts()
    execute = transaction.execute
    before = dict(execute(scope_sql.RUNNING).fetchall())
    execute(scope_sql.COUNTS_CLEAR)
    zeros = [0] * len(scope_sql.SUMMED)
    at = {name: index for index, name in enumerate(scope_sql.SUMMED)}
    for statement in scope_sql.RECOUNT:
        for kind, tenant, part, state, number, size, blocked in execute(statement).fetchall():
            if state not in at:  # A damaged row, which is not counted.
                continue
            row = zeros.copy()
            row[at[state]] = number
            if kind == ScopeKind.TENANT.value and STATES[state] not in TERMINAL:
                row[at["bytes"]] = size
            if kind == ScopeKind.QUEUE.value:
                row[at["blocked"]] = blocked
            transaction.turn += 1
            execute(scope_sql.COUNT_ADD, (kind, tenant, part, transaction.turn, *row))
    for (name,) in execute(scope_sql.RECOUNT_SLOTS).fetchall():
        scope = slot_scope_of(name)
        assert scope is not None, "only slots have a scope"
        execute(scope_sql.SLOT_ADD, (*key_of(scope), 1))
    for scope in transaction.scope_cache.platform:
        count_running(transaction, scope)
        platform_changed(transaction, scope)
    if transaction.scope_cache.over_all:
        execute(scope_sql.ASIDE_CLEAR)  # No line is aside any more.
        for statement in scope_sql.ASIDE_RECOUNT:
            execute(statement)
    transaction.tenants_to_check |= transaction.scope_cache.tenants
    transaction.lines_to_check |= transaction.scope_cache.queues
    check_all(transaction)
    after = dict(execute(scope_sql.RUNNING).fetchall())
    return sum(abs(after.get(line, 0) - before.get(line, 0)) for line in before | after)
