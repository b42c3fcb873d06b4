"""One attempt of a claim: tenants take turns, then the lines of each, and of each line the attempt
leases the jobs that are assigned to this claimer.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from heapq import nsmallest

from holdfast.core.job import EventKind, Lease, State
from holdfast.core.scope import Scope, ScopeKind, rounds
from holdfast.store import Claim
from holdfast.stores.foundationdb import limits, limits_groups
from holdfast.stores.foundationdb.claim_repair import fail_unreadable, retire
from holdfast.stores.foundationdb.claim_sharing import (
    Claimers,
    ask_claimers,
    assign,
    join,
    present,
    ring,
)
from holdfast.stores.foundationdb.fairness import Rank, Turns
from holdfast.stores.foundationdb.fairness_lines import Lines
from holdfast.stores.foundationdb.layout import INLINE_MAX, STEP_BYTES_MAX, after
from holdfast.stores.foundationdb.rows import Candidate, Row, candidate
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line

WINDOW_MIN = 32
WINDOW_MAX = 2000
"""Entries of a line that are read at a time: enough that each of its claimers finds its own."""
LINES_AHEAD = 32
"""Lines whose heads a claim requests together."""
LOOKS_MAX = 8
"""How often a claim that has nothing yet reads further lines."""
MANY = 8
"""Jobs of another claimer that are enough for two claimers."""


class Mode(Enum):
    """How an attempt shares a line with other claimers."""

    ANNOUNCE = auto()
    """Takes its own jobs, but of a long line only after the store's name is known there."""
    OWN = auto()
    """Takes the jobs that are assigned to it, and some of claimers that have many."""
    ANY = auto()
    """Takes also jobs that are assigned to others."""


class NotAnnounced(Exception):
    """The store is about to claim from a long line at which its name was never written."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self.line = line


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
            await self.lines.read_next()
            await self._serve()
            if self.leases or not self.lines.stopped:
                break  # Else there are more tenants than it read, and one of them may have jobs.
        await limits_groups.reopen_freed(self.step)

    async def _serve(self) -> None:
        """Gives turns to the tenants that were read until the claim is full or nothing is left."""
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
        self.step.settings.ask(tenants)
        await self._prepare(tenants[:LINES_AHEAD], share)
        await self.step.settings.load(tenants)
        weights = [self.step.settings.tenant(tenant).weight for tenant in tenants]
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
        """Requests what the turns of these tenants will probably read: the heads of their lines,
        or their jobs.
        """
        await self.lines.read_lines(tenants)
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
        """The tenant's lines whose turn is next."""
        joined = self.lines.open.get(tenant, {})
        waiting = [line for queue in joined if (line := (tenant, queue)) not in self.dry]
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
        """Requests the heads of lines, each of which may give about so many jobs."""
        step = self.step
        for line, share in shares.items():
            ask_claimers(step, line)
            if line not in self._windows:
                self._windows[line] = _window(share, self.claimers.count(line))
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
        return await self._take_line(line, wanted, rooms)

    async def _take_line(self, line: Line, wanted: int, rooms: list[limits.Room]) -> int:
        step, prefix = self.step, self.step.keys.ready(*line)
        there = await join(step, self.claimers, line)
        share = there.index(self.claimers.name), len(there)
        self._start = partial(_start, rooms, share)
        if len(there) > 1 and rooms and not self._takes_any:
            wanted = min(wanted, *(room.left_for(share) for room in rooms))
            if wanted == 0:
                # There is room, but in parts of others: they are about to take it.
                self.others_left = True
                self.left += min(room.left() for room in rooms)
        if self.claimers.should_announce(line, step.at.version):
            self.joined.append(line)
        window = max(self._windows.get(line, 0), _window(wanted, len(there)))
        begin, end, taken = prefix, after(prefix), 0
        others: dict[str, list[Candidate]] = {}
        while taken < wanted and begin < end:
            pairs = await step.range(begin, end, window, snapshot=True)
            if not pairs and begin == prefix:
                self.empty.append(line)
            if self._announces and len(pairs) >= WINDOW_MIN and self.claimers.is_new_at(line):
                raise NotAnnounced(line)  # Else all that begin here at once would take its head.
            found = [candidate(*pair) for pair in pairs]
            found = [each for each in found if each.group not in self.claim.exclude_groups]
            own, theirs = assign(found, self.claimers.name, there)
            others = others or theirs
            taken += await self._take_some(line, own, wanted - taken)
            if not taken and self.claimers.any_reserved(own):
                self.others_left = True
            if len(pairs) < window:
                break
            begin = pairs[-1][0] + b"\0"
        if others and not taken:
            taken = await self._take_some(line, self._of_others(others, there), wanted)
        return taken

    def _of_others(self, others: dict[str, list[Candidate]], there: list[str]) -> list[Candidate]:
        """The jobs of other claimers that this one may take: of those who have many the last ones,
        where it is the second choice; and with Mode.ANY any that are left.
        """
        me, second = self.claimers.name, ring(tuple(there)).second
        enough = max(MANY, 3 * self.claim.limit)
        many = [jobs[len(jobs) // 2 :] for jobs in others.values() if len(jobs) >= enough]
        part = [each for jobs in many for each in jobs if second(each.stamp) == me]
        self.others_left = not part
        self.left += sum(map(len, others.values()))
        if self._takes_any and not part:
            left = [each for name in sorted(others) for each in others[name]]
            mine = [each for each in left if second(each.stamp) == me]
            part = mine or [left[there.index(me) % len(left)]]
        return part

    async def _take_some(self, line: Line, some: list[Candidate], wanted: int) -> int:
        taken = 0
        while taken < wanted and some and self.room > 0:
            chosen = self.claimers.reserve(some, wanted - taken, self.step.at.version)
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
        """Requests payloads that are not in their rows, and the room of groups."""
        size = self.bytes
        for row in rows:
            if row is None:
                continue
            if row.group is not None:
                limits.ask_rooms(self.step, row.tenant, (ScopeKind.GROUP, row.group))
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
        """The lines that had a turn."""
        return [one for one in self.ranks if not isinstance(one, str)]

    # -- afterwards ------------------------------------------------------------------------------

    def committed(self) -> None:
        """Records what the attempt did to turns, once it is committed."""
        for line in self.joined:
            self.claimers.announced(line, self.step.at.version)
        self.turns.served(self.ranks, self.credits)
        self.lines.committed()
        self.claimers.release(self.reserved, self.step.committed)
        self.reserved.clear()

    def release(self) -> None:
        """Lets other claims of the store have what this one did not take."""
        self.claimers.release(self.reserved)
        self.reserved.clear()


def ask(step: Step, claim: Claim, turns: Turns) -> None:
    """Requests what an attempt reads first."""
    Lines(step, turns, (claim.tenants, claim.queues)).ask()


def _start(rooms: list[limits.Room], share: limits.Share) -> tuple[int, ...]:
    """Takes the places of one job, in this claimer's parts if it can; returns the parts."""
    parts = tuple(room.start(share) for room in rooms)
    return parts if max(parts, default=-1) >= 0 else ()


def _window(wanted: int, claimers: int) -> int:
    """How many entries of a line to read, so that each of its claimers finds its own."""
    return min(WINDOW_MAX, max(WINDOW_MIN, 2 * wanted * claimers))
