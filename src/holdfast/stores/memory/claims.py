"""Which jobs a claim takes from the memory store: repair first, then tenants and lines in turn."""

from __future__ import annotations

import heapq

from holdfast.clock import Micros
from holdfast.job import EventKind, Lease, State
from holdfast.limits import REPAIR_MAX
from holdfast.scope import rounds
from holdfast.store import Claim
from holdfast.stores.bell import Line
from holdfast.stores.memory.gates import tenant_scope
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row
from holdfast.stores.repeats import asked_for


def repair(tables: Tables, now: Micros) -> int:
    """Makes due jobs and lapsed leases ready, and opens what time has opened: REPAIR_MAX of each.

    Returns how many it moved.
    """
    moved = promote(tables, now, REPAIR_MAX) + _rescue(tables, now)
    while tables.reopen and tables.reopen[0][0] <= now and moved < 2 * REPAIR_MAX:
        tables.reopened()
        moved += 1
    return moved


def promote(tables: Tables, now: Micros, most: int) -> int:
    """Makes due jobs ready."""
    moved = 0
    while tables.due and tables.due[0][0] <= now and moved < most:
        row = tables.current(heapq.heappop(tables.due))
        if row is not None:
            row.state = State.ENQUEUED
            tables.place(row)
            moved += 1
    return moved


def _rescue(tables: Tables, now: Micros) -> int:
    moved = 0
    while tables.leases and tables.leases[0][0] <= now and moved < REPAIR_MAX:
        entry = heapq.heappop(tables.leases)
        row = tables.current(entry)
        if row is None:
            continue
        if row.attempt >= row.max_attempts:
            heapq.heappush(tables.spent, entry)
            continue
        row.state = State.ENQUEUED
        row.lapses += 1
        row.updated_at = now
        tables.place(row)
        tables.note(EventKind.RESCUED, row, now)
        moved += 1
    return moved


def take(tables: Tables, claim: Claim, now: Micros) -> list[Lease]:
    """Leases from the lines the claim names: tenants take turns by weight, and so do the lines of
    each.
    """
    leases: list[Lease] = []
    dry: set[str] = set()
    """Tenants that have nothing more for this claim."""
    while len(leases) < claim.limit:
        # More tenants than jobs wanted cannot be served anyway.
        most = claim.limit - len(leases) + len(dry)
        found = tables.lines.tenants(claim.tenants, claim.queues, most)
        tenants = [tenant for tenant in found if tenant not in dry]
        if not tenants:
            break
        _round(tables, claim, tenants, leases, dry)
    return leases


def _round(
    tables: Tables, claim: Claim, tenants: list[str], leases: list[Lease], dry: set[str]
) -> None:
    """Gives each of the tenants its turn, until the claim is full."""
    weights = [tables.gates.of(tenant_scope(tenant)).weight for tenant in tenants]
    times = rounds(claim.limit - len(leases), weights)
    for tenant, weight in zip(tenants, weights, strict=True):
        room = claim.limit - len(leases)
        if room == 0:
            return
        allowed = tables.lines.allowance(tenant, weight * times)
        wanted = min(allowed, room)
        taken = _take_tenant(tables, tenant, claim, wanted)
        leases += taken
        if len(taken) < wanted:
            dry.add(tenant)
        full = len(taken) == room and len(taken) < allowed
        tables.lines.done(tenant, allowed - len(taken) if full else 0)


def _take_tenant(tables: Tables, tenant: str, claim: Claim, wanted: int) -> list[Lease]:
    """Up to so many jobs of a tenant, from its lines in turn."""
    leases: list[Lease] = []
    dry: set[str] = set()
    while len(leases) < wanted:
        room = wanted - len(leases)
        found = tables.lines.of_turn(tenant, claim.queues, room + len(dry))
        queues = [queue for queue in found if queue not in dry]
        if not queues:
            break
        share = rounds(room, [1] * len(queues))
        for queue in queues:
            if len(leases) == wanted:
                break
            most = min(share, wanted - len(leases))
            line = (tenant, queue)
            asked = min(most, tables.gates.line_room(*line, tables.now))
            taken = _take_line(tables, line, claim, asked) if asked else []
            leases += taken
            if len(taken) < most:
                dry.add(queue)
            tables.lines.visited(line)
            tables.refresh(line)
    return leases


def again(tables: Tables, claim: Claim) -> list[Lease] | None:
    """The leases of a claim that is repeated, as far as they still hold; None if it is new."""
    names = tables.claims.known(claim.nonce, tables.now)
    if names is None:
        return None
    leases = []
    for name in names:
        row = tables.rows.get(name)
        if row is None or row.state is not State.PROCESSING or row.lease_until is None:
            continue
        token = f"{claim.nonce}.{row.seq}"
        record = row.record(tables.now)
        if row.token == token and row.lease_until > tables.now and asked_for(claim, record):
            leases.append(Lease(record, token, row.lease_until))
    return leases


def _take_line(tables: Tables, line: Line, claim: Claim, room: int) -> list[Lease]:
    jobs = tables.lines.jobs(line)
    leases: list[Lease] = []
    aside = []
    plain = 0
    while jobs and len(leases) < room:
        entry = jobs.pop()
        row = tables.current(entry)
        if row is None:
            continue
        if row.expires_at is not None and row.expires_at <= tables.now:
            tables.leave(row)  # Upkeep's to expire.
        elif row.group is None:
            leases.append(_lease(tables, row, claim))
            tables.hold(row)
            plain += 1
        elif row.new.group in claim.exclude_groups:
            aside.append(entry)
        elif _may_start(tables, row):
            leases.append(_lease(tables, row, claim))
            _start_in_group(tables, row)
    for entry in aside:
        jobs.push(entry)
    if plain:
        tables.count_held(line, plain)
    return leases


def _may_start(tables: Tables, row: Row) -> bool:
    scope = row.group
    if scope is None or tables.gates.group_room(scope, row.new.queue, tables.now) > 0:
        return True
    tables.wait_again(row)
    return False


def _lease(tables: Tables, row: Row, claim: Claim) -> Lease:
    now = tables.now
    row.state = State.PROCESSING
    row.attempt += 1
    row.fence += 1
    row.token = token = f"{claim.nonce}.{row.seq}"
    row.lease_until = until = now + claim.lease_us
    row.worker = claim.worker
    row.updated_at = now
    row.progress = None
    tables.note(EventKind.LEASED, row, now, until, claim.worker)
    return Lease(row.record(now), token, until)


def _start_in_group(tables: Tables, row: Row) -> None:
    """Counts a started job of a group at once: the next may have to wait for its place."""
    scope, queue = row.group, row.new.queue
    assert scope is not None
    tables.gates.spend(row.line, 1, tables.now)
    tables.gates.spend_group(scope, queue, tables.now)
    tables.place(row)
    tables.grant(scope, queue)
