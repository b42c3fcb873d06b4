"""Fairness: tenants take turns, and so do the lines (tenant, queue) of each tenant.

Weighted deficit round robin over tenants: in its turn a tenant gets as many jobs as its weight, or
a multiple of it (`scope.rounds`), from its lines in turn, and then goes to the end. A turn that a
full claim cut short continues with the next claim. The order of turns is in the database; the rest
of a turn that was cut short is known only to the process that cut it.

A claim that lists queues walks their rings: the ring of a queue has its open lines in the order of
a copy of their tenants' turns. A copy may be too small, never too large; a claim that meets an
outdated copy at the head of a ring corrects it, and takes the lines of closed tenants out of the
ring until they open.
Idle and closed tenants and lines are in no other index that claims walk.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from functools import lru_cache

import msgspec

from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite.transaction import Transaction

Names = tuple[str, ...] | None

_encode = msgspec.json.Encoder().encode

CREDITS_MAX = 1000
"""Turns cut short that a process remembers."""
RING_SLACK = 16
"""Lines of a ring that a claim reads beside those that it needs: so many outdated copies may be at
its head before a claim has to correct them.
"""
RING_FIXES_MAX = 1000
"""Copies of one ring that one claim corrects; past that the order is nearly right."""
NAMES_CACHE_MAX = 256
RING_LOOK = 8
"""How many lines of a ring a read looks at for an open tenant."""


class TurnCredits:
    """What is left of the turns that full claims cut short."""

    def __init__(self) -> None:
        self._credit: dict[str, int] = {}
        self.released = ""
        """The last tenant whose edges a claim followed; the next claim goes on after it."""

    def allowance(self, tenant: str, quota: int) -> int:
        """How many jobs the tenant may take in this turn."""
        return self._credit.pop(tenant, quota)

    def keep(self, tenant: str, left: int) -> None:
        """Keeps what is left of the tenant's turn for the next claim."""
        if len(self._credit) >= CREDITS_MAX:
            self._credit.clear()
        self._credit[tenant] = left


class Turns:
    """The turns that one claim ends. They are written together, before the claim reads again."""

    def __init__(self, transaction: Transaction, credits: TurnCredits) -> None:
        self._transaction = transaction
        self._credits = credits
        self._lines: dict[tuple[str, str], int] = {}
        self._tenants: dict[str, int] = {}

    def allowance(self, tenant: str, quota: int) -> int:
        """How many jobs the tenant may take in this turn."""
        return self._credits.allowance(tenant, quota)

    def end_line(self, tenant: str, queue: str) -> None:
        """Ends the line's turn among those of its tenant."""
        self._lines[tenant, queue] = self._number()

    def end_tenant(self, tenant: str, left: int) -> None:
        """Ends the tenant's turn, or keeps what is left of it for the next claim."""
        if left:
            self._credits.keep(tenant, left)
        else:
            self._tenants[tenant] = self._number()

    def _number(self) -> int:
        self._transaction.turn += 1
        return self._transaction.turn

    def write(self) -> None:
        connection, tenants = self._transaction.connection, self._tenants
        if self._lines:
            # With the new turn of its tenant, so that the next claim need not correct the copy.
            lines = [
                (turn, tenants.get(tenant, 0), tenant, queue)
                for (tenant, queue), turn in self._lines.items()
            ]
            connection.executemany(scope_sql.LINE_TURN, lines)
            self._lines.clear()
        if tenants:
            turns = [(turn, tenant) for tenant, turn in tenants.items()]
            connection.executemany(scope_sql.TENANT_TURN, turns)
            tenants.clear()


def next_tenants(transaction: Transaction, tenants: Names, queues: Names, most: int) -> list[str]:
    """The first of these tenants that can be claimed from, in the order of their turns."""
    execute = transaction.execute
    if tenants is not None:
        found = _asked(transaction.connection, tenants, queues)
    elif queues is None:
        return [tenant for (tenant,) in execute(scope_sql.TENANTS, (most,)).fetchall()]
    else:
        found = _first_in_rings(transaction, set(queues), most)
    return [tenant for _, tenant in heapq.nsmallest(most, found)]


def _asked(
    connection: sqlite3.Connection, tenants: tuple[str, ...], queues: Names
) -> set[tuple[int, str]]:
    """Those of the tenants that can be claimed from, with their turns."""
    found = set()
    for tenant in set(tenants):
        row = connection.execute(scope_sql.TENANT_OPEN, (tenant,)).fetchone()
        if row is not None and (queues is None or _lines(connection, tenant, queues)):
            found.add((row[0], tenant))
    return found


def _first_in_rings(transaction: Transaction, queues: set[str], most: int) -> set[tuple[int, str]]:
    """The first tenants of the rings of these queues, with their turns.

    A copy is at most the turn itself. So those with a turn up to the last copy that was read of
    each longer ring come before all that were not read. Where outdated copies leave too few of
    them, the copies are corrected and the rings read again.
    """
    asked, fixed = most + RING_SLACK, 0
    while True:
        rings = {queue: _ring(transaction.connection, queue, asked) for queue in queues}
        names = {tenant for ring in rings.values() for _, tenant in ring}
        turns = _open_turns(transaction.connection, names)
        longer = [queue for queue, ring in rings.items() if len(ring) == asked]
        last = min((rings[queue][-1][0] for queue in longer), default=math.inf)
        wrong = [
            (turns.get(tenant, 0), tenant, queue)
            for queue in longer
            for number, tenant in rings[queue]
            if number != turns.get(tenant, 0)
        ]
        first = sum(turn <= last for turn in turns.values())
        if first >= most or not wrong or fixed >= RING_FIXES_MAX:
            return {(turn, tenant) for tenant, turn in turns.items()}
        transaction.connection.executemany(scope_sql.RING_SET, wrong)
        fixed += len(wrong)


def _ring(connection: sqlite3.Connection, queue: str, most: int) -> list[tuple[int, str]]:
    """The first lines of a ring: (copy of the turn, tenant)."""
    return connection.execute(scope_sql.RING, (queue, most)).fetchall()


def _open_turns(connection: sqlite3.Connection, tenants: set[str]) -> dict[str, int]:
    """The turns of those of the tenants that are open."""
    found = connection.execute(scope_sql.OPEN_TURNS, (_encode(sorted(tenants)).decode(),))
    return dict(found.fetchall())


def next_lines(connection: sqlite3.Connection, tenant: str, queues: Names, most: int) -> list[str]:
    """The first of the tenant's queues that can be claimed from, in the order of their turns."""
    if queues is None:
        found = connection.execute(scope_sql.OPEN_LINES, (tenant, most)).fetchall()
        return [queue for (queue,) in found]
    return [queue for _, queue in heapq.nsmallest(most, _lines(connection, tenant, queues))]


def _lines(
    connection: sqlite3.Connection, tenant: str, queues: tuple[str, ...]
) -> list[tuple[int, str]]:
    return connection.execute(scope_sql.LINES_OF, (tenant, _names(queues))).fetchall()


@lru_cache(NAMES_CACHE_MAX)
def _names(queues: tuple[str, ...]) -> str:
    return _encode(queues).decode()


def any_open(connection: sqlite3.Connection, tenants: Names, queues: Names) -> bool:
    """True when one of these lines can be claimed from. Also when only a claim can tell, for there
    are many in a ring whose tenants are closed: it takes them out.
    """
    if tenants is not None:
        return bool(_asked(connection, tenants, queues))
    if queues is None:
        return connection.execute(scope_sql.TENANTS, (1,)).fetchone() is not None
    for queue in queues:
        ring = _ring(connection, queue, RING_LOOK)
        if len(ring) == RING_LOOK or _open_turns(connection, {tenant for _, tenant in ring}):
            return True
    return False
