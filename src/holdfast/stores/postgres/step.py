"""One step of a verb on one connection: its instant, and what it must count, record and notify.

The busy verbs do all that inside the server; this is for what Python's rules decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, EventKind, State
from holdfast.core.scope import Scope, ScopeKind
from holdfast.store import Ref
from holdfast.stores.notifier import Line
from holdfast.stores.postgres import journal_statements
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.connection import Connection
from holdfast.stores.postgres.rows import Parent, Row, asked, plain
from holdfast.stores.sql_rows import BLOCKED, Columns

STATEMENTS_MAX = 1024
GATE_DUE, GATE_PARENTS = 2, 4
"""Of a job that waits for its instant, or for its parents; layout.py has the other gates."""

ANY_LINE: Line = ("", "")
"""What the server names where work may have come up anywhere."""

Where = tuple[str, str, str | None, str | None]
"""(tenant, queue, group, the type of jobs that start or end to run)"""

EventRow = tuple[str, str, str, str, str, int, int, Micros | None, str | None]

_AT = {name: index for index, name in enumerate((*sql.STATE_COLUMNS, BLOCKED, "bytes"))}
_ENQUEUED, _BLOCKED, _BYTES = _AT["enqueued"], _AT[BLOCKED], _AT["bytes"]


@lru_cache(STATEMENTS_MAX)
def named(statement: str, schema: str) -> str:
    """The statement with the schema that the URL names."""
    return statement.replace("holdfast.", f'"{schema}".')


def columns(rows: Sequence[Columns]) -> list[list[Any]]:
    """Rows as the arrays of their columns."""
    return [list(column) for column in zip(*rows, strict=True)]


class _First:
    """Of the jobs that moved: the first rank and sequence of those that entered their line, and
    when the first of the others is due.
    """

    def __init__(self) -> None:
        self.rank: int | None = None
        self.seq: int | None = None
        self.due: Micros | None = None

    def enters(self, rank: int, seq: int) -> None:
        self.rank = rank if self.rank is None else min(rank, self.rank)
        self.seq = seq if self.seq is None else min(seq, self.seq)

    def comes_due(self, at: Micros) -> None:
        self.due = at if self.due is None else min(at, self.due)

    def values(self) -> tuple[int | None, int | None, Micros | None]:
        return self.rank, self.seq, self.due


class Step:
    def __init__(
        self,
        connection: Connection,
        schema: str,
        now: Micros | None,
        events: bool,
        again: bool = False,
    ) -> None:
        self.connection = connection
        self.schema = schema
        self.given = now
        """The caller's instant; None in production, where the server's clock decides."""
        self.now: Micros = 0
        """Set by `begin`."""
        self.events_on = events
        self.again = again
        """An earlier try of the same call may have been done, unheard."""
        self.channel: str | None = None
        """By which other processes are notified, and who notifies them."""
        self.sender = ""
        self.by: str | None = None
        """Who wanted it, and why, for its events."""
        self.lines: set[Line] = set()
        """Where work may have come up."""
        self.wakes_all = False
        """Work may have come up anywhere: under a limit of the platform there is room."""
        self.ended: list[Ref] = []
        self.parents: list[Parent] = []
        """Jobs that have ended, whose edges have to be followed; `flush` stores them."""
        self.awaited: set[str] = set()
        """Tenants with edges that the call follows when this step is done."""
        self._events: list[EventRow] = []
        self._ended_rows: list[Row] = []
        self._moves: dict[Where, list[int]] = {}
        self._grown: dict[Where, int] = {}
        self._firsts: dict[Where, _First] = {}
        self._grouped: dict[str, bool] = {}
        self._announced = False

    async def begin(self) -> None:
        self.now = await self.value(sql.NOW, self.given)

    async def rows(self, statement: str, *values: Any) -> list[Columns]:
        return await self.connection.fetch(named(statement, self.schema), *values)

    async def row(self, statement: str, *values: Any) -> Columns | None:
        return await self.connection.fetchrow(named(statement, self.schema), *values)

    async def value(self, statement: str, *values: Any) -> Any:
        return await self.connection.fetchval(named(statement, self.schema), *values)

    async def run(self, statement: str, *values: Any) -> None:
        await self.connection.execute(named(statement, self.schema), *values)

    async def announce(self) -> None:
        """Must come before the first event or delta of the transaction."""
        if not self._announced:
            self._announced = True
            await self.run(sql.ANNOUNCE)

    # -- rows ------------------------------------------------------------------------------------

    async def lock_jobs(self, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Row]:
        """The jobs of these names; those that have not ended are locked until the step's end."""
        names = list(names)
        tenants, ids = [asked(tenant) for tenant, _ in names], [asked(id) for _, id in names]
        found = {(row.tenant, row.id): row for row in await self._read(sql.LOCK_LIVE, tenants, ids)}
        if len(found) < len(set(zip(tenants, ids, strict=True))):
            # Read last: a job that ended while we waited for its lock is there by now.
            for row in await self._read(sql.READ_DONE, tenants, ids):
                found.setdefault((row.tenant, row.id), row)
        return found

    async def _read(self, statement: str, tenants: list[str], ids: list[str]) -> list[Row]:
        return [Row(one) for one in await self.rows(statement, tenants, ids)]

    async def read_job(self, ref: Ref) -> Row | None:
        """A job, ended or not; locks nothing."""
        for statement in (sql.READ_LIVE, sql.READ_DONE):
            for row in await self._read(statement, [asked(ref.tenant)], [asked(ref.id)]):
                return row
        return None

    async def lock_seqs(self, seqs: list[int]) -> dict[int, Row]:
        """Those of these jobs that have not ended, by sequence."""
        return {row.seq: row for row in map(Row, await self.rows(sql.LOCK_SEQS, seqs))}

    async def write(self, rows: Sequence[Row]) -> None:
        """Writes changed jobs of the table of the living; what has ended goes to the history, or
        away if nothing of it is kept.
        """
        kept: list[Row] = []
        ended: list[Row] = []
        gone: list[int] = []
        await self.learn({row.tenant for row in rows if row.group is not None})
        for row in rows:
            if row.state not in TERMINAL:
                kept.append(row)
                row.gate = self._gate(row)
                self.move(row, row.place)
                self.lines.add((row.tenant, row.queue))
                continue
            row.finished_at = self.now
            self.ended.append(Ref(row.tenant, row.id))
            if row.edges is not None:
                self.parents.append(row.as_parent)
            # Upkeep looks whether others still need what it has returned.
            if row.keep_until() > self.now or row.edges is not None:
                ended.append(row)
                self.move(row, row.place)
            else:
                gone.append(row.seq)
                self.move(row, None)
        if kept:
            await self.run(sql.SAVE, *_saved(kept), self.now)
        if ended:
            await self.run(sql.FINISH, *_finished(ended), self.now)
        if gone:
            await self.run(sql.REMOVE, gone)
            await self.forget([row for row in rows if row.seq in set(gone)])
        await self.release_keys([row for row in rows if row.state in TERMINAL])

    async def forget(self, rows: Iterable[Row]) -> None:
        """Has upkeep delete what belongs to these jobs, which are deleted."""
        seqs = [row.seq for row in rows if row.journal is not None or row.edges is not None]
        if seqs:
            await self.run(journal_statements.LEFTOVERS_PUT, seqs)

    async def release_keys(self, rows: Iterable[Row]) -> None:
        """Frees the keys of jobs that end or go; timed ones stay until their time."""
        keys = [(r.tenant, r.queue, r.type, r.key, r.id) for r in rows if r.key is not None]
        if keys:
            await self.run(sql.KEYS_RELEASE, *columns(keys), self.now)

    async def learn(self, tenants: set[str]) -> None:
        """Asks which of these tenants have rules for groups; once in a step."""
        asked = [tenant for tenant in tenants if tenant not in self._grouped]
        if asked:
            found = {row[0] for row in await self.rows(sql.GROUPED, asked)}
            self._grouped.update({tenant: tenant in found for tenant in asked})

    def _gate(self, row: Row) -> int:
        if row.state in (State.SCHEDULED, State.RETRYING):
            return GATE_DUE
        if row.state is State.WAITING:
            return GATE_PARENTS
        return int(row.state is State.ENQUEUED and self.gated(row.tenant, row.group))

    def gated(self, tenant: str, group: str | None) -> bool:
        """A job of this group waits before its line until a claim lets it in."""
        return group is not None and self._grouped.get(tenant, False)

    # -- counts and events -----------------------------------------------------------------------

    def move(self, row: Row, after: str | None) -> None:
        """Counts a job that went from where it was to another place; None is nowhere."""
        size = row.size if row.lived and (after is None or row.state in TERMINAL) else 0
        type = row.type if "processing" in (row.was, after) else None
        at = (row.tenant, row.queue, row.group, type)
        self.count(at, row.was, after, size=-size)
        if after in ("scheduled", "retrying"):
            self._first(at).comes_due(row.run_at)
        elif after == "enqueued":
            self.enters_line(at, row.priority, row.seq)

    def count(
        self, at: Where, before: str | None, after: str | None, number: int = 1, size: int = 0
    ) -> None:
        # Also where nothing is added: a claim refreshes the groups that deltas name.
        row = self._moves.setdefault(at, [0] * len(_AT))
        row[_BYTES] += size
        for place, sign in ((before, -number), (after, number)):
            if place is None:
                continue
            row[_ENQUEUED if place == BLOCKED else _AT[place]] += sign
            row[_BLOCKED] += sign if place == BLOCKED else 0

    def grow(self, row: Row, size: int) -> None:
        """Counts bytes that a living job holds besides those it had."""
        at = (row.tenant, row.queue, row.group, None)
        self._grown[at] = self._grown.get(at, 0) + size

    def enters_line(self, at: Where, priority: int, seq: int) -> None:
        """A job has entered its line: claims must start there, or before."""
        self._first(at).enters(-priority, seq)

    def _first(self, at: Where) -> _First:
        return self._firsts.setdefault(at, _First())

    def record(
        self, kind: EventKind, row: Row, until: Micros | None = None, text: str | None = None
    ) -> None:
        """Records an event of a job; the order of the calls is kept."""
        name = (row.tenant, row.id, row.queue, row.type)
        self.add_event(kind, name, (row.attempt, row.fence), until=until, text=plain(text))
        if row.lived and (row.state in TERMINAL or kind is EventKind.DELETED):
            self._ended_rows.append(row)

    def add_event(
        self,
        kind: EventKind,
        name: tuple[str, str, str, str],
        attempt_and_fence: tuple[int, int] = (0, 0),
        *,
        until: Micros | None = None,
        text: str | None = None,
    ) -> None:
        if self.events_on:
            self._events.append((kind.value, *name, *attempt_and_fence, until, text))

    async def flush(self) -> None:
        """Writes the deltas and events that were gathered."""
        if self.parents:
            await self.run(journal_statements.RELEASING_PUT, *columns(self.parents))
            self.awaited |= {parent.tenant for parent in self.parents}
        moved = {at[0] for at in self._moves}
        for at, size in self._grown.items():
            self.count(at, None, None, size=size)
        if self._moves or self._events:
            await self.announce()
        if self._moves:
            deltas = [
                (*at, *numbers, *self._firsts.get(at, _First()).values())
                for at, numbers in self._moves.items()
            ]
            await self.run(sql.DELTAS, *columns(deltas))
        if self._events:
            await self.run(sql.EVENTS_INSERT, self.now, self.by, *columns(self._events))
        grouped = [row for row in self._ended_rows if row.group is not None]
        if grouped and self.events_on:
            ends = [(r.tenant, r.group, r.id, r.queue, r.type, r.attempt, r.fence) for r in grouped]
            await self.run(sql.DRAINED, *columns(ends), self.now)
        tenants = sorted({row.tenant for row in self._ended_rows}.union(moved))
        if tenants:
            await self._lines_of(tenants)

    def came_up(self, lines: Iterable[Line]) -> None:
        """Notes lines that the server named; one without names stands for all."""
        self.lines |= set(lines)
        if ANY_LINE in self.lines:
            self.lines.discard(ANY_LINE)
            self.wakes_all = True

    async def touch(self, scope: Scope) -> None:
        """Has the next claim refresh a scope whose room may have changed by other than jobs."""
        if scope.of_platform:
            self.wakes_all = True
            return
        await self.announce()
        group = scope.part if scope.kind is ScopeKind.GROUP else None
        queue = scope.part if scope.kind is ScopeKind.QUEUE else None
        await self.run(sql.TOUCH, scope.tenant, group, queue)
        await self._lines_of([scope.tenant])

    async def _lines_of(self, tenants: list[str]) -> None:
        """Notes the lines of those tenants that have settings: ended jobs may have made room."""
        found = await self.rows(sql.LINES_WITH_SETTINGS, tenants)
        self.came_up((tenant, queue) for tenant, queue in found)


def _saved(rows: list[Row]) -> list[list[Any]]:
    """The values of `statements.SAVE`, column by column."""
    return columns([
        (
            r.seq, r.state.value, r.priority, r.run_at, r.attempt, r.lapses, r.misses, r.token,
            r.lease_until, None if r.reason is None else r.reason.value, plain(r.error),
            plain(r.progress), r.gate, r.awaits,
        )
        for r in rows
    ])  # fmt: skip


def _finished(rows: list[Row]) -> list[list[Any]]:
    """The values of `statements.FINISH`, column by column."""
    return columns([
        (
            r.seq, r.state.value, r.run_at, r.attempt, r.lapses, r.misses,
            None if r.reason is None else r.reason.value, plain(r.error), plain(r.progress),
            r.result, r.keep_until(),
        )
        for r in rows
    ])  # fmt: skip
