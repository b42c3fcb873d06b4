"""What a claim may take at the limits of the platform: shared by weight, tenant by tenant.

Where no scope of the platform has settings, every answer here is "as many as you like".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.core.bounds import ASIDE_MAX
from holdfast.core.scope import PLATFORM, Scope, ScopeKind, platform_scopes, rounds
from holdfast.store import Claim
from holdfast.stores.foundationdb.fairness import Turns
from holdfast.stores.foundationdb.fairness_lines import Lines
from holdfast.stores.foundationdb.layout import STEP_BYTES_MAX
from holdfast.stores.foundationdb.limits import UNLIMITED
from holdfast.stores.foundationdb.limits_platform import (
    PlatformRooms,
    Waiting,
    queue_over_all,
    set_job_aside,
    set_lines_aside,
    tidy,
    type_over_all,
)
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line


class PlatformRound:
    """The limits of the platform as one attempt of a claim meets them, round by round."""

    def __init__(self, step: Step, claim: Claim, turns: Turns) -> None:
        self.step = step
        self.limited = False
        self.any_type = False
        """Whether a type has settings, or had some while jobs waited."""
        self.regrouped = False
        """Whether a job of a limited group was set aside, so that another one has to be let into
        the line before a job is taken from it."""
        self._aside_left = ASIDE_MAX
        self._waiting = Waiting(step, turns, (claim.tenants, claim.queues))
        self._scopes: list[Scope] = []
        """Those at which something waits."""
        self._rooms = PlatformRooms(step)
        self._found: dict[Line, list[Scope]] = {}
        """Lines that only ASIDE_LINES has, and the scopes at which they wait."""
        self._full: dict[Line, int] = {}
        """Lines to set aside, and since when they have ready jobs."""
        self._idle: set[Scope] = set()
        """Scopes at which nothing was found, and queues that have no settings any more."""
        self._empty: set[tuple[Scope, Line]] = set()
        """Lines that have no jobs aside at the limit of a type."""
        self._weights: list[int] = []
        self._times: dict[Scope, int] = {}

    async def load(self) -> None:
        """Reads which limits there are, and where something waits."""
        await self.step.settings.load()
        marked = self.step.settings.marked
        self.limited = bool(marked)
        if not self.limited:
            return
        self.any_type = any(scope.kind is ScopeKind.TYPE for scope in marked)
        self._scopes = await self._waiting.scopes()
        await self._rooms.read((PLATFORM, *self._scopes))
        self._idle.update(
            scope
            for scope in self._scopes
            if scope.kind is ScopeKind.QUEUE and scope not in self.step.settings.platform
        )

    async def room_at(self, scope: Scope) -> int:
        """How many jobs of a scope may start."""
        return await self._rooms.at(scope)

    def room(self, scope: Scope) -> int:
        """The same, for a scope that was asked for before."""
        return self._rooms.known(scope)

    @property
    def stopped(self) -> bool:
        """Whether more waits than was read."""
        return self._waiting.stopped

    async def add_lines(self, lines: Lines) -> None:
        """Adds the lines that wait where there is room by now."""
        scopes = [scope for scope in self._scopes if self.room(scope) > 0]
        self._waiting.ask(scopes)
        for scope in scopes:
            found = await self._waiting.lines(scope)
            if not found:
                self._idle.add(scope)
            await self._rooms.read([queue_over_all(queue) for _, queue in found])
            for line, since in found.items():
                if self.room(queue_over_all(line[1])) == 0:
                    continue
                if lines.add(line, since):
                    self._found[line] = []
                if line in self._found:
                    self._found[line].append(scope)

    def has_room(self, line: Line) -> bool:
        """Whether the room for which the line was found is still there."""
        scopes = self._found.get(line)
        return scopes is None or (
            self.room(queue_over_all(line[1])) > 0 and any(map(self.room, scopes))
        )

    def may_serve(self, tenant: str, queues: Iterable[str] | None) -> bool:
        """Whether a tenant has lines with room, if they are known; else it keeps its turn."""
        if not self._found or queues is None:
            return True
        return any(self.has_room((tenant, queue)) for queue in queues)

    def types(self) -> list[str]:
        """The types that have room and of which jobs may be aside."""
        kind = ScopeKind.TYPE
        return [each.part for each in self._scopes if each.kind is kind and self.room(each) > 0]

    def begin(self, weights: list[int]) -> None:
        """Starts a round of tenants with these weights."""
        self._weights = weights
        self._times.clear()

    def turn(self, weight: int) -> PlatformTurn:
        """The turn of one tenant of the round."""
        return PlatformTurn(self, weight)

    def times(self, scope: Scope, room: int) -> int:
        """How many times its weight each tenant may take of a scope's room in this round."""
        times = self._times.get(scope)
        if times is None:
            times = self._times[scope] = rounds(room, self._weights)
        return times

    def start(self, row: Row) -> None:
        """Takes the places of a job that starts."""
        self._rooms.start(platform_scopes(row.queue, row.type))

    # -- aside -----------------------------------------------------------------------------------

    def set_line_aside(self, line: Line, since: int) -> None:
        """Its queue has no room: once the claim is done, its pointers go."""
        if line not in self._found:
            self._full[line] = since

    def set_job_aside(self, row: Row, since: int) -> bool:
        """Its type has no room. False if this attempt can set no more aside."""
        if self._aside_left == 0 or self.step.bytes >= STEP_BYTES_MAX:
            return False
        self._aside_left -= 1
        set_job_aside(self.step, row, since)
        settings = self.step.settings
        if settings.limits_group(row.tenant, row.group, row.queue):
            self.regrouped = True
        return True

    def nothing_aside(self, line: Line, type: str) -> None:
        """No job of the line waits for the type."""
        self._empty.add((type_over_all(type), line))

    def committed(self) -> None:
        self._waiting.committed()

    @property
    def untidy(self) -> bool:
        """Whether `tidy` has something to do."""
        return bool(self._full or self._idle or self._empty)

    async def tidy(self, step: Step) -> None:
        """Sets lines aside and deletes pointers that lead to nothing, in a step of its own."""
        await tidy(step, self._idle, self._empty)
        # Last: a scope at which nothing was found to wait gets its pointer back.
        await set_lines_aside(step, self._full)


class PlatformTurn:
    """One tenant's turn."""

    def __init__(self, round: PlatformRound, weight: int) -> None:
        self._round = round
        self._weight = weight
        self._full = False
        self._taken: Counter[Scope] = Counter()
        self._shares: dict[Scope, int] = {}
        """How many jobs of each scope the tenant may take in this round."""
        self.stops = False
        """Whether the line that is visited has to wait for the next round, or claim."""
        self.held: set[Line] = set()
        """Lines that may have more for the next round."""

    @property
    def stopped(self) -> bool:
        """Whether a queue or a type that the tenant met has no room left."""
        return self._full or not all(map(self._round.room, self._shares))

    @property
    def has_more(self) -> bool:
        """Whether it took all of a share, so that there may be more for it in the next round."""
        return any(self._taken[scope] >= share for scope, share in self._shares.items())

    def open(self, lines: list[Line]) -> list[Line]:
        """Those of the lines that may have more for this turn."""
        found = [line for line in lines if self._round.has_room(line)]
        self._full = self._full or len(found) < len(lines)
        return [line for line in found if line not in self.held]

    async def line_room(self, line: Line, since: int) -> int:
        """How many jobs of a line may start. Without room in its queue the line is set aside."""
        self.stops = False
        if not self._round.limited:
            return UNLIMITED
        scope = queue_over_all(line[1])
        room = await self._round.room_at(scope)
        if room == 0:
            self._round.set_line_aside(line, since)
        share = self._share(scope)
        if share < room:
            self.held.add(line)
        return share

    async def allows(self, row: Row, since: int) -> bool:
        """Whether the job may start as far as its type goes. A job whose type has no room goes
        aside; where the tenant has had its share of the room, the line waits for the next round.
        """
        if not self._round.any_type:
            return True
        scope = type_over_all(row.type)
        room = await self._round.room_at(scope)
        if self._share(scope) > 0:
            return True
        if room > 0:
            self.stops = True
            self.held.add((row.tenant, row.queue))
        elif not row.aside:
            self.stops = not self._round.set_job_aside(row, since)
        return False

    def start(self, row: Row) -> None:
        """Takes the places of a job that starts, and counts it against the tenant's shares."""
        if not self._round.limited:
            return
        self._round.start(row)
        _, queue, type = platform_scopes(row.queue, row.type)
        self._taken[queue] += 1
        self._taken[type] += 1

    def _share(self, scope: Scope) -> int:
        """What the tenant may still take of a scope's room in this round."""
        room = self._round.room(scope)
        if room == UNLIMITED:
            return room
        if room == 0:
            self._full = True
            return 0
        share = self._shares.get(scope)
        if share is None:
            share = self._shares[scope] = self._weight * self._round.times(scope, room)
        return max(0, min(room, share - self._taken[scope]))
