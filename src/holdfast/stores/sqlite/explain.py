"""Explain: every gate that keeps a job from running now, the outermost first. Only reads.

A claim first makes due jobs and lapsed leases ready. Explain does not write, so it counts by time
what a claim would make ready.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator

from holdfast.core import blockers
from holdfast.core.bounds import AHEAD_MAX, HOLDERS_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL, State
from holdfast.core.scope import (
    Blocker,
    Explanation,
    GroupSettings,
    Scope,
    ScopeKind,
    ScopeSettings,
    platform_scopes,
)
from holdfast.store import Ref
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.limits_room import Room, taken
from holdfast.stores.sqlite.rows import Row
from holdfast.stores.sqlite.scope_cache import NEVER, RatesChange, read_cache, read_settings


def explain_job(connection: sqlite3.Connection, ref: Ref, now: Micros) -> Explanation:
    found = connection.execute(sql.ROW_BY_ID, (ref.tenant, ref.id)).fetchone()
    if found is None:
        raise JobNotFound(id=ref.id)
    row = Row(found)
    if row.state in TERMINAL:
        return blockers.ended(row.state)
    if row.state is State.PROCESSING and (row.lease_until or 0) > now:
        (worker,) = connection.execute(sql.WORKER, (row.seq,)).fetchone()
        return blockers.running(worker, row.attempt, row.lease_until)
    if row.state is State.PROCESSING and row.attempt < row.max_attempts:
        row.state = State.ENQUEUED  # Its lease has lapsed.
    gates = [*blockers.own_blockers(row, now), *_all_scope_gates(connection, row, now)]
    ahead = None
    if not gates:
        values = (row.queue, row.tenant, row.priority, row.seq, AHEAD_MAX, now)
        (ahead,) = connection.execute(sql.AHEAD, values).fetchone()
    (tenants,) = connection.execute(sql.TENANTS_OF_QUEUE, (row.queue, now)).fetchone()
    return blockers.explanation(gates, ahead, tenants)


def _all_scope_gates(connection: sqlite3.Connection, row: Row, now: Micros) -> Iterator[Blocker]:
    tenant, queue = Scope(row.tenant), Scope(row.tenant, ScopeKind.QUEUE, row.queue)
    group = None if row.group is None else Scope(row.tenant, ScopeKind.GROUP, row.group)
    cache = read_cache(connection, row.tenant, [queue] if group is None else [queue, group])
    for scope in platform_scopes(row.queue, row.type):
        yield from _scope_gates(connection, scope, read_settings(connection, scope), now)
    rates = cache.rates_change(row.tenant)
    for scope in (tenant, queue):
        yield from _scope_gates(connection, scope, cache.of(scope), now, rates)
    if group is not None:
        rules = cache.group(row.tenant, group.part, row.queue)
        if rules.ordered:
            yield from _order_gates(connection, row, group)
        yield from _scope_gates(connection, group, rules, now, rates)


def _scope_gates(
    connection: sqlite3.Connection,
    scope: Scope,
    rules: ScopeSettings | GroupSettings,
    now: Micros,
    rates: RatesChange = NEVER,
) -> Iterator[Blocker]:
    running, slots = taken(connection, scope, rules.slots_count, now)
    if rules.max_running is not None:
        running -= _lapsed(connection, scope, now)
    usage = blockers.Usage(
        running=running,
        slots=slots,
        holders=lambda: _holders(connection, scope, bool(slots), now),
        token_at=Room(connection, scope, rules, now, rates).token_at(),
    )
    return blockers.scope_blockers(scope, rules, usage)


def _lapsed(connection: sqlite3.Connection, scope: Scope, now: Micros) -> int:
    """How many jobs of a scope have a lapsed lease and attempts left: they take no place."""
    query = sql.COUNT_LAPSED.format(inside=sql.INSIDE[scope.kind.value, scope.of_platform])
    (number,) = connection.execute(query, (scope.tenant, scope.part, now)).fetchone()
    return int(number)


def _holders(
    connection: sqlite3.Connection, scope: Scope, slots: bool, now: Micros
) -> tuple[str, ...]:
    """The ids of the jobs and slots that count against the limit of a scope; over all tenants, how
    many jobs each has.
    """
    inside = sql.INSIDE[scope.kind.value, scope.of_platform]
    if scope.of_platform:
        query = sql.HOLDING_TENANTS.format(inside=inside)
        held = connection.execute(query, (scope.tenant, scope.part, now)).fetchall()
        return tuple(blockers.by_tenant(Counter(dict(held))))
    query = sql.HOLDERS.format(inside=inside)
    found = connection.execute(query, (scope.tenant, scope.part, now, HOLDERS_MAX)).fetchall()
    ids = [id for (id,) in found]
    if slots and len(ids) < HOLDERS_MAX:
        values = (scope.slots, now, HOLDERS_MAX - len(ids))
        for (name,) in connection.execute(scope_sql.SLOT_NAMES, values).fetchall():
            ids.append(name.removeprefix(scope.slots))
    return tuple(ids)


def _order_gates(connection: sqlite3.Connection, row: Row, scope: Scope) -> Iterator[Blocker]:
    found = connection.execute(scope_sql.HEAD, (scope.tenant, scope.part)).fetchone()
    if found is not None and found[0] != row.seq:
        yield blockers.order_blocker(scope, found[1])
