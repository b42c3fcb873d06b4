"""The lines (queue, tenant) that can be claimed from, and whose turn it is.

Weighted deficit round robin: in its turn a line takes as many jobs as its tenant's weight, or a
multiple of it (`scope.rounds`), and goes to the end. A turn that a full claim cut short
goes on with the next. All processes share the order of the turns; what is left of one that was cut
short only the process knows that cut it. Idle and closed lines are in no index that is walked.
"""

from __future__ import annotations

import heapq
import sqlite3
from itertools import islice

from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.transaction import Transaction

Place = tuple[str, str]
"""(queue, tenant): a line."""

Names = tuple[str, ...] | None

CREDITS_MAX = 1000
"""Turns cut short that are remembered."""


class Turns:
    def __init__(self) -> None:
        self._credit: dict[Place, int] = {}

    def allowance(self, line: Place, quota: int) -> int:
        """How many jobs the line may take in this turn."""
        return self._credit.pop(line, quota)

    def served(self, transaction: Transaction, line: Place, left: int) -> None:
        """Ends the line's turn, or keeps what is left of it for the next claim."""
        if left == 0:
            transaction.turn += 1
            transaction.execute(sql.TURN, (transaction.turn, line[1], line[0]))
            return
        if len(self._credit) >= CREDITS_MAX:
            self._credit.clear()
        self._credit[line] = left


def open_lines(
    connection: sqlite3.Connection, tenants: Names, queues: Names, most: int
) -> list[Place]:
    """The first of the lines that can be claimed from, in the order of their turns."""
    execute = connection.execute
    if tenants is not None:
        found = []
        for tenant in set(tenants):
            if queues is None:
                found += execute(sql.TENANT_LINES, (tenant,)).fetchall()
            else:
                for queue in set(queues):
                    found += execute(sql.LINE_OPEN, (tenant, queue)).fetchall()
        return [(queue, tenant) for _, queue, tenant in heapq.nsmallest(most, found)]
    if queues is None:
        return execute(sql.LINES, (most,)).fetchall()
    rings = [execute(sql.QUEUE_LINES, (queue, most)).fetchall() for queue in set(queues)]
    return [(queue, tenant) for _, queue, tenant in islice(heapq.merge(*rings), most)]
