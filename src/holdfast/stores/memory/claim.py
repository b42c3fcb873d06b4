"""Claim: repairs first, then leases jobs; tenants and their lines take turns."""

from __future__ import annotations

import heapq

from holdfast.core.bounds import REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.core.job import EventKind, Lease, State
from holdfast.core.scope import Scope, line_share, rounds
from holdfast.store import Claim
from holdfast.stores.memory.claim_platform import (
    PlatformRound,
    PlatformTurn,
    let_first_in,
    set_job_aside,
)
from holdfast.stores.memory.joins import release
from holdfast.stores.memory.journal import remembered
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.rows import Row
from holdfast.stores.notifier import Line
from holdfast.stores.repeats import asked_for

RECHECKS_MIN = 50
"""Lines and groups that a claim for a few jobs checks after a change of a tier."""


def claim_jobs(tables: Tables, claim: Claim) -> list[Lease]:
    leases = _repeated(tables, claim)
    if leases is not None:
        return leases
    release(tables)
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
            leases.append(Lease(record, token, row.lease_until, *remembered(row)))
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
    platform = PlatformRound(tables, claim)
    rechecks = REPAIR_MAX * REPAIR_PASSES_MAX
    _recheck(tables, min(max(claim.limit, RECHECKS_MIN), REPAIR_MAX))
    while (room := platform.room(claim.limit - len(leases))) > 0:
        let_in = platform.let_in(room)
        dry -= let_in
        # More tenants than jobs wanted cannot be served anyway.
        found = tables.lines.tenants(claim.tenants, claim.queues, room + len(dry))
        tenants = [tenant for tenant in found if tenant not in dry]
        if tenants:
            taken = _round(platform, tenants, room, dry)
            platform.start(len(taken))
            leases += taken
        elif not let_in:
            checked = _recheck(tables, min(rechecks, REPAIR_MAX))
            if not checked:
                break
            rechecks -= checked
            dry.clear()
    return leases


def _recheck(tables: Tables, most: int) -> int:
    """Checks what changed tiers may have opened; returns how many lines and groups."""
    for number in range(most):
        each = tables.rechecks.next()
        if each is None:
            return number
        tables.recheck(each)
    return most


def _round(platform: PlatformRound, tenants: list[str], room: int, dry: set[str]) -> list[Lease]:
    """Gives each of the tenants its turn, until there is no more room."""
    tables, claim = platform.tables, platform.claim
    leases: list[Lease] = []
    weights = [tables.limits.of(Scope(tenant)).share for tenant in tenants]
    times = rounds(room, weights)
    platform.begin(weights)
    for tenant, weight in zip(tenants, weights, strict=True):
        left = room - len(leases)
        if left == 0:
            break
        turn = platform.turn(weight)
        allowed = tables.lines.allowance(tenant, weight * times)
        wanted = min(allowed, left)
        taken = _take_tenant(tables, tenant, claim, turn, wanted)
        leases += taken
        if len(taken) < wanted and not turn.has_more:
            dry.add(tenant)
        owed = min(allowed, weight) - len(taken)
        if owed > 0 and len(taken) < left and turn.stopped:
            tables.lines.done(tenant, owed)  # Its turn goes on when there is room.
            continue
        full = len(taken) == left and len(taken) < allowed
        tables.lines.done(tenant, allowed - len(taken) if full else 0)
    return leases


def _take_tenant(
    tables: Tables, tenant: str, claim: Claim, turn: PlatformTurn, wanted: int
) -> list[Lease]:
    """Up to so many jobs of a tenant, from its lines in turn."""
    leases: list[Lease] = []
    dry: set[str] = set()
    while len(leases) < wanted:
        room = wanted - len(leases)
        found = tables.lines.of_turn(tenant, claim.queues, room + len(dry))
        queues = [queue for queue in found if queue not in dry]
        if not queues:
            break
        share = line_share(room, len(queues))
        for queue in queues:
            if len(leases) == wanted:
                break
            most = min(share, wanted - len(leases))
            line = (tenant, queue)
            asked = min(most, tables.limits.line_room(*line, tables.now), turn.line_room(line))
            taken = _take_line(tables, line, claim, turn, asked) if asked else []
            leases += taken
            if len(taken) < most:
                dry.add(queue)
            tables.lines.visited(line, keep=tables.platform.waits(line))
            tables.refresh(line)
    return leases


def _take_line(
    tables: Tables, line: Line, claim: Claim, turn: PlatformTurn, room: int
) -> list[Lease]:
    """Up to so many jobs of a line, in their order."""
    jobs = tables.lines.jobs(line)
    leases: list[Lease] = []
    aside = []
    while len(leases) < room:
        if tables.platform:
            let_first_in(tables, line)
        if not jobs:
            break
        entry = jobs.pop()
        row = tables.current(entry)
        if row is None:
            continue
        if row.expires_at is not None and row.is_late(tables.now):
            tables.retire(row)
            continue
        if row.group is not None and row.new.group in claim.exclude_groups:
            aside.append(entry)
            continue
        if turn.typed and not turn.allows(row, entry):
            if turn.sets_aside(row, entry):
                set_job_aside(tables, row, entry)
                continue
            aside.append(entry)
            break
        if row.group is not None and not tables.limits.group_room(row.group, line[1], tables.now):
            tables.wait_again(row, row.group)
            continue
        if turn.limited:
            turn.start(row)
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
    row.progress = row.awaits = None
    if tables.limits.any:
        tables.limits.start(row.line, row.group, now)
    tables.place(row)
    if row.group is not None:
        tables.grant(row.group, row.new.queue)
    tables.note(EventKind.LEASED, row, until, claim.worker)
    return Lease(row.record(now), token, until, *remembered(row))
