"""Joins: what the end of a job does to the jobs that await it.

A call that ends jobs with edges follows up to RELEASE_MAX of these edges, tenants in turn, those of
jobs that end because of a parent included. The jobs that are left over are rows of the table
`releasing`, and each of the next claims follows as many edges of theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Any

import msgspec

from holdfast.core.bounds import RELEASE_MAX
from holdfast.core.job import TERMINAL, EventKind, Reason, State
from holdfast.core.journal import (
    AWAITS_PARENTS,
    ENDS_WITH_PARENTS,
    Edge,
    OnFailure,
    await_join,
)
from holdfast.core.lifecycle import due_state
from holdfast.store import Ref
from holdfast.stores.sqlite import journal_statements as sql
from holdfast.stores.sqlite.bulk import insert_rows, listed
from holdfast.stores.sqlite.fairness import TurnCredits
from holdfast.stores.sqlite.jobs import ENDED, Jobs
from holdfast.stores.sqlite.journal import drop
from holdfast.stores.sqlite.rows import AWAITING, Parent, Row
from holdfast.stores.sqlite.transaction import Transaction

SHARE = 50
"""Edges that the jobs of one tenant follow in its turn."""
PASSES_MAX = 300
"""Turns of one call. In a chain of jobs that end with their parents each takes about 0.2 ms."""

_WORDS = {State.FAILED.value: "failed", State.CANCELED.value: "was canceled"}
_COMPLETED = State.COMPLETED.value

_encode = msgspec.json.Encoder().encode

Portion = tuple[Parent, int]
"""A job, and how many of its edges are followed next."""


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
        parents += map(Parent._make, transaction.execute(sql.RELEASING, values).fetchall())
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
            _follow(self._transaction, portions)
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
                number = min(left, parent.edges - parent.followed)
                portions.append((parent, number))
                left -= number
                rest = parent._replace(followed=parent.followed + number)
                if rest.followed < rest.edges:
                    parents.appendleft(rest)
                else:
                    self._done.append(rest)
            most += left
            if parents:
                self._turns[tenant] = parents
        return portions

    def _leave(self) -> None:
        """Stores what is not followed yet, and forgets what is."""
        transaction = self._transaction
        rest = list(chain.from_iterable(self._turns.values()))
        insert_rows(transaction.connection, sql.RELEASING_PUT, rest)
        stored = [(each.tenant, each.seq) for each in self._done if each.seq in self._stored]
        if stored:
            transaction.connection.executemany(sql.RELEASING_DROP, stored)
        gone = [(parent.seq, parent.edges) for parent in self._done if parent.gone]
        if gone:
            drop(transaction, gone)
        if rest or self._stored:
            left = transaction.execute(sql.RELEASING_ANY).fetchone() is not None
            transaction.wake_all |= left  # The next claims go on with it.


# -- edges -----------------------------------------------------------------------------------------


class _Target:
    """A job that edges lead to, as those followed so far have left it."""

    def __init__(self, seq: int, state: str, awaits: str | None) -> None:
        self.seq = seq
        self.waits = state == State.WAITING.value
        self.ended = state in ENDED
        self.awaits = awaits
        self.joins: dict[str, list[int]] = {}
        """Name -> how many ends a join awaits yet, and how many parents have not completed."""

    def come(self, name: str) -> str | None:
        """What has come for the job with this join; None if it awaits something else. For a job
        that ends with its parents ENDS_WITH_PARENTS, if all of them have completed.
        """
        come = await_join(name)
        if come == AWAITS_PARENTS and self.awaits == ENDS_WITH_PARENTS:
            return AWAITS_PARENTS if self.joins[name][1] else ENDS_WITH_PARENTS
        return come if self.awaits == come else None


def _follow(transaction: Transaction, portions: list[Portion]) -> None:
    """Tells the targets of these edges that the jobs have ended."""
    edges = _edges(transaction, portions)
    targets = _targets(transaction, edges)
    changed: dict[tuple[int, str], list[int]] = {}
    decided: dict[int, str | tuple[Parent, OnFailure]] = {}
    for parent, edge in edges:
        target = targets.get((parent.tenant, edge.target))
        numbers = None if target is None else target.joins.get(edge.join)
        if target is None or numbers is None or target.ended or numbers[0] == 0:
            continue
        failed = parent.state != _COMPLETED
        numbers[0] -= 1
        numbers[1] += failed
        changed[target.seq, edge.join] = numbers
        if failed and target.waits and edge.on_failure is not OnFailure.RUN:
            target.ended = True
            decided[target.seq] = (parent, edge.on_failure)
        elif numbers[0] == 0 and (come := target.come(edge.join)) is not None:
            decided[target.seq] = come
    if changed:
        values = [(*numbers, *key) for key, numbers in changed.items()]
        transaction.connection.executemany(sql.JOIN_SAVE, values)
    if decided:
        _apply(transaction, decided)


def _apply(transaction: Transaction, decided: dict[int, str | tuple[Parent, OnFailure]]) -> None:
    """Makes jobs ready, or completes them, for which this has come, and ends jobs because of these
    parents.
    """
    jobs = Jobs(transaction)
    rows = {row.seq: row for row in jobs.read(list(decided))}
    for seq, what in decided.items():
        row = rows[seq]
        if what == ENDS_WITH_PARENTS:
            _complete(transaction, jobs, row)
        elif isinstance(what, str):
            row.awaits = what
            make_ready(transaction, jobs, row, what)
        else:
            _end(transaction, jobs, row, *what)
    jobs.flush()


def _edges(transaction: Transaction, portions: list[Portion]) -> list[tuple[Parent, Edge]]:
    """The edges of these portions, those of each job in their order."""
    rows: dict[int, list[tuple[Any, ...]]] = {}
    whole = [one.seq for one, number in portions if number == one.edges]
    found = transaction.execute(sql.EDGES, (listed(whole),)).fetchall() if whole else []
    for parent, number in portions:
        if number < parent.edges:
            values = (parent.seq, parent.followed, parent.followed + number)
            found += transaction.execute(sql.EDGES_FROM, values).fetchall()
    for row in found:
        rows.setdefault(row[0], []).append(row)
    return [
        (parent, Edge(target, name, _how(how)))
        for parent, _ in portions
        for _, target, name, how in rows.get(parent.seq, ())
    ]


def _how(text: str) -> OnFailure:
    """What a failure does; the default, if that cannot be read."""
    return OnFailure(text) if text in _HOW else OnFailure.FAIL


_HOW = frozenset(how.value for how in OnFailure)


def _targets(
    transaction: Transaction, edges: list[tuple[Parent, Edge]]
) -> dict[tuple[str, str], _Target]:
    """The targets of these edges that have the joins which the edges name."""
    asked: dict[tuple[str, str], dict[str, None]] = {}
    for parent, edge in edges:
        asked.setdefault((parent.tenant, edge.join), {})[edge.target] = None
    targets: dict[tuple[str, str], _Target] = {}
    for (tenant, name), ids in asked.items():
        query = transaction.execute(sql.TARGETS, (_encode(list(ids)).decode(), tenant, name))
        for id, seq, state, awaits, due, failed in query.fetchall():
            target = targets.get((tenant, id))
            if target is None:
                target = targets[tenant, id] = _Target(seq, state, awaits)
            target.joins[name] = [due, failed]
    return targets


def make_ready(transaction: Transaction, jobs: Jobs, row: Row, come: str) -> bool:
    """Makes a job ready if it awaits this, which has come; whether it did."""
    if row.awaits != come or row.state not in AWAITING:
        return False
    now = transaction.now
    if row.state is State.SCHEDULED:
        row.run_at = min(row.run_at, now)
    row.state, row.awaits = due_state(row.run_at, now), None
    jobs.save(row)
    transaction.ready_lines.add((row.tenant, row.queue))
    jobs.record(EventKind.READY, row, row.run_at if row.run_at > now else None, come)
    return True


def _complete(transaction: Transaction, jobs: Jobs, row: Row) -> None:
    """Completes a job that ends with its parents."""
    row.state, row.awaits = State.COMPLETED, None
    jobs.finish(row)
    jobs.record(EventKind.COMPLETED, row)
    transaction.ended_jobs.append(Ref(row.tenant, row.id))


def _end(
    transaction: Transaction, jobs: Jobs, row: Row, parent: Parent, on_failure: OnFailure
) -> None:
    """Ends a waiting job because of a parent that has not completed."""
    if row.state in TERMINAL:
        return
    why = f"its parent {parent.id} {_WORDS.get(parent.state, 'was deleted')}"
    row.error, row.awaits = why, None
    if on_failure is OnFailure.SKIP:
        row.state = State.CANCELED
        kind, note = EventKind.CANCELED, why
    else:
        row.state, row.reason = State.FAILED, Reason.PARENT_FAILED
        kind, note = EventKind.FAILED, f"{row.reason.value}: {why}"
    jobs.finish(row)
    jobs.record(kind, row, text=note)
    transaction.ended_jobs.append(Ref(row.tenant, row.id))
