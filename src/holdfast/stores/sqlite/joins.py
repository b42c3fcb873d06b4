"""Joins: what the end of a job does to the jobs that await it.

A call that ends jobs with edges follows up to RELEASE_MAX of these edges, tenants in turn, those of
jobs that end because of a parent included. The jobs that are left over are rows of the table
`releasing`, and each of the next claims follows as many edges of theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain

from msgspec.structs import astuple, replace

from holdfast.core.bounds import RELEASE_MAX
from holdfast.stores.sqlite import journal_statements as sql
from holdfast.stores.sqlite.bulk import insert_rows
from holdfast.stores.sqlite.fairness import TurnCredits
from holdfast.stores.sqlite.joins_follow import Portion, follow
from holdfast.stores.sqlite.journal import drop
from holdfast.stores.sqlite.rows import Parent
from holdfast.stores.sqlite.transaction import Transaction

SHARE = 50
"""Edges that the jobs of one tenant follow in its turn."""
PASSES_MAX = 300
"""Turns of one call. In a chain of jobs that end with their parents each takes about 0.2 ms."""


def release(transaction: Transaction) -> None:
    """Follows the edges of the jobs that the present call has ended."""
    if transaction.parents:
        _Release(transaction).run()


def release_left(transaction: Transaction, credits: TurnCredits) -> None:
    """Follows edges that earlier calls have left, of the next tenants that have some."""
    most = RELEASE_MAX // SHARE
    names = _tenants_after(transaction, credits.released, most)
    if len(names) < most and credits.released:
        first = _tenants_after(transaction, "", most - len(names))
        names += [name for name in first if name <= credits.released]
    parents: list[Parent] = []
    for name in names:
        values = (name, RELEASE_MAX // len(names))
        found = transaction.execute(sql.RELEASING, values).fetchall()
        parents += [Parent(*row) for row in found]
        credits.released = name
    transaction.parents += parents
    _Release(transaction, parents).run()


def _tenants_after(transaction: Transaction, after: str, most: int) -> list[str]:
    names: list[str] = []
    while len(names) < most:
        found = transaction.execute(sql.RELEASING_TENANT, (after,)).fetchone()
        if found is None:
            break
        after = found[0]
        names.append(after)
    return names


class _Release:
    """What one call follows, and what it leaves."""

    def __init__(self, transaction: Transaction, stored: Iterable[Parent] = ()) -> None:
        self._transaction = transaction
        self._stored = {parent.seq for parent in stored}
        """Jobs that have a row in `releasing`."""
        self._done: list[Parent] = []
        self._turns: dict[str, deque[Parent]] = {}
        """Tenants with edges to follow, in turn."""

    def run(self) -> None:
        left, passes = RELEASE_MAX, 0
        while self._queue() and left > 0 and passes < PASSES_MAX:
            passes += 1
            portions = self._next(left)
            left -= sum(number for _, number in portions)
            follow(self._transaction, portions)
        self._leave()

    def _queue(self) -> bool:
        """Queues the jobs that have just ended; whether there are edges to follow."""
        for parent in self._transaction.parents:
            self._turns.setdefault(parent.tenant, deque()).append(parent)
        self._transaction.parents.clear()
        return bool(self._turns)

    def _next(self, most: int) -> list[Portion]:
        """A turn of each tenant, of up to so many edges together."""
        portions: list[Portion] = []
        share = SHARE if len(self._turns) > 1 else most
        for tenant in list(self._turns):
            if most <= 0:
                break
            left = min(share, most)
            most -= left
            parents = self._turns.pop(tenant)
            while parents and left > 0:
                parent = parents.popleft()
                rest = parent.edges - parent.followed
                number = min(left, rest)
                portions.append((parent, number))
                left -= number
                if number < rest:
                    followed = parent.followed + number
                    parents.appendleft(replace(parent, followed=followed))
                else:
                    self._done.append(parent)
            most += left
            if parents:
                self._turns[tenant] = parents
        return portions

    def _leave(self) -> None:
        """Stores what is not followed yet, and forgets what is."""
        transaction = self._transaction
        rest = list(chain.from_iterable(self._turns.values()))
        insert_rows(transaction.connection, sql.RELEASING_PUT, list(map(astuple, rest)))
        stored = [(each.tenant, each.seq) for each in self._done if each.seq in self._stored]
        if stored:
            transaction.connection.executemany(sql.RELEASING_DROP, stored)
        gone = [(parent.seq, parent.edges) for parent in self._done if parent.gone]
        if gone:
            drop(transaction, gone)
        if rest or self._stored:
            left = transaction.execute(sql.RELEASING_ANY).fetchone() is not None
            transaction.wake_all |= left  # The next claims go on with it.
