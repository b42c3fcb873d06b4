"""Claim: repairs first, then leases jobs; tenants and their lines take turns."""

from __future__ import annotations

import heapq

from holdfast.core.bounds import REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.core.job import EventKind, Lease, State
from holdfast.core.scope import Scope, rounds
from holdfast.store import Claim
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row
from holdfast.stores.notifier import Line
from holdfast.stores.repeats import asked_for


def claim_jobs(tables: Tables, claim: Claim) -> list[Lease]:
    leases = _repeated(tables, claim)
    if leases is not None:
        return leases
    for _ in range(REPAIR_PASSES_MAX):
        if _repair(tables) < REPAIR_MAX:
            break
    leases = _select(tables, claim)
    tables.claims.remember(claim.nonce, leases, tables.now)
    return leases


def _repeated(tables: Tables, claim: Claim) -> list[Lease] | None:
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


# -- repair ----------------------------------------------------------------------------------------


def _repair(tables: Tables) -> int:
    """Makes due jobs and lapsed leases ready, and opens what time has opened: REPAIR_MAX of each.

    Returns how many it moved.
    """
    moved = _promote(tables) + _rescue(tables)
    while tables.reopen and tables.reopen[0][0] <= tables.now and moved < 2 * REPAIR_MAX:
        tables.reopen_next()
        moved += 1
    return moved


def _promote(tables: Tables) -> int:
    """Makes due jobs ready."""
    moved = 0
    while tables.due and tables.due[0][0] <= tables.now and moved < REPAIR_MAX:
        row = tables.current(heapq.heappop(tables.due))
        if row is not None:
            row.state = State.ENQUEUED
            tables.place(row)
            moved += 1
    return moved


def _rescue(tables: Tables) -> int:
    """Makes jobs ready whose lease has lapsed and that have attempts left."""
    moved, now = 0, tables.now
    while tables.leases and tables.leases[0][0] <= now and moved < REPAIR_MAX:
        entry = heapq.heappop(tables.leases)
        row = tables.current(entry)
        if row is None:
            continue
        if not row.may_retry:
            heapq.heappush(tables.spent, entry)
            continue
        row.state = State.ENQUEUED
        row.lapses += 1
        row.updated_at = now
        tables.place(row)
        tables.note(EventKind.RESCUED, row)
        moved += 1
    return moved


# -- select ----------------------------------------------------------------------------------------


def _select(tables: Tables, claim: Claim) -> list[Lease]:
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
    weights = [tables.limits.of(Scope(tenant)).weight for tenant in tenants]
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
            asked = min(most, tables.limits.line_room(*line, tables.now))
            taken = _take_line(tables, line, claim, asked) if asked else []
            leases += taken
            if len(taken) < most:
                dry.add(queue)
            tables.lines.visited(line)
            tables.refresh(line)
    return leases


def _take_line(tables: Tables, line: Line, claim: Claim, room: int) -> list[Lease]:
    """Up to so many jobs of a line, in their order."""
    jobs = tables.lines.jobs(line)
    leases: list[Lease] = []
    aside = []
    while jobs and len(leases) < room:
        entry = jobs.pop()
        row = tables.current(entry)
        if row is None:
            continue
        if row.expires_at is not None and row.is_late(tables.now):
            tables.retire(row)
            continue
        if row.group is not None:
            if row.new.group in claim.exclude_groups:
                aside.append(entry)
                continue
            if tables.limits.group_room(row.group, line[1], tables.now) <= 0:
                tables.wait_again(row, row.group)
                continue
        leases.append(_lease(tables, row, claim))
    for entry in aside:
        jobs.push(entry)
    return leases


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
    if tables.limits.settings:
        tables.limits.start(row.line, row.group, now)
    tables.place(row)
    if row.group is not None:
        tables.grant(row.group, row.new.queue)
    tables.note(EventKind.LEASED, row, until, claim.worker)
    return Lease(row.record(now), token, until)
