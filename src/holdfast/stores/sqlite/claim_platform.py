"""What a claim may take at the limits of the platform: shared by weight, tenant by tenant.

Where the platform never had settings, every answer here is "as many as you like".
"""

from __future__ import annotations

from collections import Counter

from holdfast.core.bounds import ASIDE_MAX
from holdfast.core.scope import PLATFORM, Scope, ScopeKind, rounds
from holdfast.store import Claim
from holdfast.stores.notifier import Line
from holdfast.stores.sqlite.limits_platform import (
    LetIn,
    Rank,
    first_aside,
    set_line_aside,
    waiting_scopes,
)
from holdfast.stores.sqlite.limits_room import UNLIMITED, Room
from holdfast.stores.sqlite.transaction import Transaction

IN_PLACE_MAX = 100
"""Lines that a claim meets and leaves where they are, after it has set ASIDE_MAX jobs aside."""


class PlatformRound:
    """The limits of the platform as one claim meets them, round by round."""

    def __init__(self, transaction: Transaction, claim: Claim) -> None:
        self.transaction = transaction
        self.claim = claim
        self.limited = transaction.scope_cache.over_all
        self._waiting: list[Scope] | None = None
        """The scopes at which something waits, once they were read."""
        self.typed = self.limited and self._has_types()
        """Whether jobs may have to wait for their types, so that a claim looks at each."""
        self.shared = self.typed or self._has_queues()
        """Whether there may be less room for some jobs than in the store as a whole."""
        self._aside_left = self._let_in_left = ASIDE_MAX
        self._left_in_place = 0
        self._undivided = None if self.shared else PlatformTurn(self, 1)
        self._rooms: dict[Scope, Room] = {}
        self._started: set[Scope] = set()
        self._weights: list[int] = []
        self._times: dict[Scope, int] = {}

    def _has_types(self) -> bool:
        scopes = (*self.transaction.scope_cache.platform, *self._read_waiting())
        return any(scope.kind is ScopeKind.TYPE for scope in scopes)

    def _has_queues(self) -> bool:
        scopes = self.transaction.scope_cache.platform if self.limited else ()
        return any(scope.kind is ScopeKind.QUEUE for scope in scopes)

    def _read_waiting(self) -> list[Scope]:
        if self._waiting is None:
            connection = self.transaction.connection
            self._waiting = list(waiting_scopes(connection, self.claim.queues))
        return self._waiting

    # -- room ------------------------------------------------------------------------------------

    def room_of(self, scope: Scope) -> int:
        """How many jobs of a scope may start, those that the claim has taken counted."""
        settings = self.transaction.scope_cache.platform.get(scope)
        if settings is None:
            return UNLIMITED
        room = self._rooms.get(scope)
        if room is None:
            transaction = self.transaction
            room = Room(transaction.connection, scope, settings, transaction.now)
            self._rooms[scope] = room
        return room.left()

    def room(self, wanted: int) -> int:
        """How many of the jobs wanted the store as a whole has room for."""
        return min(wanted, self.room_of(PLATFORM)) if self.limited else wanted

    @property
    def is_full(self) -> bool:
        """Whether the whole store has no room before a job ends or settings change."""
        if not self.limited or self.room_of(PLATFORM) > 0:
            return False
        gate = self._rooms[PLATFORM].gate
        return gate.rate is None and not gate.slots_count

    def start(self, scope: Scope, number: int) -> None:
        """Counts jobs that start."""
        room = self._rooms.get(scope)
        if room is not None and number:
            room.start(number)
            self._started.add(scope)

    def save(self) -> None:
        """Stores the tokens that are left, at the end of the claim."""
        for scope in self._started:
            self._rooms[scope].save()
        self._undivided = None  # It refers to this: only the collector would free the transaction.

    # -- rounds ----------------------------------------------------------------------------------

    def let_in(self, most: int) -> set[str]:
        """Lets in what waits where there is room now, enough for so many jobs; returns the
        tenants.
        """
        if not self.limited:
            return set()
        coming = LetIn(self.transaction, self.claim.tenants, self.claim.queues)
        for scope in self._read_waiting():
            room = min(most, self.room_of(scope), self._let_in_left - coming.number)
            if room > 0:
                let_in = coming.lines if scope.kind is ScopeKind.QUEUE else coming.jobs
                let_in(scope, room)
        if coming.tenants:
            coming.finish()
            self._waiting = None
            self._let_in_left -= coming.number
        return coming.tenants

    @property
    def goes_on(self) -> bool:
        """Whether the claim may look further. The next claim goes on where this one ends."""
        return self._left_in_place < IN_PLACE_MAX

    @property
    def lets_in(self) -> bool:
        """Whether the claim may let in more."""
        return self._let_in_left > 0

    def may_set_aside(self) -> bool:
        """Counts a line or a job that goes aside; False after ASIDE_MAX of them."""
        self._waiting = None
        may = self._aside_left > 0
        self._aside_left -= may
        self._left_in_place += not may
        return may

    def turn(self, weight: int) -> PlatformTurn:
        """The turn of one tenant of the round."""
        return self._undivided or PlatformTurn(self, weight)

    def begin(self, weights: list[int]) -> None:
        """Starts a round of tenants with these weights."""
        self._weights = weights
        self._times.clear()

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
        self._first: dict[Line, dict[str, Rank]] = {}
        """The first jobs of lines that are aside, by type."""
        self._waits = False

    @property
    def stopped(self) -> bool:
        """Whether a queue or a type that the tenant met has no room left."""
        return self._full or not all(map(self._round.room_of, self._shares))

    @property
    def has_more(self) -> bool:
        """Whether there may be more for it in the next round: it took all of a share, or met a job
        before which others have to be let in.
        """
        return self._waits or any(
            self._taken[scope] >= share for scope, share in self._shares.items()
        )

    # -- lines -----------------------------------------------------------------------------------

    def line_room(self, line: Line) -> int:
        """How many jobs of a line may start. Without room in its queue the line is set aside."""
        if not self.limited:
            return UNLIMITED
        scope = Scope("", ScopeKind.QUEUE, line[1])
        room = self._share(scope)
        if room == 0 and self._round.room_of(scope) == 0 and self._round.may_set_aside():
            set_line_aside(self._round.transaction, line)
        return room

    def start_line(self, queue: str, number: int) -> None:
        """Counts jobs of a queue that start, against the tenant's share."""
        if self.limited:
            scope = Scope("", ScopeKind.QUEUE, queue)
            self._taken[scope] += number
            self._round.start(scope, number)

    # -- jobs ------------------------------------------------------------------------------------

    def waits(self, line: Line, rank: Rank) -> bool:
        """Whether jobs that come before this one are aside at types that have room: they have to be
        let in first.
        """
        first = self._first_of(line)
        waits = self._round.lets_in and any(
            each < rank and self._round.room_of(_type(type)) > 0 for type, each in first.items()
        )
        self._waits |= waits
        return waits

    def allows(self, line: Line, type: str, rank: Rank) -> bool:
        """Whether the job may start as far as its type goes: the type has room for it, and no job
        of the line and the type waits before it.
        """
        return not self._is_behind(line, type, rank) and self._share(_type(type)) > 0

    def sets_aside(self, line: Line, type: str, rank: Rank) -> bool:
        """Whether the job, which may not start, goes aside. Otherwise its line goes on with it in
        the next round, or in the next claim after ASIDE_MAX jobs.
        """
        has_room = self._round.room_of(_type(type)) > 0
        if has_room and not self._is_behind(line, type, rank):
            return False
        if not self._round.may_set_aside():
            return False
        first = self._first_of(line)
        first[type] = min(rank, first.get(type, rank))
        return True

    def start(self, type: str) -> None:
        """Counts a job of a type that starts, against the tenant's share."""
        self._taken[_type(type)] += 1
        self._round.start(_type(type), 1)

    def _is_behind(self, line: Line, type: str, rank: Rank) -> bool:
        first = self._first_of(line).get(type)
        return first is not None and first < rank

    def _first_of(self, line: Line) -> dict[str, Rank]:
        first = self._first.get(line)
        if first is None:
            first = self._first[line] = first_aside(self._round.transaction, line)
        return first

    def _share(self, scope: Scope) -> int:
        """What the tenant may still take of a scope's room in this round."""
        room = self._round.room_of(scope)
        if room == UNLIMITED:
            return room
        if room == 0:
            self._full = True
            return 0
        share = self._shares.get(scope)
        if share is None:
            share = self._shares[scope] = self._weight * self._round.times(scope, room)
        return max(0, min(room, share - self._taken[scope]))


def _type(type: str) -> Scope:
    return Scope("", ScopeKind.TYPE, type)
