"""What time alone makes ready: due jobs, lapsed leases, and scopes that open by themselves.

A claim repairs these first, within bounds. A sleeping worker asks when the next one comes.
"""

from __future__ import annotations

import sqlite3

from holdfast.core.bounds import (
    REPAIR_MAX,
    REPAIR_PASSES_MAX,
    WAIT_S_MAX,
)
from holdfast.core.clock import SECOND, Micros, seconds
from holdfast.core.job import TERMINAL, EventKind
from holdfast.store import Watch
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.fairness import TurnCredits
from holdfast.stores.sqlite.joins import release_left
from holdfast.stores.sqlite.limits import apply_limits, reopen_past
from holdfast.stores.sqlite.limits_platform import claimable
from holdfast.stores.sqlite.transaction import Transaction

ENDED = frozenset(state.value for state in TERMINAL)


def overdue(connection: sqlite3.Connection, now: Micros) -> bool:
    """True when `repair` would change something."""
    *opening, _ = _next_instants(connection)
    return any(at is not None and at <= now for at in opening)


def repair(transaction: Transaction, credits: TurnCredits) -> None:
    """Applies what time has brought since the last claim, and what calls that ended jobs have left:
    REPAIR_PASSES_MAX passes at most.
    """
    for number in range(REPAIR_PASSES_MAX):
        if _repair(transaction, None if number else credits) < REPAIR_MAX:
            break
    apply_limits(transaction)


def _repair(transaction: Transaction, credits: TurnCredits | None) -> int:
    """One pass: makes due jobs and lapsed leases ready and opens scopes, REPAIR_MAX of each. The
    first one, which has the credits, follows the edges of ended jobs.

    Returns how many it changed.
    """
    now = transaction.now
    due, lapse, opens, left, outlived = (
        at is not None and at <= now for at in _next_instants(transaction.connection)
    )
    if left and credits is not None:
        release_left(transaction, credits)
    moved = _make_due_ready(transaction) if due else 0
    moved += _rescue_lapsed(transaction) if lapse else 0
    moved += reopen_past(transaction, REPAIR_MAX) if opens else 0
    # Last: the jobs made ready just now may be past their time to live too.
    return moved + (_mark_late(transaction) if outlived or moved else 0)


def _make_due_ready(transaction: Transaction) -> int:
    due = transaction.execute(sql.PROMOTABLE, (transaction.now, REPAIR_MAX)).fetchall()
    rows = []
    for seq, tenant, queue, group, state in due:
        gated = transaction.scope_cache.gated(tenant, group, queue)
        rows.append((int(gated), seq))
        transaction.count_move((tenant, queue, group), state, BLOCKED if gated else "enqueued")
    transaction.connection.executemany(sql.PROMOTE, rows)
    return len(due)


def _rescue_lapsed(transaction: Transaction) -> int:
    now = transaction.now
    rescued = transaction.execute(sql.RESCUE, (now, now, REPAIR_MAX)).fetchall()
    gated: list[int] = []
    for _, seq, tenant, id, queue, type, attempt, fence, group in sorted(rescued):
        waits = transaction.scope_cache.gated(tenant, group, queue)
        if waits:
            gated.append(seq)
        place = BLOCKED if waits else "enqueued"
        transaction.count_move((tenant, queue, group), "processing", place, type=type)
        transaction.record_event(EventKind.RESCUED, (tenant, id, queue, type), attempt, fence)
    if gated:
        transaction.execute(scope_sql.GATE, (listed(gated),))
    return len(rescued)


def _mark_late(transaction: Transaction) -> int:
    retired = transaction.execute(sql.RETIRE, (transaction.now, REPAIR_MAX)).fetchall()
    for tenant, queue, group, state, gate in retired:
        if state == "enqueued" and not gate:
            transaction.count_move((tenant, queue, None), "enqueued", BLOCKED)
            if transaction.scope_cache.gated(tenant, group, queue):
                transaction.groups_to_check.add((tenant, group))
    return len(retired)


def seconds_until_work(connection: sqlite3.Connection, watch: Watch, now: Micros) -> float:
    """Seconds until the next known instant at which a claim may find something; 0 for now."""
    if watch.news:
        return WAIT_S_MAX
    if watch.job is not None:
        found = connection.execute(sql.STATE_OF, (watch.job.tenant, watch.job.id)).fetchone()
        return 0.0 if found is None or found[0] in ENDED else WAIT_S_MAX
    if claimable(connection, watch.tenants, watch.queues, now):
        return 0.0
    return max(0.0, seconds(next_instant(connection, now) - now))


def next_instant(connection: sqlite3.Connection, now: Micros) -> Micros:
    """The next instant at which time alone may give a claim something."""
    *opening, _ = _next_instants(connection)
    return min((at for at in opening if at is not None), default=now + 3600 * SECOND)


def _next_instants(connection: sqlite3.Connection) -> tuple[Micros | None, ...]:
    """The next instants at which a job is due, a lease with attempts left lapses, a scope opens by
    itself, edges of ended jobs are followed, and a waiting job passes its time to live.
    """
    found: tuple[Micros | None, ...] = connection.execute(sql.NEXT).fetchone()
    return found
