"""Why a job does not run now: every gate that holds it, the outermost first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from holdfast import gate
from holdfast.clock import Micros
from holdfast.errors import JobNotFound
from holdfast.job import TERMINAL, State
from holdfast.limits import AHEAD_MAX, HOLDERS_MAX
from holdfast.scope import (
    NO_SETTINGS,
    Explanation,
    Gate,
    GroupGate,
    Scope,
    ScopeKind,
    ScopeSettings,
    group_gate,
)
from holdfast.store import Ref
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite import turn_statements as turn_sql
from holdfast.stores.sqlite.gates import Room, taken
from holdfast.stores.sqlite.rows import Row
from holdfast.stores.sqlite.rules import read

_INSIDE = {
    ScopeKind.TENANT: "tenant = ?1 AND ?2 = ''",
    ScopeKind.QUEUE: "tenant = ?1 AND queue = ?2",
    ScopeKind.GROUP: "tenant = ?1 AND group_name = ?2",
}


def explain(connection: sqlite3.Connection, ref: Ref, now: Micros) -> Explanation:
    found = connection.execute(sql.LOOK, (ref.tenant, ref.id)).fetchone()
    if found is None:
        raise JobNotFound(id=ref.id)
    row = Row(found)
    if row.state in TERMINAL:
        return gate.ended(row.state)
    if row.state is State.PROCESSING and (row.lease_until or 0) > now:
        (worker,) = connection.execute(sql.WORKER, (row.seq,)).fetchone()
        return gate.running(worker, row.attempt, row.lease_until)
    gates = [*gate.own_gates(row, now), *_all_scope_gates(connection, row, now)]
    ahead = None
    if not gates:
        place = (row.queue, row.tenant, row.priority, row.seq, AHEAD_MAX)
        (ahead,) = connection.execute(sql.AHEAD, place).fetchone()
    (tenants,) = connection.execute(turn_sql.TENANTS_OF_QUEUE, (row.queue,)).fetchone()
    return gate.explanation(gates, ahead, tenants)


def _all_scope_gates(connection: sqlite3.Connection, row: Row, now: Micros) -> Iterator[Gate]:
    tenant = Scope(row.tenant)
    queue = Scope(row.tenant, ScopeKind.QUEUE, row.queue)
    of_queue = _settings(connection, queue)
    yield from _scope_gates(connection, tenant, _settings(connection, tenant), now)
    yield from _scope_gates(connection, queue, of_queue, now)
    if row.group is not None:
        group = Scope(row.tenant, ScopeKind.GROUP, row.group)
        rules = group_gate(_settings(connection, group), of_queue)
        if rules.ordered:
            yield from _order_gates(connection, row, group)
        yield from _scope_gates(connection, group, rules, now)


def _settings(connection: sqlite3.Connection, scope: Scope) -> ScopeSettings:
    found = connection.execute(sql.SETTING, (scope.name,)).fetchone()
    if found is None or found[1] is None:
        return NO_SETTINGS
    return read(scope.name, found[1])


def _scope_gates(
    connection: sqlite3.Connection, scope: Scope, rules: ScopeSettings | GroupGate, now: Micros
) -> Iterator[Gate]:
    running, slots = taken(connection, scope, rules.slots_count, now)
    usage = gate.Usage(
        running=running,
        slots=slots,
        holders=lambda: _holders(connection, scope, bool(slots), now),
        token_at=Room(connection, scope, rules, now).token_at(),
    )
    return gate.scope_gates(scope, rules, usage)


def _holders(
    connection: sqlite3.Connection, scope: Scope, slots: bool, now: Micros
) -> tuple[str, ...]:
    """The ids of the jobs and slots that take a scope's places."""
    query = sql.HOLDERS.format(inside=_INSIDE[scope.kind])
    found = connection.execute(query, (scope.tenant, scope.part, HOLDERS_MAX)).fetchall()
    ids = [id for (id,) in found]
    if slots and len(ids) < HOLDERS_MAX:
        values = (scope.slots, now, HOLDERS_MAX - len(ids))
        for (name,) in connection.execute(sql.SLOT_NAMES, values).fetchall():
            ids.append(name.removeprefix(scope.slots))
    return tuple(ids)


def _order_gates(connection: sqlite3.Connection, row: Row, scope: Scope) -> Iterator[Gate]:
    found = connection.execute(sql.HEAD, (scope.tenant, scope.part)).fetchone()
    if found is not None and found[0] != row.seq:
        yield gate.order_gate(scope, found[1])
