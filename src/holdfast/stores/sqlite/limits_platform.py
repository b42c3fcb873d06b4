"""Limits of the platform: what waits where the store, a queue or a type has no room left.

A claim that meets a line whose queue has no room over all tenants, or a job whose type has none,
sets it aside: it leaves the indexes that claims walk, so that nothing behind it waits and no later
claim meets it again. The table `aside` lists the tenants that wait at each scope in the order of a
copy of their turns, which is corrected like that of a ring (`fairness.py`). Claims let in as much
as there is room for. So a claim costs the same however much waits.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.scope import PLATFORM, Scope, ScopeKind
from holdfast.stores.notifier import Line
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.fairness import RING_FIXES_MAX, RING_SLACK, Names, any_open
from holdfast.stores.sqlite.limits_groups import grant
from holdfast.stores.sqlite.limits_room import Room, key_of, reopen_later
from holdfast.stores.sqlite.scope_cache import read_settings
from holdfast.stores.sqlite.transaction import Group, Transaction

Waiting = tuple[int, str]
"""(turn, tenant)"""

Rank = tuple[int, int]
"""(minus the priority, sequence) of a job"""

_encode = msgspec.json.Encoder().encode


# -- room ------------------------------------------------------------------------------------------


def refresh_platform(transaction: Transaction) -> None:
    """Wakes sleepers where scopes of the platform have room again, and stores when time makes it.

    While the whole store has no room nobody is woken.
    """
    cache, to_check = transaction.scope_cache, transaction.platform_to_check
    while to_check:
        scope, more = to_check.popitem()
        settings = cache.of(scope)
        room = Room(transaction.connection, scope, settings, transaction.now)
        if room.left() == 0:
            reopen_later(transaction, room)
        elif settings.max_running is not None:
            transaction.wake_all |= room.running - more >= settings.max_running
    if PLATFORM in cache.platform and (transaction.wake_all or transaction.ready_lines):
        room = Room(transaction.connection, PLATFORM, cache.of(PLATFORM), transaction.now)
        if room.left() == 0 and room.token_at() is None:
            transaction.wake_all = False
            transaction.ready_lines.clear()


def platform_changed(transaction: Transaction, scope: Scope) -> None:
    """Has a scope of the platform checked whose room was changed by time or by its settings."""
    transaction.platform_to_check.setdefault(scope, 0)
    transaction.wake_all = True


def count_running(transaction: Transaction, scope: Scope) -> None:
    """Counts the running jobs of a scope of the platform anew; without settings it has no count."""
    transaction.execute(scope_sql.RUNNING_DROP, key_of(scope))
    if scope in transaction.scope_cache.platform:
        query = sql.RUNNING_INSIDE.format(inside=sql.INSIDE[scope.kind.value, True])
        (running,) = transaction.execute(query, (scope.tenant, scope.part)).fetchone()
        transaction.execute(scope_sql.RUNNING_PUT, (*key_of(scope), running))


def claimable(connection: sqlite3.Connection, tenants: Names, queues: Names, now: Micros) -> bool:
    """Whether a claim may find a job in one of these lines."""
    found = any_open(connection, tenants, queues) or any_to_let_in(connection, tenants, queues, now)
    return found and _has_room(connection, PLATFORM, now)


def any_to_let_in(
    connection: sqlite3.Connection, tenants: Names, queues: Names, now: Micros
) -> bool:
    """Whether something of these lines waits where there is room by now."""
    return any(
        _has_room(connection, scope, now) and _any_waiting(connection, scope, tenants, queues)
        for scope in waiting_scopes(connection, queues)
    )


def _has_room(connection: sqlite3.Connection, scope: Scope, now: Micros) -> bool:
    return Room(connection, scope, read_settings(connection, scope), now).left() > 0


# -- aside -----------------------------------------------------------------------------------------


def set_line_aside(transaction: Transaction, line: Line) -> None:
    """The queue of the line has no room over all tenants."""
    tenant, queue = line
    transaction.execute(scope_sql.ASIDE_PUT, (ScopeKind.QUEUE.value, queue, tenant, "", 0))
    _mark_line(transaction, line, aside=1)


def set_jobs_aside(transaction: Transaction, line: Line, jobs: list[tuple[int, str]]) -> None:
    """The types of these jobs of the line have no room. A job is a sequence and a type."""
    if not jobs:
        return
    tenant, queue = line
    for type in {type for _, type in jobs}:
        for part in ("", queue):
            values = (ScopeKind.TYPE.value, type, tenant, part, transaction.turn)
            transaction.execute(scope_sql.ASIDE_PUT, values)
    transaction.execute(scope_sql.JOBS_ASIDE, (listed([seq for seq, _ in jobs]),))
    transaction.count_move((tenant, queue, None), "enqueued", BLOCKED, len(jobs))


def first_aside(transaction: Transaction, line: Line) -> dict[str, Rank]:
    """The rank of the first job of a line that is aside, by type."""
    tenant, queue = line
    first: dict[str, Rank] = {}
    type = ""
    while True:
        found = transaction.execute(scope_sql.TYPE_ASIDE, (queue, tenant, type)).fetchone()
        if found is None:
            return first
        (type,) = found
        rank = transaction.execute(scope_sql.FIRST_ASIDE, (queue, tenant, type)).fetchone()
        first[type] = (-rank[0], rank[1])


def _mark_line(transaction: Transaction, line: Line, *, aside: int) -> None:
    transaction.turn += 1
    transaction.execute(scope_sql.LINE_ASIDE, (aside, transaction.turn, *line))


# -- what waits ------------------------------------------------------------------------------------


def waiting_scopes(connection: sqlite3.Connection, queues: Names) -> Iterator[Scope]:
    """The types, and the queues, of these if any are named, at whose limits something waits."""
    for kind in (ScopeKind.QUEUE, ScopeKind.TYPE):
        part = ""
        while True:
            found = connection.execute(scope_sql.NEXT_WAITING, (kind.value, part)).fetchone()
            if found is None:
                break
            (part,) = found
            if kind is ScopeKind.TYPE or queues is None or part in queues:
                yield Scope("", kind, part)


def _any_waiting(
    connection: sqlite3.Connection, scope: Scope, tenants: Names, queues: Names
) -> bool:
    if tenants is not None:
        return bool(_of_tenants(connection, scope, tenants, queues))
    values = (scope.kind.value, scope.part, _encode(_rows_of(scope, queues)).decode())
    return connection.execute(scope_sql.ANY_WAITING, values).fetchone() is not None


def _rows_of(scope: Scope, queues: Names) -> tuple[str, ...]:
    """Under which queues the rows of a scope say which tenants wait."""
    return ("",) if queues is None or scope.kind is ScopeKind.QUEUE else queues


def _of_tenants(
    connection: sqlite3.Connection, scope: Scope, tenants: tuple[str, ...], queues: Names
) -> list[Waiting]:
    names = (_encode(tenants).decode(), _encode(_rows_of(scope, queues)).decode())
    values = (scope.kind.value, scope.part, *names)
    return connection.execute(scope_sql.WAITING_OF_TENANTS, values).fetchall()


def _first_waiting(
    transaction: Transaction, scope: Scope, most: int, tenants: Names, queues: Names
) -> list[Waiting]:
    """The first of these tenants that wait at the limit of a scope, in the order of their turns."""
    if tenants is not None:
        found = set(_of_tenants(transaction.connection, scope, tenants, queues))
    else:
        found = set()
        for queue in set(_rows_of(scope, queues)):
            found |= _first_in_order(transaction, scope, queue, most)
    return heapq.nsmallest(most, found)


def _first_in_order(transaction: Transaction, scope: Scope, queue: str, most: int) -> set[Waiting]:
    """The tenants that come first, and some more. A copy of a turn is at most the turn itself, so
    those with a turn up to the last copy that was read come before all that were not read.
    """
    asked, fixed = most + RING_SLACK, 0
    values = (scope.kind.value, scope.part, queue, asked)
    while True:
        rows = transaction.execute(scope_sql.WAITING, values).fetchall()
        wrong = [
            (turn, scope.kind.value, scope.part, tenant, queue)
            for copy, tenant, turn in rows
            if copy != turn
        ]
        first = sum(turn <= rows[-1][0] for *_, turn in rows)
        if len(rows) < asked or first >= most or not wrong or fixed >= RING_FIXES_MAX:
            return {(turn, tenant) for _, tenant, turn in rows}
        transaction.connection.executemany(scope_sql.ASIDE_TURN, wrong)
        fixed += len(wrong)


# -- let in ----------------------------------------------------------------------------------------


class LetIn:
    """What a claim lets in where there is room by now."""

    def __init__(self, transaction: Transaction, tenants: Names, queues: Names) -> None:
        self._transaction = transaction
        self._names = tenants, queues
        self._groups: set[Group] = set()
        self._turns: dict[str, int] = {}
        """The turns of tenants whose jobs come in."""
        self.tenants: set[str] = set()
        self.number = 0

    def lines(self, scope: Scope, most: int) -> None:
        """Lets in the first lines that are aside at the limit of their queue."""
        transaction, queue = self._transaction, scope.part
        for turn, tenant in _first_waiting(transaction, scope, most, *self._names):
            transaction.execute(scope_sql.ASIDE_DROP, (scope.kind.value, queue, tenant, ""))
            _mark_line(transaction, (tenant, queue), aside=0)
            _keep_turn(transaction, tenant, turn)
            self.tenants.add(tenant)
            self.number += 1

    def jobs(self, scope: Scope, most: int) -> None:
        """Lets in the first jobs that are aside at the limit of their type: of as many tenants as
        there is room for, an even share of the room each, from their lines in turn.
        """
        found = _first_waiting(self._transaction, scope, most, *self._names)
        for turn, tenant in found:
            share = max(1, most // len(found))
            lines = self._lines_of(scope, tenant, share)
            for queue in lines:
                self.number += self._jobs_of((tenant, queue), scope, share // len(lines))
            drop = (scope.kind.value, scope.part, tenant)
            self._transaction.execute(scope_sql.ASIDE_TENANT_DROP, drop)
            self._turns[tenant] = turn
            self.tenants.add(tenant)

    def _lines_of(self, scope: Scope, tenant: str, most: int) -> list[str]:
        key, (_, queues) = (scope.kind.value, scope.part, tenant), self._names
        execute = self._transaction.execute
        if queues is None:
            found = execute(scope_sql.WAITING_LINES, (*key, most))
        else:
            values = (*key, _encode(queues).decode(), most)
            found = execute(scope_sql.WAITING_LINES_OF, values)
        return [queue for (queue,) in found.fetchall()]

    def _jobs_of(self, line: Line, scope: Scope, most: int) -> int:
        """Lets in the first jobs of a line; returns how many, at least 1."""
        transaction, (tenant, queue) = self._transaction, line
        values = (queue, tenant, scope.part, most + 1)
        rows = transaction.execute(scope_sql.NEXT_ASIDE, values).fetchall()
        key = (scope.kind.value, scope.part, tenant, queue)
        if len(rows) <= most:
            transaction.execute(scope_sql.ASIDE_DROP, key)
        else:
            transaction.turn += 1
            transaction.execute(scope_sql.ASIDE_SEEN, (transaction.turn, *key))
        gated: list[int] = []
        ready: list[int] = []
        for seq, group in rows[:most]:
            if transaction.scope_cache.gated(tenant, group, queue):
                gated.append(seq)
                self._groups.add((tenant, group))
            else:
                ready.append(seq)
        transaction.execute(scope_sql.GATE, (listed(gated),))
        transaction.execute(scope_sql.GRANT, (listed(ready),))
        transaction.count_move((tenant, queue, None), BLOCKED, "enqueued", len(ready))
        return max(1, len(rows[:most]))

    def finish(self) -> None:
        """Counts what came in. Tenants keep the turns that they had while they waited."""
        transaction = self._transaction
        transaction.write_counts()
        for group in self._groups:
            grant(transaction, *group)
        transaction.write_counts()
        for tenant, turn in self._turns.items():
            _keep_turn(transaction, tenant, turn)


def _keep_turn(transaction: Transaction, tenant: str, turn: int) -> None:
    """Gives a tenant its turn back that got a new one because it had no open lines."""
    if transaction.execute(scope_sql.TURN_BACK, (turn, tenant)).rowcount > 0:
        transaction.execute(scope_sql.RINGS_BACK, (turn, tenant))
