"""Why a job does not run now: every gate that holds it, the outermost first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from holdfast.clock import Micros
from holdfast.errors import JobNotFound
from holdfast.job import TERMINAL, State
from holdfast.limits import AHEAD_MAX, HOLDERS_MAX
from holdfast.scope import (
    NO_SETTINGS,
    Explanation,
    Gate,
    GateKind,
    GroupGate,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    group_gate,
)
from holdfast.store import Ref
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.gates import Room, taken
from holdfast.stores.sqlite.rows import Row

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
        return Explanation(gates=(Gate(kind=GateKind.ENDED, words=f"it is {row.state.value}"),))
    if row.state is State.PROCESSING and (row.lease_until or 0) > now:
        (worker,) = connection.execute(sql.WORKER, (row.seq,)).fetchone()
        words = f"worker {worker} runs it, attempt {row.attempt}"
        gate = Gate(kind=GateKind.RUNNING, words=words, until=row.lease_until)
        return Explanation(gates=(gate,))
    gates = [*_own_gates(row, now), *_all_scope_gates(connection, row, now)]
    ahead = None
    if not gates:
        place = (row.queue, row.tenant, row.priority, row.seq, AHEAD_MAX)
        (ahead,) = connection.execute(sql.AHEAD, place).fetchone()
    if ahead:
        gates.append(Gate(kind=GateKind.TURN, words=f"{ahead} ready jobs of its line come first"))
    (tenants,) = connection.execute(sql.LINES_OF_QUEUE, (row.queue,)).fetchone()
    return Explanation(gates=tuple(gates), ahead=ahead, tenants=tenants)


def _own_gates(row: Row, now: Micros) -> Iterator[Gate]:
    if row.expires_at is not None and row.expires_at <= now:
        yield Gate(kind=GateKind.EXPIRED, words="its time to live has passed")
    if row.state is State.PROCESSING:
        words = "the lease of its last attempt has expired: upkeep will fail it"
        yield Gate(kind=GateKind.EXPIRED, words=words)
    elif row.state is State.WAITING:
        yield Gate(kind=GateKind.ORDER, words="it waits for other jobs of its workflow")
    elif row.state in (State.SCHEDULED, State.RETRYING) and row.run_at > now:
        why = "its next attempt is due later" if row.state is State.RETRYING else "it is due later"
        yield Gate(kind=GateKind.SCHEDULE, words=why, until=row.run_at)


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
    return decode(scope.name, found[1])


def _scope_gates(
    connection: sqlite3.Connection, scope: Scope, rules: ScopeSettings | GroupGate, now: Micros
) -> Iterator[Gate]:
    name = f"{scope.kind.value} {scope.part or scope.tenant}"
    if rules.paused is not None:
        words = f"{name} is paused by {rules.paused.author}: {rules.paused.reason}"
        yield Gate(kind=GateKind.PAUSE, words=words, scope=scope)
    running, slots = taken(connection, scope, rules.slots_count, now)
    if rules.max_running is not None and running + slots >= rules.max_running:
        words = f"{name} runs {running} jobs"
        words += f" and {slots} slots are held" if slots else ""
        words += f", its limit is {rules.max_running}"
        holders = _holders(connection, scope, bool(slots), now)
        yield Gate(kind=GateKind.LIMIT, words=words, scope=scope, holders=holders)
    at = Room(connection, scope, rules, now).token_at()
    if at is not None:
        words = f"{name} has started as many as its rate allows"
        yield Gate(kind=GateKind.RATE, words=words, scope=scope, until=at)


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
        first = found[1]
        words = f"group {scope.part} is ordered, job {first} comes first"
        yield Gate(kind=GateKind.ORDER, words=words, scope=scope, holders=(first,))
