"""Which jobs a claim takes: tenants in turn, the lines of each in turn, and of each line what
falls to this claimer.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from heapq import nsmallest

from holdfast.job import EventKind, Lease, State
from holdfast.scope import Scope, ScopeKind, rounds
from holdfast.store import Claim
from holdfast.stores.bell import Line
from holdfast.stores.foundationdb import gates, places
from holdfast.stores.foundationdb.claims import fail_unreadable, retire
from holdfast.stores.foundationdb.layout import INLINE_MAX, STEP_BYTES_MAX, after
from holdfast.stores.foundationdb.lines import Lines
from holdfast.stores.foundationdb.rows import Candidate, Row, candidate
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.turns import (
    Rank,
    Turns,
    ask_claimers,
    claimers,
    present,
    shared,
    shares,
)

WINDOW_MIN = 32
WINDOW_MAX = 2000
"""Entries of a line that are read at a time: enough that each of its claimers finds its own."""
LINES_AHEAD = 32
"""Lines of which a claim asks for the heads together."""
LOOKS_MAX = 8
"""How often a claim that has nothing yet looks at further lines."""
MANY = 8
"""Jobs of another claimer that are enough for two."""


class Manner(Enum):
    """How a claim treats others."""

    SHY = auto()
    """It leaves its name at a long line before it takes anything there."""
    FAIR = auto()
    HUNGRY = auto()
    """It takes also what falls to others."""


class Stranger(Exception):
    """The store is about to claim from a long line at which nobody knows it."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self.line = line


class Taking:
    """One try of a claim: what it has, and what it must undo or remember when it is over."""

    def __init__(
        self, step: Step, claim: Claim, turns: Turns, known: Known, manner: Manner
    ) -> None:
        self.step = step
        self._shy = manner is Manner.SHY
        self._hungry = manner is Manner.HUNGRY
        self.claim = claim
        self.turns = turns
        self.known = known
        self.leases: list[Lease] = []
        self.dry: set[Line | str] = set()
        """Tenants and lines that have nothing more for this claim."""
        self.empty: list[Line] = []
        """Lines that have no ready jobs at all: their pointers can go."""
        self.shut: set[Line] = set()
        """Lines without room."""
        self.reserved: set[bytes] = set()
        self.came: list[Line] = []
        self.bytes = 0
        self.late = False
        """Whether there were jobs that others are about to take."""
        self.left = 0
        """How many."""
        self._rooms: dict[Scope, places.Room] = {}
        self._start: Callable[[], tuple[int, ...]] = tuple
        """Takes the places of a job of the line that is visited."""
        self._windows: dict[Line, int] = {}
        """How many entries of each line were asked for."""
        self.lines = Lines(step, turns, (claim.tenants, claim.queues))
        self.ranks: dict[Line | str, Rank] = {}
        self.credits: dict[str, int] = {}

    @property
    def room(self) -> int:
        if self.bytes >= STEP_BYTES_MAX or self.step.bytes >= STEP_BYTES_MAX:
            return 0
        return self.claim.limit - len(self.leases)

    async def run(self) -> None:
        """Leases from the lines the claim names: tenants take turns by weight, and so do the lines
        of each.
        """
        for _ in range(LOOKS_MAX):
            await self.lines.look()
            await self._serve()
            if self.leases or not self.lines.stopped:
                break  # Else there are more tenants than it saw, and one of them may have jobs.
        await gates.open_up(self.step)

    async def _serve(self) -> None:
        """Goes round the tenants in sight until the claim is full, or nothing is left."""
        joined = self.lines.tenants
        while self.room > 0:
            waiting = [tenant for tenant in joined if tenant not in self.dry]
            if not waiting:
                break
            # More tenants than jobs wanted cannot be served anyway.
            await self._round(
                nsmallest(self.room, waiting, key=lambda one: self._rank(one, joined[one]))
            )

    def _rank(self, one: Line | str, joined: int) -> Rank:
        return self.ranks.get(one) or self.turns.rank(one, joined)

    async def _round(self, tenants: list[str]) -> None:
        """Gives each of the tenants its turn, until the claim is full."""
        share = min(self.room, rounds(self.room, [1] * len(tenants)))
        places.ask(self.step, tenants)
        await self._prepare(tenants[:LINES_AHEAD], share)
        await places.learn(self.step, self.known, tenants)
        weights = [self.step.rules.weight(tenant) for tenant in tenants]
        times = rounds(self.room, weights)
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
            taken = await self._take_tenant(tenant, wanted)
            if taken < wanted:
                self.dry.add(tenant)
            if taken == room and taken < allowed:
                self.credits[tenant] = allowed - taken
            else:
                self.credits.pop(tenant, None)
                self.ranks[tenant] = self.turns.next_rank(self.step.at.version)

    async def _prepare(self, tenants: list[str], share: int, *, jobs: bool = False) -> None:
        """Asks for what the turns of these tenants will probably need: the heads of their lines,
        then their jobs.
        """
        await self.lines.read(tenants)
        shares: dict[Line, int] = {}
        for tenant in tenants:
            lines = self._next(tenant, share)
            each = min(share, rounds(share, [1] * len(lines))) if lines else 0
            shares |= dict.fromkeys(lines, each)
        if jobs:
            await self._ask_jobs(shares)
        else:
            self._ask_lines(shares)

    def _next(self, tenant: str, most: int) -> list[Line]:
        """The tenant's lines that come next."""
        joined = self.lines.open.get(tenant, {})
        waiting = [line for queue in joined if (line := (tenant, queue)) not in self.dry]
        return nsmallest(most, waiting, key=lambda line: self._rank(line, joined[line[1]]))

    async def _take_tenant(self, tenant: str, wanted: int) -> int:
        """Takes up to so many jobs of a tenant, from its lines in turn."""
        taken, looks = 0, LOOKS_MAX
        while taken < wanted and self.room > 0:
            lines = self._next(tenant, wanted - taken)
            if not lines:
                # There may be more lines than it saw, and one of them may have jobs.
                looks -= 1
                if taken or not looks or not await self.lines.further(tenant):
                    break
                continue
            share = rounds(wanted - taken, [1] * len(lines))
            for place, line in enumerate(lines):
                most = min(share, wanted - taken, self.room)
                if most <= 0:
                    break
                if place % LINES_AHEAD == 0:
                    ahead = lines[place : place + LINES_AHEAD]
                    await self._ask_jobs(dict.fromkeys(ahead, share))
                got = await self._visit(line, most)
                taken += got
                if got < most:
                    self.dry.add(line)
                self.ranks[line] = self.turns.next_rank(self.step.at.version)
        return taken

    def _ask_lines(self, shares: dict[Line, int]) -> None:
        """Asks for the heads of lines, each of which may give about so many jobs."""
        step = self.step
        for line, share in shares.items():
            ask_claimers(step, line)
            if line not in self._windows:
                self._windows[line] = _window(share, self.turns.crowd(line))
                step.ask_under(step.keys.ready(*line), self._windows[line])

    async def _ask_jobs(self, shares: dict[Line, int]) -> None:
        """Asks for the jobs that will probably be taken from these lines."""
        step = self.step
        self._ask_lines(shares)
        for tenant, queue in shares:
            places.ask_rooms(step, tenant, (ScopeKind.QUEUE, queue))
        if len(shares) == 1:
            return  # They are asked for next anyway.
        for line, share in shares.items():
            pairs = await step.under(step.keys.ready(*line), self._windows[line], snapshot=True)
            there = await present(step, self.turns, line)
            own, _ = shared([candidate(*pair) for pair in pairs], self.turns.name, there)
            step.ask_rows((line[0], each.id) for each in own[:share])

    async def _visit(self, line: Line, wanted: int) -> int:
        """How many jobs of a line were taken."""
        rooms = await places.line_rooms(self.step, *line, self._rooms)
        wanted = min([wanted, *(room.left() for room in rooms)])
        if wanted == 0:
            self.shut.add(line)
            return 0
        return await self._take_line(line, wanted, rooms)

    async def _take_line(self, line: Line, wanted: int, rooms: list[places.Room]) -> int:
        step, prefix = self.step, self.step.keys.ready(*line)
        there = await claimers(step, self.turns, line)
        share = there.index(self.turns.name), len(there)
        self._start = partial(_start, rooms, share)
        if len(there) > 1 and rooms and not self._hungry:
            wanted = min(wanted, *(room.near(share) for room in rooms))
            if wanted == 0:
                # There is room, but in parts of others: they are about to take it.
                self.late = True
                self.left += min(room.left() for room in rooms)
        if self.turns.absent(line, step.at.version):
            self.came.append(line)
        window = max(self._windows.get(line, 0), _window(wanted, len(there)))
        begin, end, taken = prefix, after(prefix), 0
        others: dict[str, list[Candidate]] = {}
        while taken < wanted and begin < end:
            pairs = await step.range(begin, end, window, snapshot=True)
            if not pairs and begin == prefix:
                self.empty.append(line)
            if self._shy and len(pairs) >= WINDOW_MIN and self.turns.strange(line):
                raise Stranger(line)  # Else all that begin here at once would take its head.
            found = [candidate(*pair) for pair in pairs]
            found = [each for each in found if each.group not in self.claim.exclude_groups]
            own, theirs = shared(found, self.turns.name, there)
            others = others or theirs
            taken += await self._take_some(line, own, wanted - taken)
            if not taken and self.turns.busy(own):
                self.late = True
            if len(pairs) < window:
                break
            begin = pairs[-1][0] + b"\0"
        if others and not taken:
            part = self._part(others, there)
            taken = await self._take_some(line, part, wanted)
        return taken

    def _part(self, others: dict[str, list[Candidate]], there: list[str]) -> list[Candidate]:
        """Of what falls to others, what this claimer may take: of those who have many the last
        ones, where it is the second choice; and what nobody has taken for a while.
        """
        me, circle = self.turns.name, shares(tuple(there))
        enough = max(MANY, 3 * self.claim.limit)
        many = [jobs[len(jobs) // 2 :] for jobs in others.values() if len(jobs) >= enough]
        part = [each for jobs in many for each in jobs if circle.second(each.stamp) == me]
        self.late = not part
        self.left += sum(map(len, others.values()))
        if self._hungry and not part:
            left = [each for name in sorted(others) for each in others[name]]
            mine = [each for each in left if circle.second(each.stamp) == me]
            part = mine or [left[there.index(me) % len(left)]]
        return part

    async def _take_some(self, line: Line, some: list[Candidate], wanted: int) -> int:
        taken = 0
        while taken < wanted and some and self.room > 0:
            chosen = self.turns.reserve(some, wanted - taken, self.step.at.version)
            if not chosen:
                break
            self.reserved.update(each.stamp for each in chosen)
            rows = await self.step.rows([(line[0], each.id) for each in chosen])
            self._ask_more(rows)
            for row in rows:
                if row is not None and await self._may_start(row):
                    await self._lease(row)
                    taken += 1
            some = some[some.index(chosen[-1]) + 1 :]
        return taken

    def _ask_more(self, rows: list[Row | None]) -> None:
        """Asks for payloads that are not in their rows, and for the room of groups."""
        size = self.bytes
        for row in rows:
            if row is None:
                continue
            if row.group is not None:
                places.ask_rooms(self.step, row.tenant, (ScopeKind.GROUP, row.group))
            size += row.size
            if row.size > INLINE_MAX and size <= STEP_BYTES_MAX:
                self.step.ask_under(self.step.keys.body(row.tenant, row.id), 0)

    async def _may_start(self, row: Row) -> bool:
        step = self.step
        if row.state is not State.ENQUEUED or row.gate or row.late or self.room <= 0:
            return False
        if row.expires_at is not None and row.expires_at <= step.now:
            retire(step, row)
            return False
        if row.fault is not None:
            await fail_unreadable(step, row, row.fault)
            return False
        if row.group is None or not step.rules.gated(row.tenant, row.group, row.queue):
            return True
        room = await gates.may_start(step, row)
        if room is not None:
            room.start()
            return True
        gates.gate(step, row)  # Its group has no place for it after all.
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
        row.progress = None
        row.gate, row.granted = 0, False
        row.places = self._start()
        step.save(row)
        step.note(EventKind.LEASED, row, row.lease_until, claim.worker)
        body = await step.body(row)
        self.bytes += len(body)
        self.leases.append(Lease(row.record(now, body), row.token, row.lease_until))

    @property
    def visited(self) -> list[Line]:
        """The lines that it looked at."""
        return [one for one in self.ranks if not isinstance(one, str)]

    # -- afterwards ------------------------------------------------------------------------------

    def done(self) -> None:
        """The claim was committed: what it did to turns counts."""
        for line in self.came:
            self.turns.came(line, self.step.at.version)
        self.turns.served(self.ranks, self.credits)
        self.lines.done()
        self.turns.release(self.reserved, self.step.committed)
        self.reserved.clear()

    def release(self) -> None:
        """Lets other claims have what this one did not take."""
        self.turns.release(self.reserved)
        self.reserved.clear()


def ask(step: Step, claim: Claim, turns: Turns) -> None:
    """Asks for what a claim will need first."""
    Lines(step, turns, (claim.tenants, claim.queues)).ask()


def _start(rooms: list[places.Room], share: places.Share) -> tuple[int, ...]:
    """Takes the places of one job, in parts of this claimer if it can; gives the parts."""
    parts = tuple(room.start(share) for room in rooms)
    return parts if max(parts, default=-1) >= 0 else ()


def _window(wanted: int, claimers: int) -> int:
    """How many entries of a line to read, so that each of its claimers finds its own."""
    return min(WINDOW_MAX, max(WINDOW_MIN, 2 * wanted * claimers))
