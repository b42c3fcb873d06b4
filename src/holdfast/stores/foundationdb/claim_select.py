"""One attempt of a claim: tenants take turns, then the lines of each, and of each line the attempt
leases the jobs that are assigned to this claimer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import nsmallest

from holdfast.core.job import EventKind, Lease, State
from holdfast.core.scope import PLATFORM, Scope, ScopeKind, line_share, rounds
from holdfast.store import Claim
from holdfast.stores.foundationdb import journal, limits, limits_groups
from holdfast.stores.foundationdb.claim_lines import WINDOW_MIN, LineReader, window_of
from holdfast.stores.foundationdb.claim_platform import PlatformRound, PlatformTurn
from holdfast.stores.foundationdb.claim_repair import fail_unreadable, retire
from holdfast.stores.foundationdb.claim_sharing import (
    MANY,
    Claimers,
    Mode,
    NotAnnounced,
    any_left,
    ask_claimers,
    assign,
    join,
    present,
    spare,
)
from holdfast.stores.foundationdb.fairness import Rank, Turns
from holdfast.stores.foundationdb.fairness_lines import Lines
from holdfast.stores.foundationdb.joins import release
from holdfast.stores.foundationdb.layout import STEP_BYTES_MAX
from holdfast.stores.foundationdb.rows import Candidate, Row, candidate
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line

TYPED_MIN = 32
"""Jobs that are read at a time at least where limits of types may set them aside."""
LINES_AHEAD = 32
"""Lines whose heads a claim requests together."""
LOOKS_MAX = 8
"""How often a claim that has nothing yet reads further lines."""


class Attempt:
    """One try of a claim: its leases, and what it must undo or remember when it is over."""

    def __init__(
        self, step: Step, claim: Claim, turns: Turns, claimers: Claimers, mode: Mode
    ) -> None:
        self.step = step
        self._announces = mode is Mode.ANNOUNCE
        self._takes_any = mode is Mode.ANY
        self.claim = claim
        self.turns = turns
        self.claimers = claimers
        self.leases: list[Lease] = []
        self.dry: set[Line | str] = set()
        """Tenants and lines that have nothing more for this attempt."""
        self.empty: list[Line] = []
        """Lines that have no ready jobs at all: their pointers can go."""
        self.full: set[Line] = set()
        """Lines without room."""
        self.reserved: set[bytes] = set()
        self.joined: list[Line] = []
        """Lines at which it writes the store's name."""
        self.bytes = 0
        self.others_left = False
        """Whether there were jobs that others are about to take."""
        self.left = 0
        """How many of them."""
        self._rooms: dict[Scope, limits.Room] = {}
        self._start: Callable[[], tuple[int, ...]] = tuple
        """Takes the places of a job under the limits of the line that is visited."""
        self._windows: dict[Line, int] = {}
        """How many entries of each line were requested."""
        self.lines = Lines(step, turns, (claim.tenants, claim.queues))
        self.ranks: dict[Line | str, Rank] = {}
        self.credits: dict[str, int] = {}
        self.platform = PlatformRound(step, claim, turns)
        self._turn = PlatformTurn(self.platform, 1)

    @property
    def room(self) -> int:
        if self.bytes >= STEP_BYTES_MAX or self.step.bytes >= STEP_BYTES_MAX:
            return 0
        return min(self.claim.limit - len(self.leases), self.platform.room(PLATFORM))

    async def run(self) -> None:
        """Leases from the lines the claim names: tenants take turns by weight, and so do the lines
        of each.
        """
        await self.platform.load()
        for _ in range(LOOKS_MAX if self.room else 0):
            await self.lines.read_next()
            await self.platform.add_lines(self.lines)
            await self._serve()
            if self.leases or not (self.lines.stopped or self.platform.stopped):
                break  # Else there are more tenants than it read, and one of them may have jobs.
        await release(self.step)
        await limits_groups.reopen_freed(self.step)

    async def _serve(self) -> None:
        """Gives turns to the tenants that were read until the claim is full or nothing is left."""
        joined = self.lines.tenants
        while self.room > 0:
            waiting = [tenant for tenant in joined if self._may_serve(tenant)]
            if not waiting:
                break
            # More tenants than jobs wanted cannot be served anyway.
            await self._round(
                nsmallest(self.room, waiting, key=lambda one: self._rank(one, joined[one]))
            )

    def _may_serve(self, tenant: str) -> bool:
        lines = self.lines.open.get(tenant)
        return tenant not in self.dry and self.platform.may_serve(tenant, lines)

    def _rank(self, one: Line | str, joined: int) -> Rank:
        return self.ranks.get(one) or self.turns.rank(one, joined)

    async def _round(self, tenants: list[str]) -> None:
        """Gives each of the tenants its turn, until the claim is full."""
        share = min(self.room, rounds(self.room, [1] * len(tenants)))
        self.step.settings.ask(tenants)
        await self._prepare(tenants[:LINES_AHEAD], share)
        await self.step.settings.load(tenants)
        weights = [self.step.settings.tenant(tenant).share for tenant in tenants]
        times = rounds(self.room, weights)
        self.platform.begin(weights)
        for place, (tenant, weight) in enumerate(zip(tenants, weights, strict=True)):
            room = self.room
            if room <= 0:
                return
            if place % LINES_AHEAD == 0:
                await self._prepare(tenants[place : place + LINES_AHEAD], share, jobs=True)
            allowed = weight * times
            if tenant not in self.ranks:  # Else its turn is a new one.
                allowed = self.turns.allowance(tenant, allowed)
            wanted = min(allowed, room)
            self._turn = turn = self.platform.turn(weight)
            taken = await self._take_tenant(tenant, wanted)
            if taken < wanted and not turn.has_more:
                self.dry.add(tenant)
            owed = min(allowed, weight) - taken
            if owed > 0 and taken < room and turn.stopped:
                self.credits[tenant] = owed  # Its turn goes on when there is room.
            elif taken == room and taken < allowed:
                self.credits[tenant] = allowed - taken
            else:
                self.credits.pop(tenant, None)
                self.ranks[tenant] = self.turns.next_rank(self.step.at.version)

    async def _prepare(self, tenants: list[str], share: int, *, jobs: bool = False) -> None:
        """Requests what the turns of these tenants will probably read: the heads of their lines,
        or their jobs.
        """
        await self.lines.read_lines(tenants)
        shares: dict[Line, int] = {}
        for tenant in tenants:
            lines = self._next(tenant, share)
            each = line_share(share, len(lines)) if lines else 0
            shares |= dict.fromkeys(lines, each)
        if jobs:
            await self._ask_jobs(shares)
        else:
            self._ask_lines(shares)

    def _next(self, tenant: str, most: int) -> list[Line]:
        """The tenant's lines whose turn is next."""
        joined = self.lines.open.get(tenant, {})
        lines = self._turn.open([(tenant, queue) for queue in joined])
        waiting = [line for line in lines if line not in self.dry]
        return nsmallest(most, waiting, key=lambda line: self._rank(line, joined[line[1]]))

    async def _take_tenant(self, tenant: str, wanted: int) -> int:
        """Takes up to so many jobs of a tenant, from its lines in turn."""
        taken, looks = 0, LOOKS_MAX
        while taken < wanted and self.room > 0:
            lines = self._next(tenant, wanted - taken)
            if not lines:
                # There may be more lines than it read, and one of them may have jobs.
                looks -= 1
                if taken or not looks or not await self.lines.read_more(tenant):
                    break
                continue
            share = line_share(wanted - taken, len(lines))
            for place, line in enumerate(lines):
                most = min(share, wanted - taken, self.room)
                if most <= 0:
                    break
                if place % LINES_AHEAD == 0:
                    ahead = lines[place : place + LINES_AHEAD]
                    await self._ask_jobs(dict.fromkeys(ahead, share))
                got = await self._visit(line, most)
                taken += got
                if got < most and line not in self._turn.held:
                    self.dry.add(line)
                self.ranks[line] = self.turns.next_rank(self.step.at.version)
        return taken

    def _ask_lines(self, shares: dict[Line, int]) -> None:
        """Requests the heads of lines, each of which may give about so many jobs."""
        step = self.step
        for line, share in shares.items():
            ask_claimers(step, line)
            if line not in self._windows:
                self._windows[line] = window_of(share, self.claimers.count(line))
                step.ask_under(step.keys.ready(*line), self._windows[line])

    async def _ask_jobs(self, shares: dict[Line, int]) -> None:
        """Requests the jobs that will probably be taken from these lines."""
        step = self.step
        self._ask_lines(shares)
        for tenant, queue in shares:
            limits.ask_rooms(step, tenant, (ScopeKind.QUEUE, queue))
        if len(shares) == 1:
            return  # They are requested next anyway.
        for line, share in shares.items():
            pairs = await step.under(step.keys.ready(*line), self._windows[line], snapshot=True)
            there = await present(step, self.claimers, line)
            own, _ = assign([candidate(*pair) for pair in pairs], self.claimers.name, there)
            step.ask_rows((line[0], each.id) for each in own[:share])

    async def _visit(self, line: Line, wanted: int) -> int:
        """How many jobs of a line were taken."""
        rooms = await limits.line_rooms(self.step, *line, self._rooms)
        wanted = min([wanted, *(room.left() for room in rooms)])
        if wanted == 0:
            self.full.add(line)
            return 0
        wanted = min(wanted, await self._turn.line_room(line, self._since(line)))
        return await self._take_line(line, wanted, rooms) if wanted else 0

    @property
    def _halts(self) -> bool:
        """Whether the line is left, or has to be walked again from its head."""
        return self._turn.stops or self.platform.regrouped

    def _since(self, line: Line) -> int:
        return self.lines.tenants.get(line[0], self.step.at.version)

    async def _take_line(self, line: Line, wanted: int, rooms: list[limits.Room]) -> int:
        step = self.step
        there = await join(step, self.claimers, line)
        share = there.index(self.claimers.name), len(there)
        self._start = partial(limits.start, rooms, share)
        if len(there) > 1 and rooms and not self._takes_any:
            wanted = min(wanted, *(room.left_for(share) for room in rooms))
            if wanted == 0:
                # There is room, but in parts of others: they are about to take it.
                self.others_left = True
                self.left += min(room.left() for room in rooms)
        if self.claimers.should_announce(line, step.at.version):
            self.joined.append(line)
        window = max(self._windows.get(line, 0), window_of(wanted, len(there)))
        taken, again = 0, True
        while again and taken < wanted and not self._turn.stops:
            self.platform.regrouped = False
            taken += await self._walk(line, wanted - taken, window, there)
            if again := self.platform.regrouped:
                await limits_groups.grant(step)
        return taken

    async def _walk(self, line: Line, wanted: int, window: int, there: list[str]) -> int:
        """Takes up to so many jobs of a line, from its head."""
        reader, taken = LineReader(self.step, line, window, self.platform.types), 0
        others: dict[str, list[Candidate]] = {}
        while taken < wanted and not (reader.over or self._halts):
            found = await reader.read()
            if self._announces and len(found) >= WINDOW_MIN and self.claimers.is_new_at(line):
                raise NotAnnounced(line)  # Else all that begin here at once would take its head.
            found = [each for each in found if each.group not in self.claim.exclude_groups]
            own, theirs = assign(found, self.claimers.name, there)
            others = others or theirs
            taken += await self._take_some(line, own, wanted - taken)
            if not taken and self.claimers.any_reserved(own):
                self.others_left = True
        if reader.empty:
            self.empty.append(line)
        for type in reader.empty_types:
            self.platform.nothing_aside(line, type)
        if others and not (taken or self._halts):
            taken = await self._take_some(line, self._of_others(others, there), wanted)
        return taken

    def _of_others(self, others: dict[str, list[Candidate]], there: list[str]) -> list[Candidate]:
        """The jobs of other claimers that this one may take: of those who have many the last ones,
        where it is the second choice; and with Mode.ANY any that are left.
        """
        part = spare(others, self.claimers.name, there, max(MANY, 3 * self.claim.limit))
        self.others_left = not part
        self.left += sum(map(len, others.values()))
        return part or (any_left(others, self.claimers.name, there) if self._takes_any else [])

    async def _take_some(self, line: Line, some: list[Candidate], wanted: int) -> int:
        taken = 0
        while taken < wanted and some and self.room > 0:
            most = wanted - taken
            if self.platform.any_type:
                most = max(most, TYPED_MIN)
            chosen = self.claimers.reserve(some, most, self.step.at.version)
            if not chosen:
                break
            self.reserved.update(each.stamp for each in chosen)
            rows = await self.step.rows([(line[0], each.id) for each in chosen])
            self._ask_more(rows)
            for each, row in zip(chosen, rows, strict=True):
                tries = taken < wanted and not self._turn.stops
                if row is not None and tries and await self._may_start(row):
                    await self._lease(row)
                    taken += 1
                elif self.platform.any_type:
                    self._give_back(each)
            if self._halts:
                break
            some = some[some.index(chosen[-1]) + 1 :]
        return taken

    def _give_back(self, one: Candidate) -> None:
        """Lets other claims of the store have one that this claim did not take."""
        self.claimers.release([one.stamp])
        self.reserved.discard(one.stamp)

    def _ask_more(self, rows: list[Row | None]) -> None:
        """Requests what leases bring that is not in the rows, and the room of groups."""
        found = [row for row in rows if row is not None]
        for row in found:
            if row.group is not None:
                limits.ask_rooms(self.step, row.tenant, (ScopeKind.GROUP, row.group))
        journal.ask_contents(self.step, found, STEP_BYTES_MAX - self.bytes)

    async def _may_start(self, row: Row) -> bool:
        step = self.step
        if row.state is not State.ENQUEUED or row.gate or row.late or self.room <= 0:
            return False
        if row.expires_at is not None and row.expires_at <= step.now:
            retire(step, row)
            return False
        if (fault := row.fault or await journal.fault(step, row)) is not None:
            await fail_unreadable(step, row, fault)
            return False
        allowed = await self._turn.allows(row, self._since((row.tenant, row.queue)))
        if not allowed or self.platform.regrouped:
            return False
        if row.group is None or not step.settings.limits_group(row.tenant, row.group, row.queue):
            return True
        room = await limits_groups.room_for(step, row)
        if room is not None:
            room.start()
            return True
        limits_groups.hold_back(step, row)  # Its group has no place for it after all.
        step.save(row)
        return False

    async def _lease(self, row: Row) -> None:
        step, claim = self.step, self.claim
        now = step.now
        row.state = State.PROCESSING
        row.attempt += 1
        row.fence += 1
        row.token = f"{claim.nonce}.{row.seq}"
        row.lease_until = now + claim.lease_us
        row.held_at, row.lease_us = step.at.deadline(claim.lease_us), claim.lease_us
        row.worker = claim.worker
        row.updated_at = now
        row.progress = row.awaits = None
        row.gate, row.granted, row.aside = 0, False, False
        row.places = self._start()
        self._turn.start(row)
        step.save(row)
        step.note(EventKind.LEASED, row, row.lease_until, claim.worker)
        body, (known, left_out) = await step.body(row), await journal.remembered(step, row)
        self.bytes += len(body) + sum(len(entry.value) for entry in known)
        job = row.record(now, body)
        self.leases.append(Lease(job, row.token, row.lease_until, known, left_out))

    @property
    def visited(self) -> list[Line]:
        """The lines that had a turn."""
        return [one for one in self.ranks if not isinstance(one, str)]

    # -- afterwards ------------------------------------------------------------------------------

    def committed(self) -> None:
        """Records what the attempt did to turns, once it is committed."""
        for line in self.joined:
            self.claimers.announced(line, self.step.at.version)
        self.turns.served(self.ranks, self.credits)
        self.lines.committed()
        self.platform.committed()
        self.claimers.release(self.reserved, self.step.committed)
        self.reserved.clear()

    def release(self) -> None:
        """Lets other claims of the store have what this one did not take."""
        self.claimers.release(self.reserved)
        self.reserved.clear()
