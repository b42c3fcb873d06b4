"""Which jobs a claim takes from the memory store: repair first, then the lines in turn."""

from __future__ import annotations

import heapq

from holdfast.clock import Micros
from holdfast.job import EventKind, Lease, State
from holdfast.limits import REPAIR_MAX
from holdfast.store import Claim
from holdfast.stores.bell import Line
from holdfast.stores.memory.layout import Row, Tables


def repair(tables: Tables, now: Micros) -> int:
    """Makes due jobs and lapsed leases ready, at most REPAIR_MAX of each; returns how many it
    moved.
    """
    moved = 0
    while tables.due and tables.due[0][0] <= now and moved < REPAIR_MAX:
        row = tables.current(heapq.heappop(tables.due))
        if row is not None:
            row.state = State.ENQUEUED
            tables.place(row)
            moved += 1
    return moved + _rescue(tables, now)


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
    """Leases from the lines the claim names, in turn, each visit a fair part."""
    lines = [line for line in tables.lines if _wanted(line, claim)]
    leases: list[Lease] = []
    while lines and len(leases) < claim.limit:
        quota = max(1, (claim.limit - len(leases)) // len(lines))
        for line in list(lines):
            room = min(quota, claim.limit - len(leases))
            taken = _take_line(tables, line, claim, room, now)
            leases += taken
            if line not in tables.lines:  # It ran dry, with or without filling its room.
                lines.remove(line)
            if len(leases) >= claim.limit:
                break
    return leases


def _wanted(line: Line, claim: Claim) -> bool:
    tenant, queue = line
    return (claim.tenants is None or tenant in claim.tenants) and (
        claim.queues is None or queue in claim.queues
    )


def _take_line(tables: Tables, line: Line, claim: Claim, room: int, now: Micros) -> list[Lease]:
    heap = tables.lines.pop(line)
    leases: list[Lease] = []
    while heap and len(leases) < room:
        row = tables.current(heapq.heappop(heap))
        if row is None or (row.expires_at is not None and row.expires_at <= now):
            continue  # Stale, or upkeep's to expire.
        leases.append(_lease(tables, row, claim, now))
    if heap:
        tables.lines[line] = heap  # Goes to the end of the turn; an empty line leaves it.
    return leases


def _lease(tables: Tables, row: Row, claim: Claim, now: Micros) -> Lease:
    row.state = State.PROCESSING
    row.attempt += 1
    row.fence += 1
    row.token = f"{claim.nonce}.{row.seq}"
    row.lease_until = now + claim.lease_us
    row.worker = claim.worker
    row.updated_at = now
    row.progress = None
    tables.place(row)
    tables.note(EventKind.LEASED, row, now, row.lease_until, claim.worker)
    return Lease(row.record(now), row.token, row.lease_until)
