"""Which jobs a claim takes: repair first, then tenants and lines in turn. And what a sleeper waits
for.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from holdfast.clock import SECOND, Micros, micros, seconds
from holdfast.job import TERMINAL, EventKind, Lease, Reason
from holdfast.limits import (
    CLAIM_REPEAT_S,
    ERROR_CHARS_MAX,
    REPAIR_MAX,
    REPAIR_PASSES_MAX,
    WAIT_S_MAX,
)
from holdfast.scope import rounds
from holdfast.store import Claim, Ref, Watch
from holdfast.stores.repeats import asked_for
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import gates
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.rows import DEFAULT_RULES, SEQ, claimed, plain, record
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.turns import (
    Turns,
    any_open,
    lines_of_turn,
    tenants_of_turn,
    visited,
)

Place = tuple[str, str]
"""(queue, tenant): a line."""

ENDED = frozenset(state.value for state in TERMINAL)

FORGOTTEN_MAX = 8
"""Claims whose time is over that a new one clears away."""

_encode = msgspec.json.Encoder().encode


def idle(connection: sqlite3.Connection, claim: Claim, now: Micros) -> bool:
    """True when a claim would neither find nor repair anything."""
    if any_open(connection, claim.tenants, claim.queues) or overdue(connection, now):
        return False
    return connection.execute(sql.CLAIM_OF, (claim.nonce, now)).fetchone() is None


def overdue(connection: sqlite3.Connection, now: Micros) -> bool:
    """True when there is something to repair."""
    *opening, _ = _next(connection)
    return any(at is not None and at <= now for at in opening)


def claim(transaction: Transaction, claim: Claim, turns: Turns) -> list[Lease]:
    known = transaction.execute(sql.CLAIM_OF, (claim.nonce, transaction.now)).fetchone()
    if known is not None:
        return _again(transaction, claim, known[0])
    repair(transaction)
    leases = _take(transaction, claim, turns)
    if leases:
        _remember(transaction, claim, leases)
    return leases


# -- repeats ---------------------------------------------------------------------------------------


def _again(transaction: Transaction, claim: Claim, seqs: str) -> list[Lease]:
    """The leases of a claim that is repeated, as far as they still hold."""
    now = transaction.now
    found = transaction.execute(sql.HELD_STILL, (seqs, f"{claim.nonce}.", now)).fetchall()
    leases = [Lease(record(row, now), token, until) for token, until, *row in found]
    return [lease for lease in leases if asked_for(claim, lease.job)]


def _remember(transaction: Transaction, claim: Claim, leases: list[Lease]) -> None:
    now = transaction.now
    transaction.execute(sql.CLAIMS_DROP, (now, FORGOTTEN_MAX))
    seqs = _encode([lease.job.seq for lease in leases]).decode()
    transaction.execute(sql.CLAIM_PUT, (claim.nonce, now + micros(CLAIM_REPEAT_S), seqs))


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
    due, lapse, opens, outlived = (
        at is not None and at <= now for at in _next(transaction.connection)
    )
    moved = _promote(transaction) if due else 0
    moved += _rescue(transaction) if lapse else 0
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
    """Leases from the lines the claim names: tenants take turns by weight, and so do the lines of
    each.
    """
    leases: list[Lease] = []
    dry: set[str] = set()
    """Tenants that have nothing more for this claim."""
    while (room := claim.limit - len(leases)) > 0:
        # More tenants than jobs wanted cannot be served anyway.
        most = room + len(dry)
        found = tenants_of_turn(transaction, claim.tenants, claim.queues, most)
        tenants = [tenant for tenant in found if tenant not in dry]
        if not tenants:
            break
        weights = [transaction.rules.weight(tenant) for tenant in tenants]
        times = rounds(room, weights)
        for tenant, weight in zip(tenants, weights, strict=True):
            room = claim.limit - len(leases)
            if room == 0:
                break
            allowed = turns.allowance(tenant, weight * times)
            wanted = min(allowed, room)
            taken = _take_tenant(transaction, tenant, claim, wanted)
            leases += taken
            if len(taken) < wanted:
                dry.add(tenant)
            full = len(taken) == room and len(taken) < allowed
            turns.done(transaction, tenant, allowed - len(taken) if full else 0)
    return leases


def _take_tenant(transaction: Transaction, tenant: str, claim: Claim, wanted: int) -> list[Lease]:
    """Up to so many jobs of a tenant, from its lines in turn."""
    leases: list[Lease] = []
    dry: set[str] = set()
    while (room := wanted - len(leases)) > 0:
        # One more than can be served tells whether the order of them matters.
        most = room + len(dry)
        found = lines_of_turn(transaction.connection, tenant, claim.queues, most + 1)
        queues = [queue for queue in found if queue not in dry][:room]
        if not queues:
            break
        share = rounds(room, [1] * len(queues))
        for queue in queues:
            room = wanted - len(leases)
            if room == 0:
                break
            asked = min(share, room)
            taken = _take_line(transaction, (queue, tenant), claim, asked)
            leases += taken
            if len(taken) < asked:
                dry.add(queue)
            if len(found) > 1 or claim.queues is not None:
                visited(transaction, tenant, queue)
    return leases


def _take_line(transaction: Transaction, line: Place, claim: Claim, wanted: int) -> list[Lease]:
    """Up to so many jobs of a line, as far as its scopes let it have them."""
    queue, tenant = line
    if tenant not in transaction.rules.tenants:
        return _lease_first(transaction, line, claim, wanted)
    # Each visit must see what those before it took: lines share their tenant, parts their group.
    transaction.settle(tenant)
    rooms = gates.rooms(transaction, tenant, queue)
    wanted = min(wanted, *(room.left() for room in rooms))
    if wanted == 0:
        return []
    leases = _lease_first(transaction, line, claim, wanted)
    for room in rooms:
        room.start(len(leases))
        room.save()
    return leases


def _lease_first(transaction: Transaction, line: Place, claim: Claim, wanted: int) -> list[Lease]:
    """Leases the first jobs of a line: in one statement where no group is in question."""
    queue, tenant = line
    if claim.exclude_groups or tenant in transaction.rules.grouping:
        return _lease_these(transaction, line, claim, wanted)
    return _lease(transaction, line, claim, sql.TAKE, (queue, tenant, transaction.now, wanted))


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
        try:
            job = claimed(row, line, claim.worker, now, until)
        except Exception as error:  # Whatever it holds, it must not keep the others.
            set_aside(transaction, row[SEQ], error)
            continue
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


def set_aside(transaction: Transaction, seq: int, error: Exception) -> None:
    """Fails a job in line whose record cannot be read."""
    now = transaction.now
    why = plain(f"the stored record cannot be read: {error}"[:ERROR_CHARS_MAX])
    values = (why, now, now, now + DEFAULT_RULES.keep_failed_us, seq)
    found = transaction.execute(sql.SET_ASIDE, values).fetchone()
    tenant, id, queue, type, attempt, fence, group, key, size = found
    if key is not None:
        transaction.execute(sql.KEY_RELEASE, (tenant, queue, type, key, id, now))
    transaction.move((tenant, queue, group), "enqueued", "failed", 1, -size)
    transaction.ended.append(Ref(tenant, id))
    name = (tenant, id, queue, type)
    text = f"{Reason.DECODE.value}: {why}"
    transaction.note(EventKind.FAILED, name, attempt, fence, text=text)
    if transaction.drained(tenant, group):
        transaction.note(EventKind.DRAINED, name, attempt, fence, text=group)


# -- what a sleeper waits for ----------------------------------------------------------------------


def soonest(connection: sqlite3.Connection, watch: Watch, now: Micros) -> float:
    """Seconds until something known will be worth a look; 0 when it already is."""
    if watch.news:
        return WAIT_S_MAX
    if watch.job is not None:
        found = connection.execute(sql.STATE_OF, (watch.job.tenant, watch.job.id)).fetchone()
        return 0.0 if found is None or found[0] in ENDED else WAIT_S_MAX
    if any_open(connection, watch.tenants, watch.queues):
        return 0.0
    *opening, _ = _next(connection)
    instants = [at for at in opening if at is not None]
    return max(0.0, seconds(min(instants, default=now + 3600 * SECOND) - now))


def _next(connection: sqlite3.Connection) -> tuple[Micros | None, ...]:
    """When the next job is due, when the next lease lapses that repair would make ready, when time
    next opens a scope, and when a waiting job outlives its time.
    """
    found: tuple[Micros | None, ...] = connection.execute(sql.NEXT).fetchone()
    return found
