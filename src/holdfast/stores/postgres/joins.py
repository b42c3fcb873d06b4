"""Joins: what the end of a job does to the jobs that await it.

The step that ends a job with edges notes it in the table `releasing`, which no other call waits
for. Then the same call follows up to RELEASE_MAX edges of such jobs of its tenants, in a step of
its own: one call at a time does, and it finds what all others have noted, so that a hundred
thousand ends of one join are added up in few writes. Each claim follows as many of what is left,
tenants in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from holdfast.core.bounds import RELEASE_MAX
from holdfast.core.errors import StoreUnavailable
from holdfast.core.job import TERMINAL, EventKind, Reason, State
from holdfast.core.journal import AWAITS_PARENTS, ENDS_WITH_PARENTS, OnFailure, await_join
from holdfast.core.lifecycle import due_state
from holdfast.stores.postgres import journal_statements as sql
from holdfast.stores.postgres.errors import is_beaten
from holdfast.stores.postgres.journal import how_of
from holdfast.stores.postgres.rows import AWAITING, Parent, Row
from holdfast.stores.postgres.step import Step, columns

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


async def release(step: Step, tenants: Sequence[str], place: str) -> None:
    """Follows edges of ended jobs of these tenants. Raises if somebody is in its way for long: then
    it is for the next claims.
    """
    try:
        await step.run(sql.LOCK, str(WAIT_MS))
        await step.begin()
        await _follow_of(step, tenants[:RELEASE_MAX], sql.TARGETS)
    except Exception as error:
        if is_beaten(error):
            raise StoreUnavailable(
                store=place, why="other calls hold what edges lead to"
            ) from error
        raise


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
    followed = await _Release(step, [Parent(*row) for row in found], targets).run()
    if followed and await step.value(sql.ANY_LEFT):
        step.wakes_all = True  # The next claims go on with it.


class _Target:
    """A job that edges lead to, as those followed so far have left it."""

    def __init__(self, tenant: str, id: str, state: str, edges: int | None) -> None:
        self.tenant, self.id, self.edges = tenant, id, edges
        self.waits = state == State.WAITING.value
        self.ended_by: tuple[Parent, OnFailure] | None = None
        self.come: str | None = None
        """What it awaited, if that has come."""
        self.completed = False
        """It ends with its parents, which have completed."""

    @property
    def has_ended(self) -> bool:
        return self.completed or self.ended_by is not None


class _Release:
    """What one call follows. All that it changes is written at its end."""

    def __init__(self, step: Step, parents: Iterable[Parent], targets: str) -> None:
        self._step, self._query = step, targets
        self._turns: dict[str, deque[Parent]] = {}
        """Tenants with edges to follow, in turn."""
        self._done: list[int] = []
        self._held: dict[int, Parent] = {}
        """Jobs with a target that somebody holds: they are followed up to there."""
        self._targets: dict[int, _Target] = {}
        self._joins: dict[tuple[int, str], list[int]] = {}
        """How many ends each join awaits yet, and how many parents have not completed."""
        self._changed: set[tuple[int, str]] = set()
        for parent in parents:
            self._queue(parent)

    async def run(self) -> bool:
        """Whether it followed any edge."""
        left, moved = RELEASE_MAX, False
        while self._turns and left > 0:
            portions = self._next(left)
            left -= sum(high - parent.followed for parent, high in portions)
            await self._follow(portions)
            moved |= any(
                parent.seq not in self._held or self._held[parent.seq].followed > parent.followed
                for parent, _ in portions
            )
        await self._write()
        return moved

    def _queue(self, parent: Parent) -> None:
        self._turns.setdefault(parent.tenant, deque()).append(parent)

    def _next(self, most: int) -> list[tuple[Parent, int]]:
        """A turn of each tenant: jobs, and up to which of their edges they are followed."""
        portions: list[tuple[Parent, int]] = []
        share = SHARE if len(self._turns) > 1 else most
        for tenant in list(self._turns):
            room = min(share, most)
            most -= room
            parents = self._turns.pop(tenant)
            while parents and room > 0:
                parent = parents.popleft()
                if parent.seq in self._held:
                    continue
                high = min(parent.edges, parent.followed + room)
                room -= high - parent.followed
                portions.append((parent, high))
                if high < parent.edges:
                    parents.appendleft(parent._replace(followed=high))
                else:
                    self._done.append(parent.seq)
            most += room
            if parents:
                self._turns[tenant] = parents
        return portions

    async def _follow(self, portions: list[tuple[Parent, int]]) -> None:
        asked = [(parent.seq, parent.followed, high, parent.tenant) for parent, high in portions]
        for place, number, how, name, seq, *found in await self._step.rows(
            self._query, *columns(asked)
        ):
            parent, _ = portions[place - 1]
            if parent.seq in self._held:
                continue
            if seq is None:
                self._held[parent.seq] = parent._replace(followed=number)
                continue
            state, awaits, id, edges, due, failed = found
            # What was read first counts: the changes since then are not stored yet.
            target = self._targets.setdefault(seq, _Target(parent.tenant, id, state, edges))
            join = self._joins.setdefault((seq, name), [due, failed])
            if not target.has_ended and join[0] > 0:
                self._count(parent, how_of(how), seq, name, awaits)

    def _count(self, parent: Parent, how: OnFailure, seq: int, name: str, awaits: str) -> None:
        """Tells the target of one edge that the job has ended."""
        target, join = self._targets[seq], self._joins[seq, name]
        failed, come = parent.state != State.COMPLETED.value, await_join(name)
        join[0] -= 1
        join[1] += failed
        self._changed.add((seq, name))
        if failed and target.waits and how is not OnFailure.RUN:
            target.ended_by = (parent, how)
            self._ends(seq, State.CANCELED if how is OnFailure.SKIP else State.FAILED)
        elif join == [0, 0] and awaits == ENDS_WITH_PARENTS and not name:
            target.completed = True
            self._ends(seq, State.COMPLETED)
        elif join[0] == 0 and come in (awaits, _AWAITED.get(awaits)):
            target.come = come

    def _ends(self, seq: int, state: State) -> None:
        """The edges of a target that ends are followed as well."""
        target = self._targets[seq]
        if target.edges is not None:
            self._queue(Parent(seq, target.edges, 0, target.tenant, target.id, state.value))

    # -- writing -----------------------------------------------------------------------------------

    async def _write(self) -> None:
        step = self._step
        if self._changed:
            joins = [(*key, *self._joins[key]) for key in sorted(self._changed)]
            await step.run(sql.JOINS_SAVE, *columns(joins))
        targets = self._targets.items()
        changed = [seq for seq, each in targets if each.come is not None or each.has_ended]
        rows = await step.lock_seqs(changed) if changed else {}
        written = [rows[seq] for seq in changed if seq in rows and self._change(rows[seq])]
        await step.write(written)
        rest = (parent for each in self._turns.values() for parent in each)
        step.parents = [each for each in rest if each.seq not in self._held]
        step.parents += self._held.values()
        if done := [seq for seq in self._done if seq not in self._held]:
            await step.run(sql.RELEASING_DROP, done)
        await step.flush()
        step.awaited.clear()  # The rest is for claims.

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


def _end(step: Step, row: Row, parent: Parent, how: OnFailure) -> None:
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
