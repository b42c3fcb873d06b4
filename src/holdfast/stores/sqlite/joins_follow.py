"""Follows edges: counts ended jobs in the joins of others, and makes those ready or ends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

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
from holdfast.stores.sqlite.rows import AWAITING, Parent, Row
from holdfast.stores.sqlite.transaction import Transaction

_WORDS = {State.FAILED.value: "failed", State.CANCELED.value: "was canceled"}
_COMPLETED = State.COMPLETED.value
_RUN, _SKIP = OnFailure.RUN.value, OnFailure.SKIP.value

_encode = msgspec.json.Encoder().encode

Portion = tuple[Parent, int]
"""A job, and how many of its edges are followed next."""


class _Edge(NamedTuple):
    parent: Parent
    target: str
    join: str
    on_failure: str
    """What cannot be read is the default, to fail."""


class Awaiting(Protocol):
    """A job that awaits something."""

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


class _Target:
    """A join that edges lead to and its job, as the edges followed so far have left them."""

    __slots__ = (
        "attempt", "awaits", "due", "ended", "failed", "fence", "group", "id", "join", "late",
        "queue", "run_at", "seq", "state", "tenant", "type",
    )  # fmt: skip

    def __init__(self, join: str, row: tuple[Any, ...]) -> None:
        state: str
        self.join = join
        self.seq: int
        self.tenant: str
        self.id: str
        self.queue: str
        self.type: str
        self.group: str | None
        self.awaits: str | None
        self.run_at: Micros
        self.attempt: int
        self.fence: int
        self.late: int
        self.due: int
        """How many ends the join awaits yet."""
        self.failed: int
        """How many of its parents have not completed."""
        (
            self.seq, self.tenant, self.id, self.queue, self.type, self.group, state, self.awaits,
            self.run_at, self.attempt, self.fence, self.late, self.due, self.failed,
        ) = row  # fmt: skip
        self.state = STATES.get(state, State.FAILED)
        self.ended = self.state in TERMINAL

    @property
    def is_awaited(self) -> bool:
        come = await_join(self.join)
        if self.awaits == ENDS_WITH_PARENTS:
            return come == AWAITS_PARENTS
        return self.awaits == come and self.state in AWAITING


def follow(transaction: Transaction, portions: list[Portion]) -> None:
    """Tells the targets of these edges that the jobs have ended."""
    edges = _edges(transaction, portions)
    targets = _targets(transaction, edges)
    changed: dict[tuple[int, str], _Target] = {}
    ready: list[_Target] = []
    ended: dict[int, _Edge | None] = {}
    """Sequences -> the edge from a parent because of which a job ends; None: it completes."""
    for edge in edges:
        parent, id, join, on_failure = edge
        target = targets.get((parent.tenant, id, join))
        if target is None or target.ended or target.due == 0:
            continue
        failed = parent.state != _COMPLETED
        target.due -= 1
        target.failed += failed
        changed[target.seq, join] = target
        if failed and on_failure != _RUN and target.state is State.WAITING:
            target.ended = True
            ended[target.seq] = edge
        elif target.due == 0 and target.is_awaited:
            if target.awaits == ENDS_WITH_PARENTS and not target.failed:
                ended[target.seq] = None
            else:
                ready.append(target)
    if changed:
        values = [(each.due, each.failed, *key) for key, each in changed.items()]
        transaction.connection.executemany(sql.JOIN_SAVE, values)
    if ready:
        make_ready(transaction, ready)
    if ended:
        _end(transaction, ended)


def _edges(transaction: Transaction, portions: list[Portion]) -> list[_Edge]:
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
        _Edge(parent, target, name, how)
        for parent, _ in portions
        for _, target, name, how in rows.get(parent.seq, ())
    ]


def _targets(transaction: Transaction, edges: list[_Edge]) -> dict[tuple[str, str, str], _Target]:
    """The joins that the edges name, by tenant, job and name."""
    asked: dict[tuple[str, str], dict[str, None]] = {}
    for parent, id, join, _ in edges:
        asked.setdefault((parent.tenant, join), {})[id] = None
    targets: dict[tuple[str, str, str], _Target] = {}
    for (tenant, join), ids in asked.items():
        values = (_encode(list(ids)).decode(), tenant, join)
        for row in transaction.execute(sql.TARGETS, values).fetchall():
            target = _Target(join, row)
            targets[tenant, target.id, join] = target
    return targets


# -- what becomes of the targets -------------------------------------------------------------------


def make_ready(transaction: Transaction, jobs: Sequence[Awaiting]) -> None:
    """Makes jobs ready for which what they await has come."""
    now, cache = transaction.now, transaction.scope_cache
    saved: dict[int, tuple[Any, ...]] = {}
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
        transaction.count_move((tenant, queue, group), before, place, type=job.type)
        transaction.ready_lines.add((tenant, queue))
        name, until = (tenant, job.id, queue, job.type), None if enqueued else job.run_at
        note = AWAITS_PARENTS if come == ENDS_WITH_PARENTS else come
        transaction.record_event(
            EventKind.READY, name, job.attempt, job.fence, until=until, text=note
        )
        saved[job.seq] = (job.state._value_, job.run_at, now, int(gated))
    update_alike(transaction.connection, sql.MAKE_READY, saved)


def _end(transaction: Transaction, ended: dict[int, _Edge | None]) -> None:
    """Completes jobs with their parents, and ends waiting jobs because of a parent."""
    jobs = Jobs(transaction)
    for row in jobs.read(list(ended)):
        edge = ended[row.seq]
        row.awaits = None
        if edge is None:
            row.state = State.COMPLETED
            kind, note = EventKind.COMPLETED, None
        else:
            kind, note = _because_of(row, edge)
        jobs.finish(row)
        jobs.record(kind, row, text=note)
        transaction.ended_jobs.append(Ref(row.tenant, row.id))
    jobs.flush()


def _because_of(row: Row, edge: _Edge) -> tuple[EventKind, str]:
    """How a job ends because of a parent that has not completed: the event, and its note."""
    parent = edge.parent
    row.error = f"its parent {parent.id} {_WORDS.get(parent.state, 'was deleted')}"
    if edge.on_failure == _SKIP:
        row.state = State.CANCELED
        return EventKind.CANCELED, row.error
    row.state, row.reason = State.FAILED, Reason.PARENT_FAILED
    return EventKind.FAILED, f"{row.reason.value}: {row.error}"
