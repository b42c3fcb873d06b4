"""What the calls of one transaction share: the instant, the counters, the facts to record."""

from __future__ import annotations

import sqlite3

from holdfast.clock import Micros
from holdfast.job import EventKind
from holdfast.store import Ref
from holdfast.stores.bell import Line
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import log
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.rules import Rules

Name = tuple[str, str, str, str]
"""(tenant, id, queue, type)"""

Where = tuple[str, str, str | None]
"""(tenant, queue, group)"""

Move = tuple[Where, str | None, str | None, int, int]
"""(where, place before, place after, jobs, bytes); a place is a state or BLOCKED, None is nowhere.
"""

Group = tuple[str, str]
"""(tenant, group)"""

Mark = tuple[tuple[int, int, int, int], tuple[int, int, int], set[str], set[Line], set[Group]]

_AT = {name: index for index, name in enumerate(sql.SUMMED)}
_ENQUEUED, _BYTES, _BLOCKED = _AT["enqueued"], _AT["bytes"], _AT["blocked"]
_COLUMN = {**_AT, BLOCKED: _ENQUEUED}
_IN_LINE = frozenset({"enqueued", BLOCKED})


class Transaction:
    """One write transaction. `now` is read once for each call in it."""

    __slots__ = (
        "_alive",
        "_head",
        "_moved",
        "_moves",
        "_on",
        "_runs",
        "_settled",
        "connection",
        "cursor",
        "ended",
        "execute",
        "groups",
        "lines",
        "now",
        "rules",
        "scopes",
        "seq",
        "signed",
        "tenants",
        "turn",
        "visits",
        "wakes_all",
    )

    def __init__(self, connection: sqlite3.Connection, events_on: bool, rules: Rules) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.now: Micros = 0
        self.seq: int
        self.cursor: int
        self.scopes: int
        self.turn: int
        self.seq, self.cursor, self.scopes, self.turn = self.execute(sql.HEADS).fetchone()
        self.rules = rules
        rules.sync(connection, self.scopes)
        self._runs: list[log.Run] = []
        """The facts to record."""
        self._head: log.Head | None = None
        """What the last run goes on with, if the present call began it."""
        self.lines: set[Line] = set()
        """Where work may have come up."""
        self.ended: list[Ref] = []
        self.wakes_all = False
        """Work may have come up in more lines than can be named."""
        self.signed: str | None = None
        """Who wanted the present call, and why, for its events."""
        self.tenants: set[str] = set()
        """Tenants with settings that may have to open or close: see `gates.open_up`."""
        self.visits: set[Line] = set()
        """Their lines that may have to."""
        self.groups: set[Group] = set()
        """Groups that may have room for more."""
        self._moves: list[Move] = []
        self._settled = 0
        """How many of the moves are in the counts already."""
        self._moved: set[str] = set()
        """The tenants of the other moves."""
        self._alive: dict[Group, int] = {}
        """Jobs that have not ended, of the groups that the present call ends jobs of."""
        self._on = events_on

    def note(
        self,
        kind: EventKind,
        job: Name,
        attempt: int,
        fence: int,
        *,
        until: Micros | None = None,
        text: str | None = None,
    ) -> None:
        """Records a fact, in the order of the calls."""
        if not self._on:
            return
        tenant, id, queue, type = job
        head = (
            self.now, kind._value_, tenant, queue, type, attempt, fence, until, text, self.signed,
        )  # fmt: skip
        if head != self._head:
            self._runs.append((head, []))
            self._head = head
        self._runs[-1][1].append(id)

    # -- counts ----------------------------------------------------------------------------------

    def move(
        self, at: Where, before: str | None, after: str | None, number: int = 1, size: int = 0
    ) -> None:
        """Counts jobs that went from one place to another; `size` is what the tenant's bytes grow
        by.
        """
        if before != after:
            self._moves.append((at, before, after, number, size))
            self._moved.add(at[0])

    def settle(self, of: str | None = None) -> None:
        """Brings the counts in the database up to date with the moves, if one concerns the tenant
        (None is any): what a claim asks of one must not cost a write for each that it visits.
        """
        if self._settled == len(self._moves) or not (of is None or of in self._moved):
            return
        sums: dict[tuple[Where, str | None, str | None], int] = {}
        rows: dict[tuple[str, str, str], list[int]] = {}
        for at, before, after, number, size in self._moves[self._settled :]:
            way = (at, before, after)
            sums[way] = sums.get(way, 0) + number
            if size:
                _row(rows, ("tenant", at[0], ""))[_BYTES] += size
        for ((tenant, queue, group), before, after), number in sums.items():
            self._look_later(tenant, queue, group)
            row = _row(rows, ("queue", tenant, queue))
            row[_BLOCKED] += number * ((after == BLOCKED) - (before == BLOCKED))
            if before in _IN_LINE and after in _IN_LINE:
                continue
            scopes = [row, _row(rows, ("tenant", tenant, ""))]
            if group is not None:
                scopes.append(_row(rows, ("group", tenant, group)))
            for row in scopes:
                if before is not None:
                    row[_COLUMN[before]] -= number
                if after is not None:
                    row[_COLUMN[after]] += number
        in_line: list[tuple[str | int, ...]] = []
        beside: list[tuple[str | int, ...]] = []
        for turn, (scope, numbers) in enumerate(rows.items(), self.turn + 1):
            written = in_line if numbers[_ENQUEUED] or numbers[_BLOCKED] else beside
            written.append((*scope, turn, *numbers))
        self.turn += len(rows)
        if in_line:
            self.connection.executemany(sql.COUNT_ADD, in_line)
        if beside:
            self.connection.executemany(sql.COUNT_ADD_BESIDE, beside)
        self._settled = len(self._moves)
        self._moved.clear()

    def _look_later(self, tenant: str, queue: str, group: str | None) -> None:
        if tenant in self.rules.tenants:
            self.tenants.add(tenant)
            self.visits.add((tenant, queue))
            if group is not None and tenant in self.rules.grouping:
                self.groups.add((tenant, group))

    def drained(self, tenant: str, group: str | None) -> bool:
        """True when a job's end, counted just now, left its group without a living one."""
        if group is None or not self._on:
            return False
        left = self._alive.get((tenant, group))
        if left is None:
            self.settle()
            found = self.execute(sql.ALIVE, ("group", tenant, group)).fetchone()
            left = found[0] if found is not None else 0
        else:
            left -= 1
        self._alive[tenant, group] = left
        return left == 0

    @property
    def pending(self) -> int:
        """How many moves are not in the counts yet."""
        return len(self._moves) - self._settled

    # -- calls -----------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """What `forget` needs to undo a call that failed. Hints of wake-ups may stay: they are
        only hints.
        """
        self._alive.clear()
        self._head = self.signed = None
        heads = (self.seq, self.cursor, self.scopes, self.turn)
        lengths = (len(self._runs), len(self._moves), self._settled)
        return heads, lengths, set(self.tenants), set(self.visits), set(self.groups)

    def forget(self, mark: Mark) -> None:
        scopes = self.scopes
        heads, (runs, moves, settled), self.tenants, self.visits, self.groups = mark
        self.seq, self.cursor, self.scopes, self.turn = heads
        del self._runs[runs:]
        del self._moves[moves:]
        self._settled = settled  # What the call wrote of them was rolled back with it.
        self._moved = {at[0] for at, *_ in self._moves[settled:]}
        if scopes != self.scopes:
            self.rules.clear()
            self.rules.sync(self.connection, self.scopes)

    def flush(self) -> None:
        """Writes what was gathered; the commit follows."""
        self.cursor = log.write(self.connection, self._runs, self.cursor)
        self.settle()
        self.execute(sql.HEADS_SAVE, (self.seq, self.cursor, self.scopes, self.turn))


def _row(rows: dict[tuple[str, str, str], list[int]], scope: tuple[str, str, str]) -> list[int]:
    row = rows.get(scope)
    if row is None:
        row = rows[scope] = [0] * len(sql.SUMMED)
    return row
