"""What a claim may take at the limits of the platform: shared by weight, tenant by tenant.

Where no scope of the platform has settings, every answer here is "as many as you like".
"""

from __future__ import annotations

from collections import Counter

from holdfast.core.bounds import ASIDE_MAX
from holdfast.core.scope import PLATFORM, Scope, ScopeKind, rounds
from holdfast.store import Claim
from holdfast.stores.memory.fairness import Entry, Names
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.limits import UNLIMITED
from holdfast.stores.memory.rows import Row
from holdfast.stores.notifier import Line


class PlatformRound:
    """The limits of the platform as one claim meets them, round by round."""

    def __init__(self, tables: Tables, claim: Claim) -> None:
        self.tables = tables
        self.claim = claim
        self.limited = bool(tables.limits.platform or tables.platform)
        kinds, aside = tables.limits.platform_kinds, bool(tables.platform)
        self.typed = aside or ScopeKind.TYPE in kinds
        """Whether jobs may have to wait for their types, so that a claim looks at each."""
        self.shared = self.typed or ScopeKind.QUEUE in kinds
        """Whether there may be less room for some jobs than in the store as a whole."""
        self._undivided = None if self.shared else PlatformTurn(self, 1)
        self.aside_left = ASIDE_MAX
        self._weights: list[int] = []
        self._times: dict[Scope, int] = {}

    def room(self, wanted: int) -> int:
        """How many of the jobs wanted the store as a whole has room for."""
        return min(wanted, self.tables.platform_room(PLATFORM)) if self.limited else wanted

    def let_in(self, most: int) -> set[str]:
        """Lets in what waits where there is room now; returns the tenants."""
        if not self.tables.platform:
            return set()
        return _let_in(self.tables, most, self.claim.tenants, self.claim.queues)

    def begin(self, weights: list[int]) -> None:
        """Starts a round of tenants with these weights."""
        self._weights = weights
        self._times.clear()

    def turn(self, weight: int) -> PlatformTurn:
        """The turn of one tenant of the round."""
        return self._undivided or PlatformTurn(self, weight)

    def start(self, number: int) -> None:
        """Counts jobs that start, of the whole store."""
        if self.limited:
            self.tables.limits.start_over_all(PLATFORM, number, self.tables.now)

    def times(self, scope: Scope, room: int) -> int:
        """How many times its weight each tenant may take of a scope's room in this round."""
        times = self._times.get(scope)
        if times is None:
            times = self._times[scope] = rounds(room, self._weights)
        return times


class PlatformTurn:
    """One tenant's turn."""

    def __init__(self, round: PlatformRound, weight: int) -> None:
        self.limited = round.shared
        self.typed = round.typed
        self._round = round
        self._weight = weight
        self._full = False
        self._taken: Counter[Scope] = Counter()
        self._shares: dict[Scope, int] = {}
        """How many jobs of each scope the tenant may take in this round."""

    @property
    def stopped(self) -> bool:
        """Whether a queue or a type that the tenant met has no room left."""
        return self._full or not all(map(self._round.tables.platform_room, self._shares))

    @property
    def has_more(self) -> bool:
        """Whether it took all of a share, so that there may be more for it in the next round."""
        return any(self._taken[scope] >= share for scope, share in self._shares.items())

    def line_room(self, line: Line) -> int:
        """How many jobs of a line may start. Without room in its queue the line is set aside."""
        if not self.limited:
            return UNLIMITED
        scope = Scope("", ScopeKind.QUEUE, line[1])
        room = self._share(scope)
        if room == 0 and self._round.tables.platform_room(scope) == 0:
            _set_line_aside(self._round.tables, line)
        return room

    def allows(self, row: Row, entry: Entry) -> bool:
        """Whether the job may start as far as its type goes: the type has room for it, and no job
        of the line and the type waits before it.
        """
        return not self._is_behind(row, entry) and self._share(_type_of(row)) > 0

    def sets_aside(self, row: Row, entry: Entry) -> bool:
        """Whether the job, which may not start, goes aside. Otherwise its line goes on with it in
        the next round, or in the next claim after ASIDE_MAX jobs.
        """
        has_room = self._round.tables.platform_room(_type_of(row)) > 0
        if self._round.aside_left == 0 or (has_room and not self._is_behind(row, entry)):
            return False
        self._round.aside_left -= 1
        return True

    def _is_behind(self, row: Row, entry: Entry) -> bool:
        platform = self._round.tables.platform
        first = platform.first_aside(row.new.envelope.type, row.line) if platform else None
        return first is not None and first < entry

    def start(self, row: Row) -> None:
        """Counts a job that starts, against its queue and its type and the tenant's shares."""
        tables = self._round.tables
        for scope in tables.limits.platform_scopes(row.line[1], row.new.envelope.type):
            if scope is not PLATFORM:
                self._taken[scope] += 1
                tables.limits.start_over_all(scope, 1, tables.now)

    def _share(self, scope: Scope) -> int:
        """What the tenant may still take of a scope's room in this round."""
        room = self._round.tables.platform_room(scope)
        if room == UNLIMITED:
            return room
        if room == 0:
            self._full = True
            return 0
        share = self._shares.get(scope)
        if share is None:
            share = self._shares[scope] = self._weight * self._round.times(scope, room)
        return max(0, min(room, share - self._taken[scope]))


def _type_of(row: Row) -> Scope:
    return Scope("", ScopeKind.TYPE, row.new.envelope.type)


# -- aside, and back -------------------------------------------------------------------------------


def has_room(tables: Tables, tenants: Names, queues: Names) -> bool:
    """Whether a claim may let in what waits at a limit of the platform. Changes nothing."""
    return any(
        tables.limits.platform_room(scope, tables.now) > 0
        and tables.platform.any(scope, tenants, queues)
        for scope in tables.platform.scopes(queues)
    )


def set_job_aside(tables: Tables, row: Row, entry: Entry) -> None:
    """Its type has no room: the job waits for it, and others of its group may go first."""
    turn = tables.lines.turn_of(row.line[0])
    tables.platform.set_job_aside(row.new.envelope.type, row.line, turn, entry)
    if row.group is not None:
        tables.ungrant(row, row.group)
        tables.grant(row.group, row.new.queue)


def _set_line_aside(tables: Tables, line: Line) -> None:
    """Its queue has no room over all tenants: the line waits for it with its tenant's turn."""
    tables.platform.set_line_aside(line, tables.lines.turn_of(line[0]))
    tables.lines.rest(line, keep=True)


def _let_in(tables: Tables, most: int, tenants: Names, queues: Names) -> set[str]:
    """Lets in what waits at limits of the platform that have room by now, enough for a claim of so
    many jobs. Returns the tenants.
    """
    found: set[str] = set()
    turn_of = tables.lines.turn_of
    for scope in list(tables.platform.scopes(queues)):
        room = min(most, tables.platform_room(scope))
        if room == 0:
            continue
        if scope.kind is ScopeKind.QUEUE:
            for line in tables.platform.take_lines(scope.part, room, tenants, turn_of):
                tables.refresh(line)
                found.add(line[0])
            continue
        for line, entry in tables.platform.take_jobs(scope, room, tenants, queues, turn_of):
            _let_job_in(tables, line, entry)
            found.add(line[0])
    return found


def let_first_in(tables: Tables, line: Line) -> None:
    """Lets in the first job of a line for each type that has room by now, so that no later job of
    the line is taken before it.
    """
    for type in tables.platform.types_at(line):
        scope = Scope("", ScopeKind.TYPE, type)
        while tables.platform.first_aside(type, line) and tables.platform_room(scope) > 0:
            if _let_job_in(tables, line, tables.platform.take_first(type, line)):
                break


def _let_job_in(tables: Tables, line: Line, entry: Entry) -> bool:
    """Puts a job back into its line or its group. Returns whether it is in its line for sure."""
    row = tables.current(entry)
    if row is None:
        return False
    if row.group is None:
        tables.lines.push(line, entry)
        tables.refresh(line)
        return True
    tables.wait_for_group(row, row.group)
    tables.grant(row.group, row.new.queue)
    return False
