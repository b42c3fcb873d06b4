"""Joins: what the end of a job does to the jobs that await it.

The server follows most edges by itself, in the step that completes their job (`joins.sql`). Others
are noted in the table `releasing`, which no other call waits for. Then the same call follows up to
RELEASE_MAX edges of such jobs of its tenants, in a step of its own: one call at a time does, and it
finds what all others have noted, so that a hundred thousand ends of one join are added up in few
writes. Each claim follows as many of what is left, tenants in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.core.bounds import RELEASE_MAX
from holdfast.core.errors import StoreUnavailable
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
from holdfast.stores.postgres import journal_statements as sql
from holdfast.stores.postgres.errors import is_beaten
from holdfast.stores.postgres.journal import edge_of
from holdfast.stores.postgres.rows import AWAITING, Row
from holdfast.stores.postgres.statements import RELEASE_COMPLETED
from holdfast.stores.postgres.step import Step, columns

SERVER_MAX = 4 * RELEASE_MAX
"""Edges of completed jobs that the server follows in one step, in less time than RELEASE_MAX others
take.
"""
SHARE = 50
"""Edges that the jobs of one tenant follow in its turn."""
WAIT_MS = 1000
"""How long a call that has ended jobs waits for another that follows edges, or holds a target."""

_AWAITED = {ENDS_WITH_PARENTS: AWAITS_PARENTS}
"""What a job awaits, in the words of joins, where it says more."""
_WORDS = {State.FAILED.value: "failed", State.CANCELED.value: "was canceled"}


class Turns:
    """Which tenant's edges the claims of this process followed last."""

    def __init__(self) -> None:
        self.last = ""


@contextmanager
def _in_turn(place: str) -> Iterator[None]:
    """Says what was in the way."""
    try:
        yield
    except Exception as error:
        if is_beaten(error):
            raise StoreUnavailable(
                store=place, why="other calls hold what edges lead to"
            ) from error
        raise


async def release(step: Step, tenants: Sequence[str], place: str) -> None:
    """Follows edges of ended jobs of these tenants. Raises if somebody is in its way for long: then
    it is for the next claims.
    """
    with _in_turn(place):
        await step.run(sql.LOCK, str(WAIT_MS))
        await step.begin()
        await _follow_of(step, tenants[:RELEASE_MAX], sql.TARGETS)


async def release_completed(step: Step, tenants: Sequence[str], place: str) -> None:
    """As `release`, of completed jobs, as far as the server can by itself. Notes the tenants that
    have others.
    """
    values = (tenants[:RELEASE_MAX], str(WAIT_MS), SERVER_MAX, step.given, step.events_on)
    with _in_turn(place):
        found = await step.row(RELEASE_COMPLETED, *values, step.channel, step.sender)
    assert found is not None
    in_lines, queues, left_over, ended_tenants, ended_ids, more = found
    step.came_up(zip(in_lines or (), queues or (), strict=True))
    step.ended += map(Ref, ended_tenants or (), ended_ids or ())
    step.awaited.update(left_over or ())
    step.wakes_all |= bool(more)


async def release_left(step: Step, turns: Turns) -> None:
    """Follows edges that other calls have left, of the next tenants that have some; none of them if
    somebody else does. Never waits: jobs that somebody holds are for another time.
    """
    if not await step.value(sql.TRY_LOCK):
        return
    await step.begin()
    most = RELEASE_MAX // SHARE
    names = [row[0] for row in await step.rows(sql.RELEASING_TENANTS, turns.last, most)]
    if len(names) < most and turns.last:
        first = await step.rows(sql.RELEASING_TENANTS, "", most - len(names))
        names += [row[0] for row in first if row[0] <= turns.last]
    if names:
        turns.last = names[-1]
        await _follow_of(step, names, sql.TARGETS_UNLOCKED)


async def _follow_of(step: Step, tenants: Sequence[str], targets: str) -> None:
    found = await step.rows(sql.RELEASING, tenants, RELEASE_MAX // len(tenants))
    parts = [_Part(_Parent(seq, *rest), number, edges) for seq, number, *rest, edges in found]
    followed = await _Release(step, parts, targets).run()
    if followed and await step.value(sql.ANY_LEFT):
        step.wakes_all = True  # The next claims go on with it.


class _Parent(NamedTuple):
    """A job that has ended, or was deleted."""

    seq: int
    tenant: str
    id: str
    state: str


class _Part:
    """A part of its edges."""

    __slots__ = ("edges", "followed", "is_held", "number", "parent")

    def __init__(self, parent: _Parent, number: int | None, edges: Sequence[str]) -> None:
        self.parent, self.edges = parent, edges
        self.number = number
        """None if this very call ends the job."""
        self.followed = 0
        self.is_held = False
        """Somebody holds the target of the next edge."""


class _Target:
    """A job that edges lead to, as those followed so far have left it."""

    def __init__(self, tenant: str, id: str, state: str, edges: Sequence[str] | None) -> None:
        self.tenant, self.id, self.edges = tenant, id, edges
        """Of its edges only the first ones were read."""
        self.waits = state == State.WAITING.value
        self.ended_by: tuple[_Parent, OnFailure] | None = None
        self.come: str | None = None
        """What it awaited, if that has come."""
        self.completed = False
        """It ends with its parents, which have completed."""

    @property
    def has_ended(self) -> bool:
        return self.completed or self.ended_by is not None


class _Release:
    """What one call follows. All that it changes is written at its end."""

    def __init__(self, step: Step, parts: Iterable[_Part], targets: str) -> None:
        self._step, self._query = step, targets
        self._turns: dict[str, deque[_Part]] = {}
        """Tenants with edges to follow, in turn."""
        self._taken: dict[int, _Part] = {}
        """Parts of which edges were asked for."""
        self._targets: dict[int, _Target] = {}
        self._joins: dict[tuple[int, str], list[int]] = {}
        """How many ends each join awaits yet, and how many parents have not completed."""
        self._changed: set[tuple[int, str]] = set()
        for part in parts:
            self._queue(part)

    async def run(self) -> bool:
        """Whether it followed any edge."""
        left = RELEASE_MAX
        while self._turns and left > 0:
            asked = self._next(left)
            left -= len(asked)
            await self._follow(asked)
        await self._write()
        return any(part.followed for part in self._taken.values())

    def _queue(self, part: _Part) -> None:
        self._turns.setdefault(part.parent.tenant, deque()).append(part)

    def _next(self, most: int) -> list[tuple[_Part, int, Edge]]:
        """A turn of each tenant: edges to follow, with their places in their parts."""
        asked: list[tuple[_Part, int, Edge]] = []
        share = SHARE if len(self._turns) > 1 else most
        for tenant in list(self._turns):
            room = min(share, most - len(asked))
            parts = self._turns.pop(tenant)
            while parts and room > 0:
                part = parts.popleft()
                if part.is_held:
                    continue
                low, high = part.followed, min(len(part.edges), part.followed + room)
                asked += [(part, place, edge_of(part.edges[place])) for place in range(low, high)]
                room -= high - low
                part.followed = high
                self._taken[id(part)] = part
                if high < len(part.edges):
                    parts.appendleft(part)
            if parts:
                self._turns[tenant] = parts
        return asked

    async def _follow(self, asked: list[tuple[_Part, int, Edge]]) -> None:
        names = [(part.parent.tenant, edge.target, edge.join) for part, _, edge in asked]
        for number, seq, *found in await self._step.rows(self._query, *columns(names), SHARE):
            part, place, edge = asked[number - 1]
            if part.is_held:
                continue
            if seq is None:
                part.is_held, part.followed = True, place
                continue
            state, awaits, id, edges, due, failed = found
            # What was read first counts: the changes since then are not stored yet.
            target = self._targets.setdefault(seq, _Target(part.parent.tenant, id, state, edges))
            join = self._joins.setdefault((seq, edge.join), [due, failed])
            if not target.has_ended and join[0] > 0:
                self._count(part.parent, edge, seq, awaits)

    def _count(self, parent: _Parent, edge: Edge, seq: int, awaits: str) -> None:
        """Tells the target of one edge that the job has ended."""
        target, join = self._targets[seq], self._joins[seq, edge.join]
        failed, come = parent.state != State.COMPLETED.value, await_join(edge.join)
        join[0] -= 1
        join[1] += failed
        self._changed.add((seq, edge.join))
        if failed and target.waits and edge.on_failure is not OnFailure.RUN:
            target.ended_by = (parent, edge.on_failure)
            self._ends(seq, State.CANCELED if edge.on_failure is OnFailure.SKIP else State.FAILED)
        elif join == [0, 0] and awaits == ENDS_WITH_PARENTS and not edge.join:
            target.completed = True
            self._ends(seq, State.COMPLETED)
        elif join[0] == 0 and come in (awaits, _AWAITED.get(awaits)):
            target.come = come

    def _ends(self, seq: int, state: State) -> None:
        """The edges of a target that ends are followed as well."""
        target = self._targets[seq]
        if target.edges is not None:
            parent = _Parent(seq, target.tenant, target.id, state.value)
            self._queue(_Part(parent, None, target.edges))

    # -- writing -----------------------------------------------------------------------------------

    async def _write(self) -> None:
        step = self._step
        await self._write_joins()
        targets = self._targets.items()
        changed = [seq for seq, each in targets if each.come is not None or each.has_ended]
        rows = await step.lock_seqs(changed) if changed else {}
        written = [rows[seq] for seq in changed if seq in rows and self._change(rows[seq])]
        taken = list(self._taken.values())
        step.followed = {each.parent.seq: each.followed for each in taken if each.number is None}
        await step.write(written)
        noted = [
            ((each.parent.tenant, each.parent.seq, each.number), each.followed, len(each.edges))
            for each in taken
            if each.number is not None and each.followed
        ]
        if done := [key for key, followed, number in noted if followed == number]:
            await step.run(sql.RELEASING_DROP, *columns(done))
        if begun := [(*key, followed) for key, followed, number in noted if followed < number]:
            await step.run(sql.RELEASING_CUT, *columns(begun))
        await step.flush()
        step.awaited.clear()
        step.completed.clear()  # The rest is for claims.

    async def _write_joins(self) -> None:
        joins = [(*key, *self._joins[key]) for key in sorted(self._changed)]
        if named := [each for each in joins if each[1]]:
            await self._step.run(sql.JOINS_SAVE, *columns(named))
        if parents := [(seq, due, failed) for seq, name, due, failed in joins if not name]:
            await self._step.run(sql.PARENTS_SAVE, *columns(parents))

    def _change(self, row: Row) -> bool:
        """Applies what has come to a job; whether that changes it."""
        target = self._targets[row.seq]
        if target.ended_by is not None:
            _end(self._step, row, *target.ended_by)
            return True
        if target.completed:
            row.state, row.awaits = State.COMPLETED, None
            self._step.record(EventKind.COMPLETED, row)
            return True
        if row.awaits == ENDS_WITH_PARENTS:
            row.awaits = AWAITS_PARENTS  # One of them has not completed.
        return target.come is not None and make_ready(self._step, row, target.come)


def make_ready(step: Step, row: Row, come: str) -> bool:
    """Makes a job ready if it awaits this, which has come; whether it did. The caller writes it."""
    if row.awaits != come or row.state not in AWAITING:
        return False
    if row.state is State.SCHEDULED:
        row.run_at = min(row.run_at, step.now)
    row.state, row.awaits = due_state(row.run_at, step.now), None
    step.record(EventKind.READY, row, row.run_at if row.run_at > step.now else None, come)
    return True


def _end(step: Step, row: Row, parent: _Parent, how: OnFailure) -> None:
    """Ends a waiting job because of a parent that has not completed."""
    assert row.state not in TERMINAL, "it is locked"
    why = f"its parent {parent.id} {_WORDS.get(parent.state, 'was deleted')}"
    row.error, row.awaits, row.finished_at = why, None, step.now
    if how is OnFailure.SKIP:
        row.state = State.CANCELED
        kind, note = EventKind.CANCELED, why
    else:
        row.state, row.reason = State.FAILED, Reason.PARENT_FAILED
        kind, note = EventKind.FAILED, f"{row.reason.value}: {why}"
    step.record(kind, row, text=note)
