"""Claim: makes ready what is due, then leases jobs: tenants in turn, the lines of each in turn."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from holdfast.core.bounds import (
    CLAIM_REPEAT_S,
    ERROR_CHARS_MAX,
    REPAIR_MAX,
    REPAIR_PASSES_MAX,
)
from holdfast.core.clock import Micros, micros
from holdfast.core.job import EventKind, JobRecord, Lease, Reason, State
from holdfast.core.journal import Entry
from holdfast.core.scope import PLATFORM, ScopeKind, line_share, rounds
from holdfast.store import Claim, Ref
from holdfast.stores.notifier import Line
from holdfast.stores.repeats import asked_for
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.claim_look import Look
from holdfast.stores.sqlite.claim_platform import PlatformRound, PlatformTurn
from holdfast.stores.sqlite.claim_repair import next_instant, overdue, repair
from holdfast.stores.sqlite.fairness import (
    TurnCredits,
    Turns,
    any_open,
    next_lines,
    next_tenants,
)
from holdfast.stores.sqlite.joins import release
from holdfast.stores.sqlite.journal import brought, remembered, with_journals
from holdfast.stores.sqlite.limits import apply_tenant_limits
from holdfast.stores.sqlite.limits_groups import gate_jobs, grant
from holdfast.stores.sqlite.limits_platform import any_to_let_in, set_jobs_aside
from holdfast.stores.sqlite.limits_room import Room, line_rooms
from holdfast.stores.sqlite.limits_tiers import Looks
from holdfast.stores.sqlite.rows import (
    DEFAULT_RULES,
    JOURNAL,
    SEQ,
    Parent,
    claimed,
    edges_of,
    record,
    storable_text,
)
from holdfast.stores.sqlite.transaction import Transaction

FORGOTTEN_MAX = 8
"""Claims whose time is over that a new one deletes."""

TYPED_PAGE = 64
"""Jobs of a line that a claim looks at together, where types have limits."""

FULL_MAX = REPAIR_MAX * REPAIR_PASSES_MAX
"""Tenants and lines without room that a claim meets and closes, and jobs that it puts back because
their groups have no room. Only a tier that lowers limits leaves them where claims meet them.
"""

_encode = msgspec.json.Encoder().encode


def nothing_to_claim(connection: sqlite3.Connection, claim: Claim, now: Micros) -> bool:
    """True when a claim would neither find nor repair anything."""
    lines = claim.tenants, claim.queues
    if any_open(connection, *lines) or overdue(connection, now):
        return False
    if any_to_let_in(connection, *lines, now):
        return False
    return connection.execute(sql.CLAIM_OF, (claim.nonce, now)).fetchone() is None


def claim_jobs(transaction: Transaction, claim: Claim, credits: TurnCredits) -> list[Lease]:
    """Leases up to `claim.limit` jobs. A claim that is repeated gets its first leases again."""
    transaction.full_until = None
    known = transaction.execute(sql.CLAIM_OF, (claim.nonce, transaction.now)).fetchone()
    if known is not None:
        return _leases_of_repeat(transaction, claim, known[0])
    repair(transaction, credits)
    leases = _claim_in_turns(transaction, claim, credits)
    if leases:
        _remember_claim(transaction, claim, leases)
    release(transaction)
    return leases


# -- repeats ---------------------------------------------------------------------------------------


def _leases_of_repeat(transaction: Transaction, claim: Claim, seqs: str) -> list[Lease]:
    """The leases of a repeated claim that are still valid."""
    now = transaction.now
    found = transaction.execute(sql.HELD_STILL, (seqs, f"{claim.nonce}.", now)).fetchall()
    journals = dict[int, Any]()
    leases = []
    for token, until, journal, *row in found:
        job = record(row, now)
        if asked_for(claim, job):
            leases.append(Lease(job, token, until))
            if journal is not None:
                journals[job.seq] = journal
    return with_journals(transaction.connection, leases, journals)


def _remember_claim(transaction: Transaction, claim: Claim, leases: list[Lease]) -> None:
    now = transaction.now
    transaction.execute(sql.CLAIMS_DROP, (now, FORGOTTEN_MAX))
    seqs = listed([lease.job.seq for lease in leases])
    transaction.execute(sql.CLAIM_PUT, (claim.nonce, now + micros(CLAIM_REPEAT_S), seqs))


# -- take ------------------------------------------------------------------------------------------


class _Taken:
    """What one claim has taken. Its rows are written together, before the claim reads again."""

    def __init__(self, transaction: Transaction, claim: Claim) -> None:
        self.transaction = transaction
        self.claim = claim
        self.leases: list[Lease] = []
        self.full_tenants: set[str] = set()
        """Tenants that the claim met without room."""
        self._full_lines: set[Line] = set()
        self._full_left = FULL_MAX
        self._seqs: list[int] = []

    @property
    def room(self) -> int:
        return self.claim.limit - len(self.leases)

    def add(self, job: JobRecord, until: Micros, journal: tuple[Entry, ...], left_out: int) -> None:
        self.leases.append(Lease(job, f"{self.claim.nonce}.{job.seq}", until, journal, left_out))
        self._seqs.append(job.seq)

    @property
    def goes_on(self) -> bool:
        """Whether the claim may look further. The next claim goes on where this one ends."""
        return self._full_left > 0

    def met_full(self, number: int = 1) -> None:
        """Counts what the claim met that has no room."""
        self._full_left -= number

    def is_full(self, line: Line, rooms: list[Room]) -> bool:
        """Whether the tenant or the queue of a line has no room; then it is closed."""
        for room in rooms:
            if room.left() == 0:
                self.met_full()
                if room.scope.kind is ScopeKind.TENANT:
                    self.full_tenants.add(line[0])
                    self.transaction.tenants_to_check.add(line[0])
                else:
                    self._full_lines.add(line)
                    self.transaction.lines_to_check.add(line)
                return True
        return False

    def may_take(self, tenant: str) -> bool:
        """Whether further lines of the tenant may have jobs for the claim."""
        return self.goes_on and tenant not in self.full_tenants

    def close_full(self) -> set[Line]:
        """Closes what has no room, so that the claim need not read it again; returns the lines.
        Where there are no tiers, what can be claimed from has room.
        """
        closed: set[Line] = set()
        if self.transaction.scope_cache.tiered and (self._full_lines or self.full_tenants):
            apply_tenant_limits(self.transaction)
            closed, self._full_lines = self._full_lines, closed
        return closed

    def look_again(self, looks: Looks) -> set[str]:
        """Opens what changed tiers have made room for; returns the tenants that it looked at."""
        tenants = looks.portion()
        if tenants:
            apply_tenant_limits(self.transaction)
            self.full_tenants -= tenants
        return tenants

    def write(self) -> None:
        if self._seqs:
            claim, now = self.claim, self.transaction.now
            seqs = listed(self._seqs)
            values = (f"{claim.nonce}.", now + claim.lease_us, claim.worker, now, seqs)
            self.transaction.execute(sql.HOLD_JOBS, values)
            self._seqs.clear()


def _claim_in_turns(transaction: Transaction, claim: Claim, credits: TurnCredits) -> list[Lease]:
    """Leases jobs of the tenants and queues that the claim names: tenants take turns by weight."""
    taken = _Taken(transaction, claim)
    turns = Turns(transaction, credits)
    platform = PlatformRound(transaction, claim)
    looks = Looks(transaction, claim)
    dry: set[str] = set()
    """Tenants without more jobs for this claim."""
    taken.look_again(looks)
    while platform.goes_on and taken.goes_on and (room := platform.room(taken.room)) > 0:
        before = len(taken.leases), len(dry)
        let_in = platform.let_in(room)
        dry -= let_in
        # More tenants than jobs cannot be served.
        most = room + len(dry)
        found = next_tenants(transaction, claim.tenants, claim.queues, most)
        tenants = [tenant for tenant in found if tenant not in dry]
        if tenants:
            dry |= _claim_round(taken, turns, platform, tenants, room)
            platform.start(PLATFORM, len(taken.leases) - before[0])
            taken.write()
            turns.write()
            taken.close_full()
        if not let_in and before == (len(taken.leases), len(dry)):
            looked = taken.look_again(looks)
            if not looked:
                break
            dry -= looked
    platform.save()
    if taken.room > 0 and platform.is_full:
        transaction.full_until = next_instant(transaction.connection, transaction.now)
    return taken.leases


def _claim_round(
    taken: _Taken, turns: Turns, platform: PlatformRound, tenants: list[str], room: int
) -> set[str]:
    """Gives each of the tenants its turn, until there is no more room; returns those that have
    nothing more.
    """
    dry: set[str] = set()
    weights = [taken.transaction.scope_cache.weight(tenant) for tenant in tenants]
    times = rounds(room, weights)
    platform.begin(weights)
    for tenant, weight in zip(tenants, weights, strict=True):
        if room == 0 or not taken.goes_on:
            break
        turn = platform.turn(weight)
        allowed = turns.allowance(tenant, weight * times)
        wanted = min(allowed, room)
        number = _claim_tenant(taken, turns, tenant, turn, wanted)
        if number < wanted and not turn.has_more:
            dry.add(tenant)
        owed = min(allowed, weight) - number
        if owed > 0 and number < room and turn.stopped:
            turns.end_tenant(tenant, owed)  # It goes on when there is room.
        else:
            full = number == room and number < allowed
            turns.end_tenant(tenant, allowed - number if full else 0)
        room -= number
    return dry


def _claim_tenant(taken: _Taken, turns: Turns, tenant: str, turn: PlatformTurn, wanted: int) -> int:
    """Leases up to `wanted` jobs of a tenant, whose lines take turns; returns how many."""
    connection, queues = taken.transaction.connection, taken.claim.queues
    left = wanted
    dry: set[str] = set()
    while True:
        # One line more than can be served: the order of a single line need not be written.
        found = next_lines(connection, tenant, queues, left + len(dry) + 1)
        lines = [queue for queue in found if queue not in dry][:left]
        if not lines:
            break
        share = line_share(left, len(lines))
        # The first lines have one more, as if they were visited twice.
        twice = max(0, left - share * len(lines))
        for place, queue in enumerate(lines):
            asked = min(share + (place < twice), left)
            if asked == 0 or not taken.may_take(tenant):
                break
            number = _claim_line(taken, (tenant, queue), turn, asked)
            left -= number
            if number < asked:
                dry.add(queue)
            if len(found) > 1 or queues is not None:
                turns.end_line(tenant, queue)
        for queue in lines[:twice]:
            if queue not in dry:
                turns.end_line(tenant, queue)
        if left == 0 or not taken.may_take(tenant):
            break
        taken.write()
        turns.write()
        dry -= {queue for _, queue in taken.close_full()}
    return wanted - left


def _claim_line(taken: _Taken, line: Line, turn: PlatformTurn, wanted: int) -> int:
    """Leases up to `wanted` jobs of a line, within the limits of its tenant and its queue."""
    transaction = taken.transaction
    tenant, queue = line
    rooms: list[Room] = []
    if transaction.scope_cache.limited(tenant):
        # Lines share the limits of their tenant, so the counts must have the visits before this
        # one.
        transaction.write_counts(tenant)
        rooms = line_rooms(transaction, tenant, queue)
        if taken.is_full(line, rooms):
            return 0
    wanted = min(wanted, turn.line_room(line), *(room.left() for room in rooms))
    if wanted == 0:
        return 0
    number = _lease_first(taken, line, turn, wanted)
    turn.start_line(queue, number)
    for room in rooms:
        room.start(number)
        room.save()
    return number


def _lease_first(taken: _Taken, line: Line, turn: PlatformTurn, wanted: int) -> int:
    """Leases the first jobs of a line; where groups or types have limits, those that have room."""
    transaction = taken.transaction
    tenant, queue = line
    if turn.typed or taken.claim.exclude_groups or transaction.scope_cache.grouping(tenant):
        return _lease_one_by_one(taken, line, turn, wanted)
    return _lease(taken, line, sql.TAKE, (queue, tenant, transaction.now, wanted))


def _lease_one_by_one(taken: _Taken, line: Line, turn: PlatformTurn, wanted: int) -> int:
    """Leases the first jobs of a line that are not excluded and whose type and group have room."""
    transaction = taken.transaction
    tenant, queue = line
    excluded = _encode(taken.claim.exclude_groups).decode()
    page = max(wanted, TYPED_PAGE) if turn.typed else wanted
    look = Look(transaction, line, turn)
    while look.goes_on and taken.goes_on and len(look.seqs) < wanted:
        values = (queue, tenant, transaction.now, excluded, page)
        look.read(transaction.execute(sql.STARTABLE, values).fetchall(), wanted)
        gate_jobs(transaction, tenant, queue, look.back)
        taken.met_full(len(look.back))
        set_jobs_aside(transaction, line, look.aside)
        if look.freed is not None:
            # The group counts its jobs by their rows and by the counts: these must agree.
            taken.write()
            transaction.write_counts()
            grant(transaction, tenant, look.freed)
    look.save()
    return _lease(taken, line, sql.TAKE_THESE, (listed(list(look.seqs)),))


def _lease(taken: _Taken, line: Line, statement: str, values: tuple[Any, ...]) -> int:
    """Leases the jobs that the query gives: counts them and records events; returns how many."""
    transaction, worker = taken.transaction, taken.claim.worker
    now = transaction.now
    until = now + taken.claim.lease_us
    tenant, queue = line
    alike: dict[tuple[str | None, str, int, int], list[str]] = {}
    rows = transaction.execute(statement, values).fetchall()
    number = 0
    with_journal = [row for row in rows if row[JOURNAL] is not None]
    stored = remembered(transaction.connection, with_journal) if with_journal else {}
    for row in rows:
        try:
            job = claimed(row, line, worker, now, until)
            journal, left_out = brought(stored[job.seq]) if job.seq in stored else ((), 0)
        except Exception as error:  # A bad record must not keep the others from running.
            fail_unreadable(transaction, row[SEQ], error)
            continue
        taken.add(job, until, journal, left_out)
        kind = (job.group, job.envelope.type, job.attempt, job.fence)
        alike.setdefault(kind, []).append(job.id)
        number += 1
    for (group, type, attempt, fence), ids in alike.items():
        where = (tenant, queue, group)
        transaction.count_move(where, "enqueued", "processing", len(ids), type=type)
        of = (tenant, queue, type)
        transaction.record_events(
            EventKind.LEASED, of, ids, attempt, fence, until=until, text=worker
        )
    return number


def fail_unreadable(transaction: Transaction, seq: int, error: Exception) -> None:
    """Fails a job whose stored record cannot be read."""
    now = transaction.now
    why = storable_text(f"the stored record cannot be read: {error}"[:ERROR_CHARS_MAX])
    values = (why, now, now, now + DEFAULT_RULES.keep_failed_us, seq)
    found = transaction.execute(sql.SET_ASIDE, values).fetchone()
    tenant, id, queue, type, attempt, fence, group, key, size, edges = found
    if key is not None:
        transaction.execute(sql.KEY_RELEASE, (tenant, queue, type, key, id, now))
    transaction.count_move((tenant, queue, group), "enqueued", "failed", 1, -size)
    transaction.ended_jobs.append(Ref(tenant, id))
    if edges is not None:
        parent = Parent(seq, tenant, id, State.FAILED.value, edges_of(edges))
        transaction.parents.append(parent)
    name = (tenant, id, queue, type)
    text = f"{Reason.DECODE.value}: {why}"
    transaction.record_event(EventKind.FAILED, name, attempt, fence, text=text)
    if transaction.group_drained(tenant, group):
        transaction.record_event(EventKind.DRAINED, name, attempt, fence, text=group)
