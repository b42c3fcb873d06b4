"""Whose turn it is: tenants first, then the lines (tenant, queue) of each.

Weighted deficit round robin over tenants: in its turn a tenant takes as many jobs as its weight, or
a multiple of it (`scope.rounds`), from its lines in turn, and goes to the end. A turn that a full
claim cut short goes on with the next. All processes share the order of the turns; what is left of
one that was cut short only the process knows that cut it.

A claim for listed queues walks their rings: each open line stands in the ring of its queue with a
copy of its tenant's number. The copy may be out of date, too small and never too large, and is put
right when it is met at the head; a tenant that is closed leaves the ring then, until it opens.
Idle and closed tenants and lines are in no other index that is walked.
"""

from __future__ import annotations

import heapq
import sqlite3

from holdfast.stores.sqlite import turn_statements as sql
from holdfast.stores.sqlite.transaction import Transaction

Names = tuple[str, ...] | None

CREDITS_MAX = 1000
"""Turns cut short that are remembered."""
RING_FIXES_MAX = 1000
"""Numbers of one ring that one claim puts right; past that the order is nearly right."""
RING_LOOK = 8
"""How far a ring is looked into for a tenant that is open, where nothing may be put right."""


class Turns:
    def __init__(self) -> None:
        self._credit: dict[str, int] = {}

    def allowance(self, tenant: str, quota: int) -> int:
        """How many jobs the tenant may take in this turn."""
        return self._credit.pop(tenant, quota)

    def done(self, transaction: Transaction, tenant: str, left: int) -> None:
        """Ends the tenant's turn, or keeps what is left of it for the next claim."""
        if left == 0:
            transaction.turn += 1
            transaction.execute(sql.TENANT_TURN, (transaction.turn, tenant))
            return
        if len(self._credit) >= CREDITS_MAX:
            self._credit.clear()
        self._credit[tenant] = left


def tenants_of_turn(
    transaction: Transaction, tenants: Names, queues: Names, most: int
) -> list[str]:
    """The first of these tenants that can be claimed from, in the order of their turns."""
    execute = transaction.execute
    if tenants is not None:
        found = _asked(transaction.connection, tenants, queues)
    elif queues is None:
        return [tenant for (tenant,) in execute(sql.TENANTS, (most,)).fetchall()]
    else:
        found = {pair for queue in set(queues) for pair in _first(transaction, queue, most)}
    return [tenant for _, tenant in heapq.nsmallest(most, found)]


def _asked(
    connection: sqlite3.Connection, tenants: tuple[str, ...], queues: Names
) -> set[tuple[int, str]]:
    """Those of the tenants that can be claimed from, with their turns."""
    found = set()
    for tenant in set(tenants):
        row = connection.execute(sql.TENANT_OPEN, (tenant,)).fetchone()
        if row is not None and (queues is None or _lines(connection, tenant, queues)):
            found.add((row[0], tenant))
    return found


def _first(transaction: Transaction, queue: str, most: int) -> list[tuple[int, str]]:
    """The first tenants of a ring, with their turns. Numbers only grow: what is right is first."""
    fixed = 0
    while True:
        rows = transaction.execute(sql.RING, (queue, most)).fetchall()
        wrong = [
            (turn if is_open else 0, tenant, queue)
            for number, tenant, turn, is_open in rows
            if not is_open or number != turn
        ]
        if not wrong or fixed >= RING_FIXES_MAX:
            return [(turn, tenant) for _, tenant, turn, is_open in rows if is_open]
        transaction.connection.executemany(sql.RING_SET, wrong)
        fixed += len(wrong)


def lines_of_turn(
    connection: sqlite3.Connection, tenant: str, queues: Names, most: int
) -> list[str]:
    """The first of the tenant's queues that can be claimed from, in the order of their turns."""
    if queues is None:
        found = connection.execute(sql.LINES, (tenant, most)).fetchall()
        return [queue for (queue,) in found]
    return [queue for _, queue in heapq.nsmallest(most, _lines(connection, tenant, queues))]


def _lines(
    connection: sqlite3.Connection, tenant: str, queues: tuple[str, ...]
) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for queue in set(queues):
        found += connection.execute(sql.LINE_OPEN, (tenant, queue)).fetchall()
    return found


def visited(transaction: Transaction, tenant: str, queue: str) -> None:
    """Ends the line's turn among those of its tenant."""
    transaction.turn += 1
    transaction.execute(sql.TURN, (transaction.turn, tenant, queue))


def any_open(connection: sqlite3.Connection, tenants: Names, queues: Names) -> bool:
    """True when one of these lines can be claimed from. Also when only a claim can tell, for there
    are many in a ring whose tenants are closed: it takes them out.
    """
    if tenants is not None:
        return bool(_asked(connection, tenants, queues))
    if queues is None:
        return connection.execute(sql.TENANTS, (1,)).fetchone() is not None
    for queue in queues:
        rows = connection.execute(sql.RING, (queue, RING_LOOK)).fetchall()
        if len(rows) == RING_LOOK or any(is_open for *_, is_open in rows):
            return True
    return False
