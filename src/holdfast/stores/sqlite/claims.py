"""Which jobs a claim takes: repair first, then the lines in turn. And what a sleeper waits for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.clock import SECOND, Micros, seconds
from holdfast.job import TERMINAL, EventKind, Lease
from holdfast.limits import REPAIR_MAX, REPAIR_PASSES_MAX, WAIT_S_MAX
from holdfast.scope import rounds
from holdfast.store import Claim, Watch
from holdfast.stores.sql_rows import BLOCKED, STATES
from holdfast.stores.sqlite import filing, gates, packs
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.packing import Head
from holdfast.stores.sqlite.rows import claimed, packed
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.turns import Place, Turns, open_lines

FEW = 8
"""Posted jobs that are leased without standing in line."""

_encode = msgspec.json.Encoder().encode


def idle(connection: sqlite3.Connection, claim: Claim, now: Micros) -> bool:
    """True when a claim would neither find nor repair anything."""
    if filing.unfiled(connection) or open_lines(connection, claim.tenants, claim.queues, 1):
        return False
    return not overdue(connection, now)


def overdue(connection: sqlite3.Connection, now: Micros) -> bool:
    """True when there is something to repair."""
    *opening, _ = _next(connection)
    return any(at is not None and at <= now for at in opening)


def claim(transaction: Transaction, claim: Claim, turns: Turns) -> list[Lease]:
    """Files what was posted, if nobody has in this transaction."""
    leases = take_posted(transaction, claim)
    if leases is not None:
        return leases
    filing.file(transaction)
    repair(transaction)
    return _take(transaction, claim, turns)


def take_posted(transaction: Transaction, claim: Claim) -> list[Lease] | None:
    """The short way of jobs that an idle worker was woken for: they are leased as they are filed,
    and never stand in a line. None when there is anything else to see to.
    """
    connection = transaction.connection
    if not transaction.posted or overdue(connection, transaction.now):
        return None
    if open_lines(connection, None, None, 1):
        return None
    parcel = filing.only(transaction)
    if parcel is None or len(parcel.ids) > min(claim.limit, FEW):
        return None
    head = parcel.shared
    if (
        head.tenant in transaction.rules.tenants
        or (claim.tenants is not None and head.tenant not in claim.tenants)
        or (claim.queues is not None and head.queue not in claim.queues)
    ):
        return None
    held = _held(transaction, claim)
    return _leased(transaction, head, filing.keep_held(transaction, parcel, held), held)


# -- repair ----------------------------------------------------------------------------------------


def repair(transaction: Transaction) -> None:
    """Brings all up to this instant, within bounds."""
    for _ in range(REPAIR_PASSES_MAX):
        if _repair(transaction) < REPAIR_MAX:
            break
    gates.open_up(transaction)


def _repair(transaction: Transaction) -> int:
    """Makes due jobs and lapsed leases ready, and opens what time has opened: REPAIR_MAX of each.

    Returns how many it moved.
    """
    now = transaction.now
    due, lapse, pieces, opens, outlived = (
        at is not None and at <= now for at in _next(transaction.connection)
    )
    moved = _promote(transaction) if due else 0
    if pieces:
        packs.open_lapsed(transaction, REPAIR_MAX)
    moved += _rescue(transaction) if lapse or pieces else 0
    moved += gates.reopen(transaction, REPAIR_MAX) if opens else 0
    # Last, for the jobs made ready just now may have outlived their time too.
    return moved + (_retire(transaction) if outlived or moved else 0)


def _promote(transaction: Transaction) -> int:
    due = transaction.execute(sql.PROMOTABLE, (transaction.now, REPAIR_MAX)).fetchall()
    rows = []
    for seq, tenant, queue, group, state in due:
        gated = transaction.rules.gated(tenant, group, queue)
        rows.append((int(gated), seq))
        transaction.move((tenant, queue, group), state, BLOCKED if gated else "enqueued")
    transaction.connection.executemany(sql.PROMOTE, rows)
    return len(due)


def _rescue(transaction: Transaction) -> int:
    now = transaction.now
    rescued = transaction.execute(sql.RESCUE, (now, now, REPAIR_MAX)).fetchall()
    gated: list[int] = []
    for _, seq, tenant, id, queue, type, attempt, fence, group in sorted(rescued):
        waits = transaction.rules.gated(tenant, group, queue)
        if waits:
            gated.append(seq)
        transaction.move((tenant, queue, group), "processing", BLOCKED if waits else "enqueued")
        transaction.note(EventKind.RESCUED, (tenant, id, queue, type), attempt, fence)
    if gated:
        transaction.execute(sql.GATE, (_encode(gated).decode(),))
    return len(rescued)


def _retire(transaction: Transaction) -> int:
    retired = transaction.execute(sql.RETIRE, (transaction.now, REPAIR_MAX)).fetchall()
    for tenant, queue, group, state, gate in retired:
        if state == "enqueued" and not gate:
            transaction.move((tenant, queue, None), "enqueued", BLOCKED)
            if transaction.rules.gated(tenant, group, queue):
                transaction.groups.add((tenant, group))
    return len(retired)


# -- take ------------------------------------------------------------------------------------------


def _take(transaction: Transaction, claim: Claim, turns: Turns) -> list[Lease]:
    """Leases from the lines the claim names, in turn, each tenant by its weight."""
    leases: list[Lease] = []
    dry: set[Place] = set()
    """Lines that have nothing more for this claim."""
    while (room := claim.limit - len(leases)) > 0:
        # More lines than jobs wanted cannot be served anyway.
        most = room + len(dry)
        found = open_lines(transaction.connection, claim.tenants, claim.queues, most)
        lines = [line for line in found if line not in dry]
        for line, taken, wanted in _round(transaction, claim, turns, lines, room):
            leases += taken
            if len(taken) < wanted or wanted == 0:
                dry.add(line)
        if len(found) < most and dry.issuperset(lines):
            break  # These were all there are.
    return leases


def _round(
    transaction: Transaction, claim: Claim, turns: Turns, lines: list[Place], room: int
) -> Iterator[tuple[Place, list[Lease], int]]:
    """Gives each of the lines its turn, until so many are taken: what it took, of how many it could
    have.
    """
    weights = [transaction.rules.weight(tenant) for _, tenant in lines]
    times = rounds(room, weights) if lines else 0
    for line, weight in zip(lines, weights, strict=True):
        if room == 0:
            return
        allowed = turns.allowance(line, weight * times)
        taken, wanted = _take_line(transaction, line, claim, min(allowed, room))
        full = len(taken) == room and len(taken) < allowed
        turns.served(transaction, line, allowed - len(taken) if full else 0)
        room -= len(taken)
        yield line, taken, wanted


def _take_line(
    transaction: Transaction, line: Place, claim: Claim, wanted: int
) -> tuple[list[Lease], int]:
    """Up to so many jobs of a line, and how many its scopes let it have."""
    queue, tenant = line
    if tenant not in transaction.rules.tenants:
        return _lease_first(transaction, line, claim, wanted), wanted
    # Each visit must see what those before it took: lines share their tenant, parts their group.
    transaction.settle(tenant)
    rooms = gates.rooms(transaction, tenant, queue)
    wanted = min(wanted, *(room.left() for room in rooms))
    if wanted == 0:
        return [], 0
    leases = _lease_first(transaction, line, claim, wanted)
    for room in rooms:
        room.start(len(leases))
        room.save()
    return leases, wanted


def _lease_first(transaction: Transaction, line: Place, claim: Claim, wanted: int) -> list[Lease]:
    """Leases the first jobs of a line: in one statement where no group is in question."""
    queue, tenant = line
    if claim.exclude_groups or tenant in transaction.rules.grouping:
        packs.open_front(transaction, queue, tenant, wanted)
        return _lease_these(transaction, line, claim, wanted)
    leases: list[Lease] = []
    while (left := wanted - len(leases)) > 0:
        pack = packs.first(transaction, queue, tenant)
        if pack is None:
            values = (queue, tenant, transaction.now, left)
            return leases + _lease(transaction, line, claim, sql.TAKE, values)
        priority, seq = pack.place
        before = (queue, tenant, transaction.now, priority, priority, seq, left)
        leases += _lease(transaction, line, claim, sql.TAKE_BEFORE, before)
        if len(leases) < wanted:
            leases += _lease_pack(transaction, pack, claim, wanted - len(leases))
    return leases


def _lease_these(transaction: Transaction, line: Place, claim: Claim, wanted: int) -> list[Lease]:
    """Leases the first jobs of a line that are not excluded and whose groups have room."""
    queue, tenant = line
    excluded = _encode(claim.exclude_groups).decode()
    rooms: dict[str, gates.Room] = {}
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
                transaction.groups.add((tenant, group))
        gates.gate_again(transaction, tenant, queue, back)
        if not back:
            break
    for room in rooms.values():
        room.save()
    return _lease(transaction, line, claim, sql.TAKE_THESE, (_encode(seqs).decode(),))


def _may_start(
    transaction: Transaction, line: Place, group: str | None, rooms: dict[str, gates.Room]
) -> bool:
    queue, tenant = line
    if group is None or not transaction.rules.gated(tenant, group, queue):
        return True
    room = rooms.get(group)
    if room is None:
        room = rooms[group] = gates.group_room(transaction, tenant, group, queue)
    if room.left() == 0:
        return False
    room.start()
    return True


def _lease(
    transaction: Transaction, line: Place, claim: Claim, statement: str, values: tuple[Any, ...]
) -> list[Lease]:
    """Leases the jobs that the statement names, and counts and records it."""
    now = transaction.now
    until = now + claim.lease_us
    queue, tenant = line
    leases: list[Lease] = []
    seqs: list[int] = []
    groups: dict[str | None, int] = {}
    for row in transaction.execute(statement, values).fetchall():
        job = claimed(row, line, claim.worker, now, until)
        leases.append(Lease(job, f"{claim.nonce}.{job.seq}", until))
        seqs.append(job.seq)
        groups[job.group] = groups.get(job.group, 0) + 1
        name = (tenant, job.id, queue, job.envelope.type)
        transaction.note(
            EventKind.LEASED, name, job.attempt, job.fence, until=until, text=claim.worker
        )
    if seqs:
        held = (f"{claim.nonce}.", until, claim.worker, now, _encode(seqs).decode())
        transaction.execute(sql.HOLD_JOBS, held)
    for group, number in groups.items():
        transaction.move((tenant, queue, group), "enqueued", "processing", number)
    return leases


def _lease_pack(
    transaction: Transaction, pack: packs.Pack, claim: Claim, wanted: int
) -> list[Lease]:
    """Leases the first jobs of a pack, which have no rows yet."""
    head, held = pack.head, _held(transaction, claim)
    jobs = packs.lease(transaction, pack, wanted, held)
    transaction.move((head.tenant, head.queue, None), "enqueued", "processing", len(jobs))
    return _leased(transaction, head, jobs, held)


def _held(transaction: Transaction, claim: Claim) -> packs.Held:
    now = transaction.now
    return packs.Held(f"{claim.nonce}.", now + claim.lease_us, claim.worker, now)


def _leased(
    transaction: Transaction, head: Head, jobs: list[packs.Job], held: packs.Held
) -> list[Lease]:
    """The leases of jobs that come out of packs, recorded."""
    leases: list[Lease] = []
    for job in jobs:
        seq, id, _, _ = job
        name = (head.tenant, id, head.queue, head.type)
        transaction.note(EventKind.LEASED, name, 1, 1, until=held.until, text=held.worker)
        record = packed(head, job, held.worker, held.at, held.until)
        leases.append(Lease(record, f"{held.token}{seq}", held.until))
    return leases


# -- what a sleeper waits for ----------------------------------------------------------------------


def soonest(connection: sqlite3.Connection, watch: Watch, now: Micros) -> float:
    """Seconds until something known will be worth a look; 0 when it already is."""
    if watch.news:
        return WAIT_S_MAX
    if watch.job is not None:
        found = connection.execute(sql.STATE_OF, (watch.job.tenant, watch.job.id)).fetchone()
        if found is None:
            return 0.0 if packs.find(connection, watch.job) is None else WAIT_S_MAX
        return 0.0 if STATES[found[0]] in TERMINAL else WAIT_S_MAX
    if filing.unfiled(connection) or open_lines(connection, watch.tenants, watch.queues, 1):
        return 0.0
    *opening, _ = _next(connection)
    instants = [at for at in opening if at is not None]
    return max(0.0, seconds(min(instants, default=now + 3600 * SECOND) - now))


def _next(connection: sqlite3.Connection) -> tuple[Micros | None, ...]:
    """When the next job is due, when the next lease lapses that repair would make ready, of a job
    or of a piece of a pack, when time next opens a scope, and when a waiting job outlives its time.
    """
    found: tuple[Micros | None, ...] = connection.execute(sql.NEXT).fetchone()
    return found
