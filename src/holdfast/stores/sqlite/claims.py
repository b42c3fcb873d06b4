"""Which jobs a claim takes: repair first, then the lines in turn. And what a sleeper waits for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain, islice, takewhile

from holdfast.clock import SECOND, Micros, seconds
from holdfast.job import TERMINAL, EventKind, Lease
from holdfast.limits import REPAIR_MAX, REPAIR_PASSES_MAX, WAIT_S_MAX
from holdfast.store import Claim, Watch
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.rows import STATES, record
from holdfast.stores.sqlite.transaction import Transaction

Place = tuple[str, str]
"""(queue, tenant): a line, in the order of the index, so that named queues are reached at once."""

Names = tuple[str, ...] | None

START: Place = ("", "")

TURNS_MAX = 1000
"""Kinds of claims whose turn is remembered."""


class Turns:
    """Whose turn it is, for each kind of claim: the lines after the one that was served last."""

    def __init__(self) -> None:
        self._last: dict[tuple[Names, Names], Place] = {}

    def last(self, claim: Claim) -> Place:
        return self._last.get((claim.tenants, claim.queues), START)

    def served(self, claim: Claim, place: Place) -> None:
        if len(self._last) >= TURNS_MAX:
            self._last.clear()
        self._last[claim.tenants, claim.queues] = place


def idle(connection: sqlite3.Connection, claim: Claim, now: Micros) -> bool:
    """True when a claim would neither find nor repair anything."""
    if next(lines_after(connection, claim.tenants, claim.queues, START), None) is not None:
        return False
    return all(head is None or head > now for head in _heads(connection))


def claim(transaction: Transaction, claim: Claim, turns: Turns) -> list[Lease]:
    for _ in range(REPAIR_PASSES_MAX):
        if _repair(transaction) < REPAIR_MAX:
            break
    return _take(transaction, claim, turns)


def _repair(transaction: Transaction) -> int:
    """Makes due jobs and lapsed leases ready, at most REPAIR_MAX of each; returns how many it
    moved.
    """
    now, execute = transaction.now, transaction.execute
    due, lapse = (head is not None and head <= now for head in _heads(transaction.connection))
    moved = execute(sql.PROMOTE, (now, REPAIR_MAX)).rowcount if due else 0
    rescued = execute(sql.RESCUE, (now, now, REPAIR_MAX)).fetchall() if lapse else []
    for _, _, tenant, id, queue, type, attempt, fence in sorted(rescued):
        transaction.note(EventKind.RESCUED, (tenant, id, queue, type), attempt, fence)
    # Last, for the jobs made ready just now may have outlived their time too.
    return moved + len(rescued) + execute(sql.RETIRE, (now, REPAIR_MAX)).rowcount


def _take(transaction: Transaction, claim: Claim, turns: Turns) -> list[Lease]:
    """Leases from the lines the claim names, in turn, each visit a fair part."""
    last = turns.last(claim)
    # More lines than jobs wanted cannot be served anyway.
    lines = list(islice(_in_turn(transaction.connection, claim, last), claim.limit))
    leases: list[Lease] = []
    while lines and len(leases) < claim.limit:
        quota = max(1, (claim.limit - len(leases)) // len(lines))
        for line in list(lines):
            room = min(quota, claim.limit - len(leases))
            taken = _take_line(transaction, line, claim, room)
            leases += taken
            last = line
            if len(taken) < room:
                lines.remove(line)
            if len(leases) >= claim.limit:
                break
    turns.served(claim, last)
    return leases


def _take_line(transaction: Transaction, line: Place, claim: Claim, room: int) -> list[Lease]:
    now = transaction.now
    until = now + claim.lease_us
    queue, tenant = line
    rows = transaction.execute(
        sql.TAKE, (f"{claim.nonce}.", until, claim.worker, now, queue, tenant, now, room)
    ).fetchall()
    leases = [Lease(record(row[1:], now), row[0], until) for row in rows]
    leases.sort(key=lambda lease: (-lease.job.priority, lease.job.seq))  # RETURNING has no order.
    for lease in leases:
        job = lease.job
        name = (tenant, job.id, queue, job.envelope.type)
        transaction.note(
            EventKind.LEASED, name, job.attempt, job.fence, until=until, text=claim.worker
        )
    return leases


# -- the lines that have work ----------------------------------------------------------------------


def _in_turn(connection: sqlite3.Connection, claim: Claim, last: Place) -> Iterator[Place]:
    """The claim's lines that have work: those after the last one served, then from the start."""
    tenants, queues = claim.tenants, claim.queues
    return chain(
        lines_after(connection, tenants, queues, last),
        takewhile(lambda line: line <= last, lines_after(connection, tenants, queues, START)),
    )


def lines_after(
    connection: sqlite3.Connection, tenants: Names, queues: Names, place: Place
) -> Iterator[Place]:
    """The lines past a place that have work, in the order of the index."""
    for queue in _queues_from(connection, queues, place[0]):
        floor = place[1] if queue == place[0] else ""
        for tenant in _tenants_after(connection, tenants, queue, floor):
            yield queue, tenant


def _queues_from(connection: sqlite3.Connection, queues: Names, first: str) -> Iterator[str]:
    if queues is not None:
        yield from (queue for queue in sorted(set(queues)) if queue >= first)
        return
    found = connection.execute(sql.QUEUE_FROM, (first,)).fetchone()
    while found is not None:
        yield found[0]
        found = connection.execute(sql.QUEUE_AFTER, found).fetchone()


def _tenants_after(
    connection: sqlite3.Connection, tenants: Names, queue: str, floor: str
) -> Iterator[str]:
    if tenants is not None:
        for tenant in sorted(set(tenants)):
            if tenant > floor and connection.execute(sql.LINE_READY, (queue, tenant)).fetchone():
                yield tenant
        return
    found = connection.execute(sql.TENANT_AFTER, (queue, floor)).fetchone()
    while found is not None:
        yield found[0]
        found = connection.execute(sql.TENANT_AFTER, (queue, found[0])).fetchone()


# -- what a sleeper waits for ----------------------------------------------------------------------


def soonest(connection: sqlite3.Connection, watch: Watch, now: Micros) -> float:
    """Seconds until something known will be worth a look; 0 when it already is."""
    if watch.news:
        return WAIT_S_MAX
    if watch.job is not None:
        found = connection.execute(sql.STATE_OF, (watch.job.tenant, watch.job.id)).fetchone()
        return 0.0 if found is None or STATES[found[0]] in TERMINAL else WAIT_S_MAX
    if next(lines_after(connection, watch.tenants, watch.queues, START), None) is not None:
        return 0.0
    heads = [head for head in _heads(connection) if head is not None]
    return max(0.0, seconds(min(heads, default=now + 3600 * SECOND) - now))


def _heads(connection: sqlite3.Connection) -> Iterator[Micros | None]:
    """When the next job is due, and when the next lease lapses that repair would make ready."""
    for statement in (sql.NEXT_DUE, sql.NEXT_LAPSE):
        found = connection.execute(statement).fetchone()
        yield None if found is None else found[0]
