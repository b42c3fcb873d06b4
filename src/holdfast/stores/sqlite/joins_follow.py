"""Follows edges: counts ended jobs in the joins of others, and makes those ready or ends them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, EventKind, Reason, State
from holdfast.core.journal import AWAITS_PARENTS, ENDS_WITH_PARENTS, OnFailure, await_join
from holdfast.core.lifecycle import due_state
from holdfast.store import Ref
from holdfast.stores.sql_rows import BLOCKED, STATES
from holdfast.stores.sqlite import journal_statements as sql
from holdfast.stores.sqlite.bulk import listed, update_alike
from holdfast.stores.sqlite.jobs import Jobs
from holdfast.stores.sqlite.journal import EdgeRow, read_edges
from holdfast.stores.sqlite.layout import EDGES_OF_ROW
from holdfast.stores.sqlite.rows import AWAITING, Parent, Row
from holdfast.stores.sqlite.transaction import Transaction

_WORDS = {State.FAILED.value: "failed", State.CANCELED.value: "was canceled"}
_COMPLETED = State.COMPLETED.value
_RUN, _SKIP = OnFailure.RUN.value, OnFailure.SKIP.value

_encode = msgspec.json.Encoder().encode

Portion = tuple[Parent, int]
"""A job, and how many of its edges are followed next."""


Edges = list[tuple[Parent, list[EdgeRow]]]
"""Jobs with those of their edges that are followed next."""


class _Target(msgspec.Struct, gc=False):
    """A join that edges lead to and its job, as the edges followed so far have left them."""

    join: str
    seq: int
    tenant: str
    id: str
    queue: str
    type: str
    group: str | None
    state: State
    awaits: str | None
    run_at: Micros
    attempt: int
    fence: int
    late: int
    due: int
    """How many ends the join awaits yet."""
    failed: int
    """How many of its parents have not completed."""
    ended: bool = False

    @property
    def is_awaited(self) -> bool:
        come = await_join(self.join) if self.join else AWAITS_PARENTS
        if self.awaits == ENDS_WITH_PARENTS:
            return come == AWAITS_PARENTS
        return self.awaits == come and self.state in AWAITING


def follow(transaction: Transaction, portions: list[Portion]) -> None:
    """Tells the targets of these edges that the jobs have ended."""
    edges = _edges(transaction, portions)
    targets = _targets(transaction, edges)
    joins: dict[tuple[int, str], _Target] = {}
    """The joins that are to be saved."""
    ready: dict[int, _Target] = {}
    ended: dict[int, tuple[Parent, str] | None] = {}
    """Sequences -> the parent because of which a job ends, and what its edge says about that; None:
    it completes.
    """
    for parent, its in edges:
        tenant, failed = parent.tenant, parent.state != _COMPLETED
        for id, join, on_failure in its:
            target = targets[tenant, join].get(id)
            if target is None or target.ended or target.due <= 0:
                continue
            target.due -= 1
            target.failed += failed
            joins[target.seq, join] = target
            if failed and on_failure != _RUN and target.state is State.WAITING:
                target.ended = True
                ended[target.seq] = (parent, on_failure)
            elif target.due == 0 and target.is_awaited:
                if target.awaits == ENDS_WITH_PARENTS and not target.failed:
                    ended[target.seq] = None
                else:
                    ready[target.seq] = target
    children = [each for each in ready.values() if not each.join]
    for child in children:
        del joins[child.seq, ""]  # It is saved with the rest of the job.
    _save_joins(transaction, joins.values())
    make_ready(transaction, children, by_parents=True)
    make_ready(transaction, [each for each in ready.values() if each.join])
    if ended:
        _end(transaction, ended)


def _edges(transaction: Transaction, portions: list[Portion]) -> Edges:
    """The edges of these portions, those of each job in their order."""
    whole = [one.seq for one, number in portions if number == one.edges]
    found: dict[int, list[EdgeRow]] = {}
    if whole:
        for seq, text in transaction.execute(sql.EDGES, (listed(whole),)).fetchall():
            edges = read_edges(text)
            if seq in found:
                found[seq] += edges
            else:
                found[seq] = edges
    for parent, number in portions:
        if number < parent.edges:
            found[parent.seq] = _some_edges(transaction, parent, parent.followed + number)
    return [(parent, found[parent.seq]) for parent, _ in portions if parent.seq in found]


def _some_edges(transaction: Transaction, parent: Parent, until: int) -> list[EdgeRow]:
    """The edges of a job that are not followed yet, up to this number."""
    start = parent.followed
    values = (parent.seq, start - EDGES_OF_ROW, until)
    return [
        edge
        for first, text in transaction.execute(sql.EDGES_FROM, values).fetchall()
        for edge in read_edges(text)[max(0, start - first) : until - first]
    ]


def _targets(
    transaction: Transaction, edges: Edges
) -> dict[tuple[str, str], dict[str, _Target | None]]:
    """The joins that the edges name: by tenant and name, then by job."""
    targets: dict[tuple[str, str], dict[str, _Target | None]] = {}
    for parent, its in edges:
        tenant = parent.tenant
        for id, join, _ in its:
            targets.setdefault((tenant, join), {})[id] = None
    for (tenant, join), by_id in targets.items():
        values = (_encode(list(by_id)).decode(), tenant)
        if join:
            found = transaction.execute(sql.TARGETS, (*values, join)).fetchall()
        else:
            found = transaction.execute(sql.CHILDREN, values).fetchall()
        for row in found:
            target = _Target(join, *row)
            target.state = STATES.get(target.state, State.FAILED)
            target.ended = target.state in TERMINAL
            by_id[target.id] = target
    return targets


# -- what becomes of the targets -------------------------------------------------------------------


def _save_joins(transaction: Transaction, targets: Collection[_Target]) -> None:
    connection = transaction.connection
    parents = {each.seq: (each.due, each.failed) for each in targets if not each.join}
    update_alike(connection, sql.PARENTS_SAVE, parents)
    others = [(each.due, each.failed, each.seq, each.join) for each in targets if each.join]
    if others:
        connection.executemany(sql.JOIN_SAVE, others)


def make_ready(
    transaction: Transaction, jobs: Sequence[_Target] | Sequence[Row], *, by_parents: bool = False
) -> None:
    """Makes jobs ready for which what they await has come. `by_parents` saves the joins too."""
    now, cache = transaction.now, transaction.scope_cache
    saved: dict[int, tuple[Any, ...]] = {}
    alike: dict[tuple[Any, ...], list[str]] = {}
    """What jobs have in common -> their ids."""
    for job in jobs:
        tenant, queue, group = job.tenant, job.queue, job.group
        before, come = job.state._value_, job.awaits
        if job.state is State.SCHEDULED:
            job.run_at = min(job.run_at, now)
        job.state, job.awaits = due_state(job.run_at, now), None
        enqueued = job.state is State.ENQUEUED
        gated = enqueued and cache.gated(tenant, group, queue)
        if gated and group is not None:
            transaction.groups_to_check.add((tenant, group))  # Its order may have changed.
        place = BLOCKED if enqueued and (gated or job.late) else job.state._value_
        until = None if enqueued else job.run_at
        where = (tenant, queue, group)
        kind = (where, before, place, job.type, job.attempt, job.fence, until, come)
        alike.setdefault(kind, []).append(job.id)
        saved[job.seq] = (job.state._value_, job.run_at, now, int(gated))
        if isinstance(job, _Target) and by_parents:
            saved[job.seq] += (job.failed,)
    statement = sql.MAKE_CHILD_READY if by_parents else sql.MAKE_READY
    update_alike(transaction.connection, statement, saved)
    for (where, before, place, type, attempt, fence, until, come), ids in alike.items():
        transaction.count_move(where, before, place, len(ids), type=type)
        transaction.ready_lines.add(where[:2])
        note = AWAITS_PARENTS if come == ENDS_WITH_PARENTS else come
        of = (*where[:2], type)
        transaction.record_events(EventKind.READY, of, ids, attempt, fence, until=until, text=note)


def _end(transaction: Transaction, ended: dict[int, tuple[Parent, str] | None]) -> None:
    """Completes jobs with their parents, and ends waiting jobs because of a parent."""
    jobs = Jobs(transaction)
    for row in jobs.read(list(ended)):
        because = ended[row.seq]
        row.awaits = None
        if because is None:
            row.state = State.COMPLETED
            kind, note = EventKind.COMPLETED, None
        else:
            kind, note = _because_of(row, *because)
        jobs.finish(row)
        jobs.record(kind, row, text=note)
        transaction.ended_jobs.append(Ref(row.tenant, row.id))
    jobs.flush()


def _because_of(row: Row, parent: Parent, on_failure: str) -> tuple[EventKind, str]:
    """How a job ends because of a parent that has not completed: the event, and its note. A word of
    an edge that cannot be read is the default, to fail.
    """
    row.error = f"its parent {parent.id} {_WORDS.get(parent.state, 'was deleted')}"
    if on_failure == _SKIP:
        row.state = State.CANCELED
        return EventKind.CANCELED, row.error
    row.state, row.reason = State.FAILED, Reason.PARENT_FAILED
    return EventKind.FAILED, f"{row.reason.value}: {row.error}"
