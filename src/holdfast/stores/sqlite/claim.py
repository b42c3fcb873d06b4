"""Claim: makes ready what is due, then leases jobs: tenants in turn, the lines of each in turn."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from holdfast.core.bounds import (
    CLAIM_REPEAT_S,
    ERROR_CHARS_MAX,
)
from holdfast.core.clock import Micros, micros
from holdfast.core.job import EventKind, JobRecord, Lease, Reason
from holdfast.core.scope import rounds
from holdfast.store import Claim, Ref
from holdfast.stores.notifier import Line
from holdfast.stores.repeats import asked_for
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.claim_repair import overdue, repair
from holdfast.stores.sqlite.fairness import (
    TurnCredits,
    Turns,
    any_open,
    next_lines,
    next_tenants,
)
from holdfast.stores.sqlite.limits_groups import gate_jobs
from holdfast.stores.sqlite.limits_room import Room, group_room, line_rooms
from holdfast.stores.sqlite.rows import DEFAULT_RULES, SEQ, claimed, record, storable_text
from holdfast.stores.sqlite.transaction import Transaction

FORGOTTEN_MAX = 8
"""Claims whose time is over that a new one deletes."""

_encode = msgspec.json.Encoder().encode


def nothing_to_claim(connection: sqlite3.Connection, claim: Claim, now: Micros) -> bool:
    """True when a claim would neither find nor repair anything."""
    if any_open(connection, claim.tenants, claim.queues) or overdue(connection, now):
        return False
    return connection.execute(sql.CLAIM_OF, (claim.nonce, now)).fetchone() is None


def claim_jobs(transaction: Transaction, claim: Claim, credits: TurnCredits) -> list[Lease]:
    """Leases up to `claim.limit` jobs. A claim that is repeated gets its first leases again."""
    known = transaction.execute(sql.CLAIM_OF, (claim.nonce, transaction.now)).fetchone()
    if known is not None:
        return _leases_of_repeat(transaction, claim, known[0])
    repair(transaction)
    leases = _claim_in_turns(transaction, claim, credits)
    if leases:
        _remember_claim(transaction, claim, leases)
    return leases


# -- repeats ---------------------------------------------------------------------------------------


def _leases_of_repeat(transaction: Transaction, claim: Claim, seqs: str) -> list[Lease]:
    """The leases of a repeated claim that are still valid."""
    now = transaction.now
    found = transaction.execute(sql.HELD_STILL, (seqs, f"{claim.nonce}.", now)).fetchall()
    leases = [Lease(record(row, now), token, until) for token, until, *row in found]
    return [lease for lease in leases if asked_for(claim, lease.job)]


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
        self._seqs: list[int] = []

    @property
    def room(self) -> int:
        return self.claim.limit - len(self.leases)

    def add(self, job: JobRecord, until: Micros) -> None:
        self.leases.append(Lease(job, f"{self.claim.nonce}.{job.seq}", until))
        self._seqs.append(job.seq)

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
    dry: set[str] = set()
    """Tenants without more jobs for this claim."""
    while (room := taken.room) > 0:
        # More tenants than jobs cannot be served.
        most = room + len(dry)
        found = next_tenants(transaction, claim.tenants, claim.queues, most)
        tenants = [tenant for tenant in found if tenant not in dry]
        if not tenants:
            break
        weights = [transaction.scope_cache.weight(tenant) for tenant in tenants]
        times = rounds(room, weights)
        for tenant, weight in zip(tenants, weights, strict=True):
            room = taken.room
            if room == 0:
                break
            allowed = credits.allowance(tenant, weight * times)
            wanted = min(allowed, room)
            number = _claim_tenant(taken, turns, tenant, wanted)
            if number < wanted:
                dry.add(tenant)
            full = number == room and number < allowed
            turns.end_tenant(tenant, allowed - number if full else 0)
        taken.write()
        turns.write()
    return taken.leases


def _claim_tenant(taken: _Taken, turns: Turns, tenant: str, wanted: int) -> int:
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
        share = rounds(left, [1] * len(lines))
        for queue in lines:
            asked = min(share, left)
            if asked == 0:
                break
            number = _claim_line(taken, (tenant, queue), asked)
            left -= number
            if number < asked:
                dry.add(queue)
            if len(found) > 1 or queues is not None:
                turns.end_line(tenant, queue)
        if left == 0:
            break
        taken.write()
        turns.write()
    return wanted - left


def _claim_line(taken: _Taken, line: Line, wanted: int) -> int:
    """Leases up to `wanted` jobs of a line, within the limits of its tenant and its queue."""
    transaction = taken.transaction
    tenant, queue = line
    if tenant not in transaction.scope_cache.tenants:
        return _lease_first(taken, line, wanted)
    # Lines share the limits of their tenant, so the counts must have the visits before this one.
    transaction.write_counts(tenant)
    rooms = line_rooms(transaction, tenant, queue)
    wanted = min(wanted, *(room.left() for room in rooms))
    if wanted == 0:
        return 0
    number = _lease_first(taken, line, wanted)
    for room in rooms:
        room.start(number)
        room.save()
    return number


def _lease_first(taken: _Taken, line: Line, wanted: int) -> int:
    """Leases the first jobs of a line; where groups have limits, those whose groups have room."""
    transaction = taken.transaction
    tenant, queue = line
    if taken.claim.exclude_groups or tenant in transaction.scope_cache.grouping:
        return _lease_by_group(taken, line, wanted)
    return _lease(taken, line, sql.TAKE, (queue, tenant, transaction.now, wanted))


def _lease_by_group(taken: _Taken, line: Line, wanted: int) -> int:
    """Leases the first jobs of a line that are not excluded and whose groups have room."""
    transaction = taken.transaction
    tenant, queue = line
    excluded = _encode(taken.claim.exclude_groups).decode()
    rooms: dict[str, Room] = {}
    seqs: list[int] = []
    while len(seqs) < wanted:
        values = (queue, tenant, transaction.now, excluded, wanted)
        found = transaction.execute(sql.STARTABLE, values).fetchall()
        fresh = [(seq, group) for seq, group in found if seq not in seqs]
        back: list[int] = []
        for seq, group in fresh[: wanted - len(seqs)]:
            if _may_start(transaction, line, group, rooms):
                seqs.append(seq)
            else:
                back.append(seq)
                transaction.groups_to_check.add((tenant, group))
        gate_jobs(transaction, tenant, queue, back)
        if not back:
            break
    for room in rooms.values():
        room.save()
    return _lease(taken, line, sql.TAKE_THESE, (listed(seqs),))


def _may_start(
    transaction: Transaction, line: Line, group: str | None, rooms: dict[str, Room]
) -> bool:
    tenant, queue = line
    if group is None or not transaction.scope_cache.gated(tenant, group, queue):
        return True
    room = rooms.get(group)
    if room is None:
        room = rooms[group] = group_room(transaction, tenant, group, queue)
    if room.left() == 0:
        return False
    room.start()
    return True


def _lease(taken: _Taken, line: Line, statement: str, values: tuple[Any, ...]) -> int:
    """Leases the jobs that the query gives: counts them and records events; returns how many."""
    transaction, worker = taken.transaction, taken.claim.worker
    now = transaction.now
    until = now + taken.claim.lease_us
    tenant, queue = line
    groups: dict[str | None, int] = {}
    for row in transaction.execute(statement, values).fetchall():
        try:
            job = claimed(row, line, worker, now, until)
        except Exception as error:  # A bad record must not keep the others from running.
            fail_unreadable(transaction, row[SEQ], error)
            continue
        taken.add(job, until)
        groups[job.group] = groups.get(job.group, 0) + 1
        name = (tenant, job.id, queue, job.envelope.type)
        transaction.record_event(
            EventKind.LEASED, name, job.attempt, job.fence, until=until, text=worker
        )
    for group, number in groups.items():
        transaction.count_move((tenant, queue, group), "enqueued", "processing", number)
    return sum(groups.values())


def fail_unreadable(transaction: Transaction, seq: int, error: Exception) -> None:
    """Fails a job whose stored record cannot be read."""
    now = transaction.now
    why = storable_text(f"the stored record cannot be read: {error}"[:ERROR_CHARS_MAX])
    values = (why, now, now, now + DEFAULT_RULES.keep_failed_us, seq)
    found = transaction.execute(sql.SET_ASIDE, values).fetchone()
    tenant, id, queue, type, attempt, fence, group, key, size = found
    if key is not None:
        transaction.execute(sql.KEY_RELEASE, (tenant, queue, type, key, id, now))
    transaction.count_move((tenant, queue, group), "enqueued", "failed", 1, -size)
    transaction.ended_jobs.append(Ref(tenant, id))
    name = (tenant, id, queue, type)
    text = f"{Reason.DECODE.value}: {why}"
    transaction.record_event(EventKind.FAILED, name, attempt, fence, text=text)
    if transaction.group_drained(tenant, group):
        transaction.record_event(EventKind.DRAINED, name, attempt, fence, text=group)
