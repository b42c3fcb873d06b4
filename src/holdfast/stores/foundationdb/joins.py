"""Joins: what the end of a job does to the jobs that await it.

A step that ends jobs with edges follows up to RELEASE_MAX of these edges, tenants in turn, those of
jobs that end because of a parent included, as far as one transaction can. The jobs that are left
over are written to RELEASING, and each of the next claims follows as many edges of theirs.
"""

from __future__ import annotations

import random
from collections import deque
from time import monotonic

from holdfast.core.bounds import RELEASE_MAX
from holdfast.core.job import TERMINAL, EventKind, Reason, State
from holdfast.core.journal import (
    AWAITS_PARENTS,
    ENDS_WITH_PARENTS,
    Edge,
    EntryKind,
    OnFailure,
    await_join,
)
from holdfast.core.lifecycle import due_state
from holdfast.stores.foundationdb import limits_groups
from holdfast.stores.foundationdb.joins_edges import ask_edges, read_edges, releasing_key
from holdfast.stores.foundationdb.journal import (
    FAILED,
    StoredJoin,
    entry_key,
    read_join,
)
from holdfast.stores.foundationdb.layout import (
    EDGES_PART,
    STEP_BYTES_MAX,
    Space,
    after,
    seq_bytes,
    text,
    texts,
    whole,
)
from holdfast.stores.foundationdb.rows import AWAITING, Row, pack
from holdfast.stores.foundationdb.rows_parent import Parent, parent_of
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.step_ends import finish, requeue

SHARE = EDGES_PART
"""Edges that the jobs of one tenant follow in its turn."""
RELEASE_S = 1.5
"""How long one step follows edges: a chain asks for each of its jobs after the one before."""

_ENDED = {
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELED: "was canceled",
}
_chance = random.Random()

Portion = tuple[Parent, int]
"""A job, and up to which of its edges they are followed next."""


def left_key(step: Step) -> bytes:
    """The key that says that edges are left."""
    return step.keys.all(Space.REOPEN, whole(0))


async def release(step: Step) -> None:
    """Follows the edges of the jobs that this step has ended."""
    if step.parents:
        await _Release(step).run()


class Releases:
    """Where one store goes on to follow edges that earlier steps have left."""

    def __init__(self) -> None:
        self._tenant = ""

    async def run(self, step: Step) -> None:
        """Follows up to RELEASE_MAX of them, of the next tenants that have some."""
        if await step.get(left_key(step), snapshot=True) is None:
            return
        names = await self._next(step)
        share = RELEASE_MAX // max(1, len(names))
        stored: dict[bytes, int] = {}
        for name in names:
            prefix = step.keys.all(Space.RELEASING, text(name))
            for key, value in await step.under(prefix, share, snapshot=True):
                parent = parent_of(value)
                if parent is None:
                    step.drop(key)  # Nobody can say how far it was followed.
                else:
                    stored[key] = parent.followed
                    step.parents.append(parent)
        await step.settings.load(names)
        await _Release(step, stored).run()
        await self._conclude(step)
        await limits_groups.reopen_freed(step)
        self._tenant = names[-1] if names else ""

    async def _next(self, step: Step) -> list[str]:
        """The tenants whose turn is next."""
        prefix, names = step.keys.all(Space.RELEASING), list[str]()
        begin, end = after(prefix + text(self._tenant)), after(prefix)
        while len(names) < RELEASE_MAX // SHARE:
            found = await step.range(begin, end, 1, snapshot=True)
            if found:
                [name] = texts(found[0][0][len(prefix) :], 1)
                names.append(name)
                begin = after(prefix + text(name))
            elif end == after(prefix) and self._tenant:
                begin, end = prefix, after(prefix + text(self._tenant))
            else:
                break
        return names

    async def _conclude(self, step: Step) -> None:
        """Notes that no edges are left, if so."""
        prefix = step.keys.all(Space.RELEASING)
        if not await step.under(prefix, 1, snapshot=True):
            step.tr.add_read_conflict_range(prefix, after(prefix))
            step.drop(left_key(step))


class _Release:
    """What one step follows, and what it leaves."""

    def __init__(self, step: Step, stored: dict[bytes, int] | None = None) -> None:
        self._step = step
        self._stored = stored or {}
        """Keys of jobs that are in RELEASING, and how far these were followed."""
        self._turns: dict[str, deque[Parent]] = {}
        """Tenants with edges to follow, in turn."""

    async def run(self) -> None:
        # A step that others beat again and again has a better chance with less to do.
        left = max(SHARE, RELEASE_MAX >> self._step.tries)
        ends = monotonic() + RELEASE_S
        while self._queue() and left > 0:
            if monotonic() >= ends or self._step.bytes >= STEP_BYTES_MAX:
                break
            portions = self._next(left)
            left -= sum(end - parent.followed for parent, end in portions)
            await self._follow(portions)
        self._leave()

    def _queue(self) -> bool:
        """Queues the jobs that have just ended; whether there are edges to follow."""
        for parent in self._step.parents:
            self._turns.setdefault(parent.tenant, deque()).append(parent)
        self._step.parents.clear()
        return bool(self._turns)

    def _next(self, most: int) -> list[Portion]:
        """A turn of each tenant, of up to so many edges together."""
        portions: list[Portion] = []
        for tenant in list(self._turns):
            room = min(SHARE, most)
            parents = self._turns.pop(tenant)
            while parents and room > 0:
                parent = parents[0]
                number = min(room, parent.edges - parent.followed)
                portions.append((parent, parent.followed + number))
                room -= number
                most -= number
                if parent.followed + number < parent.edges:
                    break
                parents.popleft()
            if parents:
                self._turns[tenant] = parents
        return portions

    async def _follow(self, portions: list[Portion]) -> None:
        """Tells the targets of these edges that the jobs have ended."""
        step = self._step
        for parent, end in portions:
            if (key := releasing_key(step, parent)) in self._stored:
                step.tr.add_read_conflict_key(key)  # Of two steps that follow it one fails.
            ask_edges(step, parent, parent.followed, end)
        edges: list[tuple[Parent, Edge]] = []
        for parent, end in portions:
            found = await read_edges(step, parent, parent.followed, end)
            edges += [(parent, edge) for edge in found]
        targets = _Targets(step)
        await targets.read(edges)
        for parent, edge in edges:
            await targets.tell(parent, edge)
        for parent, end in portions:
            parent.followed = end
            if end == parent.edges:
                self._done(parent)

    def _done(self, parent: Parent) -> None:
        key = releasing_key(self._step, parent)
        if key in self._stored:
            self._step.drop(key)
        if parent.gone and not parent.few:
            self._step.clear_under(self._step.keys.edges(parent.tenant, parent.seq))

    def _leave(self) -> None:
        """Writes what is not followed yet. The next claims go on with it."""
        step = self._step
        for parents in self._turns.values():
            for parent in parents:
                key = releasing_key(step, parent)
                if self._stored.get(key) != parent.followed:
                    step.put(key, pack(parent))
                step.lines.add((parent.tenant, parent.queue))
        if self._turns:
            step.put(left_key(step), b"")
            step.wakes_all = True


class _Targets:
    """The jobs to which edges lead, as those followed so far have left them."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._rows: dict[tuple[str, str], Row | None] = {}
        self._joins: dict[tuple[str, str, str], StoredJoin | None] = {}

    async def read(self, edges: list[tuple[Parent, Edge]]) -> None:
        """Reads the targets of these edges, by snapshot."""
        step = self._step
        names = list(dict.fromkeys((parent.tenant, edge.target) for parent, edge in edges))
        asked = dict.fromkeys((parent.tenant, edge.target, edge.join) for parent, edge in edges)
        step.ask_rows(names)
        for tenant, id, join in asked:
            step.ask_under(entry_key(step, (tenant, id), (EntryKind.JOIN, join)), 0)
        self._rows = dict(zip(names, await step.peek(names), strict=True))
        for tenant, id, join in asked:
            row = self._rows[tenant, id]
            lives = row is not None and row.alive and row.journal is not None
            found = await read_join(step, (tenant, id), join) if lives else None
            self._joins[tenant, id, join] = found

    async def tell(self, parent: Parent, edge: Edge) -> None:
        """Tells the target of an edge that the job has ended."""
        name = parent.tenant, edge.target
        target, join = self._rows[name], self._joins[*name, edge.join]
        if target is None or join is None or target.state in TERMINAL:
            return
        failed = parent.state is not State.COMPLETED
        if not _count(self._step, join, failed):
            return
        ends = failed and target.state is State.WAITING and edge.on_failure is not OnFailure.RUN
        if not (ends or join.complete):
            return
        # Only now with a conflict range: many may count in a join at once.
        row = self._rows[name] = await self._step.row(*name)
        if row is None:
            return
        if ends:
            await _end(self._step, row, parent, edge.on_failure)
        elif row.awaits == ENDS_WITH_PARENTS and not edge.join:
            await _end_with_parents(self._step, row, join)
        else:
            make_ready(self._step, row, await_join(edge.join))


def _count(step: Step, join: StoredJoin, failed: bool) -> bool:
    """Counts an end in a join; whether it awaited one."""
    if join.parts:
        if not join.shares:
            return False  # Its parts cannot be read.
        part = join.chosen = join.chosen or _chance.choice(list(join.shares))
        step.tr.add_read_conflict_key(part)
        join.shares[part] -= 1
        if join.shares[part] > 0:
            step.put(part, seq_bytes(join.shares[part]))
        else:
            step.drop(part)
            del join.shares[part]
            join.chosen = None
            if join.shares:
                # Of the steps that empty the last parts at once, one conflicts, and sees the others
                # when it is repeated: whatever it takes for a witness, another has emptied.
                step.tr.add_read_conflict_key(_chance.choice(list(join.shares)))
            else:
                join.parts = 0
                _write(step, join)
    elif join.left:
        join.left -= 1
        _write(step, join)
    else:
        return False
    if failed:
        join.failed += 1
        step.add(join.key + FAILED, 1)
    return True


def _write(step: Step, join: StoredJoin) -> None:
    step.tr.add_read_conflict_key(join.key)
    step.put(join.key, join.value)


async def _end_with_parents(step: Step, row: Row, parents: StoredJoin) -> None:
    """Completes a job whose parents have; makes it ready if one of them has not.

    Failures are counted without conflicts, but each was committed with an end of the join, and the
    step that completes the join has read all of these.
    """
    if parents.failed:
        row.awaits = AWAITS_PARENTS
        make_ready(step, row, AWAITS_PARENTS)
        return
    row.state, row.awaits, row.updated_at = State.COMPLETED, None, step.now
    await finish(step, row)
    step.note(EventKind.COMPLETED, row)


def make_ready(step: Step, row: Row, come: str) -> bool:
    """Makes a job ready that awaits this, which has come; whether it did."""
    if row.awaits != come or row.state not in AWAITING:
        return False
    if row.state is State.SCHEDULED:
        row.run_at = min(row.run_at, step.now)
    row.state, row.awaits = due_state(row.run_at, step.now), None
    row.updated_at = step.now
    requeue(step, row)
    step.note(EventKind.READY, row, row.run_at if row.run_at > step.now else None, come)
    return True


async def _end(step: Step, row: Row, parent: Parent, how: OnFailure) -> None:
    """Ends a waiting job because of a parent that has not completed."""
    why = f"its parent {parent.id} {_ENDED.get(parent.state, 'was deleted')}"
    row.updated_at = step.now
    row.error, row.awaits = why, None
    if how is OnFailure.SKIP:
        row.state = State.CANCELED
        kind, note = EventKind.CANCELED, why
    else:
        row.state, row.reason = State.FAILED, Reason.PARENT_FAILED
        kind, note = EventKind.FAILED, f"{row.reason.value}: {why}"
    await finish(step, row)
    step.note(kind, row, note=note)
