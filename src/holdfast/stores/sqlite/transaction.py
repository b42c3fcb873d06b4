"""What the calls of one transaction share: the time, counters, counts and events to write."""

from __future__ import annotations

import sqlite3

from holdfast.core.clock import Micros
from holdfast.core.job import EventKind
from holdfast.core.scope import Scope, platform_scopes
from holdfast.store import Ref
from holdfast.stores.notifier import Line
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import events
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import insert_rows
from holdfast.stores.sqlite.migrate import check_version
from holdfast.stores.sqlite.rows import Parent
from holdfast.stores.sqlite.scope_cache import ScopeCache

Name = tuple[str, str, str, str]
"""(tenant, id, queue, type)"""

Where = tuple[str, str, str | None]
"""(tenant, queue, group)"""

Move = tuple[Where, str | None, str | None, int, int, str | None]
"""(where, place before, place after, jobs, bytes, job type); a place is a state or BLOCKED, None is
nowhere. The type is named where a job may start or end.
"""

Group = tuple[str, str]
"""(tenant, group)"""

Counters = tuple[int, int, int, int]
"""(seq, cursor, scopes, turn) of the table `counters`."""

Mark = tuple[Counters, tuple[int, int, int], set[str], set[Line], set[Group], dict[Scope, int]]

_AT = {name: index for index, name in enumerate(scope_sql.SUMMED)}
_ENQUEUED, _BYTES, _BLOCKED = _AT["enqueued"], _AT["bytes"], _AT["blocked"]
_PROCESSING = _AT["processing"]
_COLUMN = {**_AT, BLOCKED: _ENQUEUED}
_IN_LINE = frozenset({"enqueued", BLOCKED})

Rows = dict[tuple[str, str, str], list[int]]
"""(kind, tenant, part) -> what is added to the numbers of its row of counts"""


COUNTERS_AHEAD = 100
"""By how much the stored counters are ahead, so that most small transactions need not save them. A
process that dies, or another that writes in between, leaves a gap of at most this many numbers.
"""


class LastCommit:
    """What the last commit of a connection left, so that its next transaction need not read it.

    It holds as long as no other connection commits. `PRAGMA data_version` tells that: its value
    changes with each commit of another connection, and with none of this one.
    """

    def __init__(self, ahead: int = COUNTERS_AHEAD) -> None:
        self._ahead = ahead
        self.counters: Counters = (0, 0, 0, 0)
        self.part_counts: dict[str, tuple[int, int]] = {}
        """Tenant -> the most queues and groups that it can have: see `limits_caps.Caps`."""
        self._stored: Counters = (0, 0, 0, 0)
        """The counters as the database has them."""
        self._version: int | None = None
        """The data version of the present or the last transaction."""
        self._committed = False
        """Whether that transaction was committed; then the rest need not be read."""

    def sync(self, connection: sqlite3.Connection, path: str) -> None:
        """Begins a transaction: reads what may have changed, and refuses another schema."""
        (found,) = connection.execute("PRAGMA data_version").fetchone()
        changed = found != self._version
        if changed or not self._committed:
            check_version(connection, path)
            self._stored = connection.execute(sql.COUNTERS).fetchone()
            self.part_counts.clear()
        if changed:
            self.counters = self._stored
        self._version, self._committed = found, False

    def save(self, connection: sqlite3.Connection, counters: Counters) -> None:
        """Stores the counters of the present transaction, if they are past the stored ones."""
        seq, cursor, scopes, turn = counters
        stored_seq, stored_cursor, stored_scopes, stored_turn = self._stored
        enough = seq <= stored_seq and cursor <= stored_cursor and turn <= stored_turn
        if not enough or scopes != stored_scopes:
            ahead = self._ahead
            self._stored = (seq + ahead, cursor + ahead, scopes, turn + ahead)
            connection.execute(sql.COUNTERS_SAVE, self._stored)

    def keep(self, counters: Counters) -> None:
        """Called after the commit."""
        self.counters = counters
        self._committed = True


class Transaction:
    """One write transaction. `now` is read once for each call in it."""

    __slots__ = (
        "_alive",
        "_head",
        "_last",
        "_moved",
        "_moves",
        "_on",
        "_runs",
        "_written",
        "connection",
        "cursor",
        "ended_jobs",
        "execute",
        "full_until",
        "groups_to_check",
        "lines_to_check",
        "now",
        "parents",
        "part_counts",
        "platform_to_check",
        "ready_lines",
        "scope_cache",
        "scopes_version",
        "seq",
        "signed",
        "tenants_to_check",
        "turn",
        "wake_all",
    )

    def __init__(
        self,
        connection: sqlite3.Connection,
        events_on: bool,
        scope_cache: ScopeCache,
        last: LastCommit,
    ) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.now: Micros = 0
        self.seq: int
        self.cursor: int
        self.scopes_version: int
        self.turn: int
        self.seq, self.cursor, self.scopes_version, self.turn = last.counters
        self.part_counts = last.part_counts
        self._last = last
        self.scope_cache = scope_cache
        scope_cache.sync(connection, self.scopes_version)
        self._runs: list[events.Run] = []
        """The events to write."""
        self._head: events.Head | None = None
        """What the events of the last run share, if the present call began the run."""
        self.ready_lines: set[Line] = set()
        """Lines that may have jobs to claim now; their sleepers are woken."""
        self.ended_jobs: list[Ref] = []
        self.parents: list[Parent] = []
        """Jobs with edges that the present call has ended; it follows these before it ends."""
        self.wake_all = False
        self.full_until: Micros | None = None
        """Until when the last claim left the whole store full; None if it has room."""
        """More lines than can be named may have jobs to claim."""
        self.signed: str | None = None
        """Who made the present call, and why, for its events."""
        self.tenants_to_check: set[str] = set()
        """Tenants with limits whose room may have changed: see `limits.apply_limits`."""
        self.lines_to_check: set[Line] = set()
        """Lines of such tenants whose room may have changed."""
        self.groups_to_check: set[Group] = set()
        """Groups that may have room for more."""
        self.platform_to_check: dict[Scope, int] = {}
        """Scopes of the platform whose room may have changed, and how many more jobs they run."""
        self._moves: list[Move] = []
        self._written = 0
        """How many of the moves are in the counts table already."""
        self._moved: set[str] = set()
        """The tenants of the moves that are not."""
        self._alive: dict[Group, int] = {}
        """Jobs that have not ended, of groups of which the present call ends jobs."""
        self._on = events_on

    def record_event(
        self,
        kind: EventKind,
        job: Name,
        attempt: int,
        fence: int,
        *,
        until: Micros | None = None,
        text: str | None = None,
    ) -> None:
        """Records an event; events are written in the order of these calls."""
        if self._on:
            tenant, id, queue, type = job
            of = (tenant, queue, type)
            head = (self.now, kind._value_, *of, attempt, fence, until, text, self.signed)
            if head == self._head:
                self._runs[-1][1].append(id)
            else:
                self._runs.append((head, [id]))
                self._head = head

    def record_events(
        self,
        kind: EventKind,
        of: tuple[str, str, str],
        ids: list[str],
        attempt: int,
        fence: int,
        *,
        until: Micros | None = None,
        text: str | None = None,
    ) -> None:
        """Records an event of several jobs of this tenant, queue and type."""
        if not self._on:
            return
        head = (self.now, kind._value_, *of, attempt, fence, until, text, self.signed)
        if head == self._head:
            self._runs[-1][1].extend(ids)
        else:
            self._runs.append((head, ids))
            self._head = head

    # -- counts ----------------------------------------------------------------------------------

    def count_move(
        self,
        at: Where,
        before: str | None,
        after: str | None,
        number: int = 1,
        size: int = 0,
        *,
        type: str | None = None,
    ) -> None:
        """Counts jobs that went from one place to another; `size` is by how much the bytes of the
        tenant grow. Jobs that start or end have a type.
        """
        if before != after or size:
            self._moves.append((at, before, after, number, size, type))
            self._moved.add(at[0])

    def write_counts(self, of: str | None = None) -> None:
        """Writes the moves into the counts table, if one of them is of this tenant (None: any).

        A claim reads the counts of each tenant that it visits; it must not write those of others.
        """
        if self._written == len(self._moves) or not (of is None or of in self._moved):
            return
        sums: dict[tuple[Where, str | None, str | None], int] = {}
        rows: Rows = {}
        running: dict[tuple[str, str], int] = {}
        platform = self.scope_cache.platform
        for at, before, after, number, size, type in self._moves[self._written :]:
            if size:
                _row(rows, ("tenant", at[0], ""))[_BYTES] += size
            if before == after:
                continue
            way = (at, before, after)
            sums[way] = sums.get(way, 0) + number
            if type is not None and platform:
                more = number * ((after == "processing") - (before == "processing"))
                running[at[1], type] = running.get((at[1], type), 0) + more
        for (queue, type), more in running.items():
            self._count_running(rows, queue, type, more)
        for ((tenant, queue, group), before, after), number in sums.items():
            self._check_later(tenant, queue, group)
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
        turns = range(self.turn + 1, self.turn + len(rows) + 1)
        added = [
            (*scope, turn, *numbers)
            for turn, (scope, numbers) in zip(turns, rows.items(), strict=True)
        ]
        self.turn += len(rows)
        insert_rows(self.connection, scope_sql.COUNT_ADD, added)
        self._written = len(self._moves)
        self._moved.clear()

    def _count_running(self, rows: Rows, queue: str, type: str, more: int) -> None:
        """Counts jobs that start or end, in those of the platform's scopes that have settings."""
        for scope in platform_scopes(queue, type):
            if more and scope in self.scope_cache.platform:
                _row(rows, (scope.kind.value, "", scope.part))[_PROCESSING] += more
                self.platform_to_check[scope] = self.platform_to_check.get(scope, 0) + more

    def _check_later(self, tenant: str, queue: str, group: str | None) -> None:
        if self.scope_cache.limited(tenant):
            self.tenants_to_check.add(tenant)
            self.lines_to_check.add((tenant, queue))
            if group is not None and self.scope_cache.grouping(tenant):
                self.groups_to_check.add((tenant, group))

    def group_drained(self, tenant: str, group: str | None) -> bool:
        """True when the job that was counted as ended just now was the last of its group to end."""
        if group is None or not self._on:
            return False
        left = self._alive.get((tenant, group))
        if left is None:
            self.write_counts()
            found = self.execute(scope_sql.ALIVE, ("group", tenant, group)).fetchone()
            left = found[0] if found is not None else 0
        else:
            left -= 1
        self._alive[tenant, group] = left
        return left == 0

    @property
    def pending(self) -> int:
        """How many moves are not in the counts table yet."""
        return len(self._moves) - self._written

    # -- calls -----------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """What `forget` needs to undo a failed call. Lines to wake may stay: they are hints."""
        self._alive.clear()
        self._head = self.signed = None
        lengths = (len(self._runs), len(self._moves), self._written)
        return (
            self.counters,
            lengths,
            set(self.tenants_to_check),
            set(self.lines_to_check),
            set(self.groups_to_check),
            dict(self.platform_to_check),
        )

    def forget(self, mark: Mark) -> None:
        scopes = self.scopes_version
        self.parents.clear()
        (
            counters,
            (runs, moves, settled),
            self.tenants_to_check,
            self.lines_to_check,
            self.groups_to_check,
            self.platform_to_check,
        ) = mark
        self.seq, self.cursor, self.scopes_version, self.turn = counters
        del self._runs[runs:]
        del self._moves[moves:]
        self._written = settled  # What the call wrote of them was rolled back with it.
        self._moved = {at[0] for at, *_ in self._moves[settled:]}
        if scopes != self.scopes_version:
            self.scope_cache.clear()
            self.scope_cache.sync(self.connection, self.scopes_version)

    @property
    def counters(self) -> Counters:
        return self.seq, self.cursor, self.scopes_version, self.turn

    def flush(self) -> None:
        """Writes what was collected; the commit follows."""
        if self._runs:
            self.cursor = events.write_events(self.connection, self._runs, self.cursor)
        self.write_counts()
        self._last.save(self.connection, self.counters)


def _row(rows: Rows, scope: tuple[str, str, str]) -> list[int]:
    row = rows.get(scope)
    if row is None:
        row = rows[scope] = [0] * len(scope_sql.SUMMED)
    return row
