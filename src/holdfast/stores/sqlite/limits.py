"""Limits: opens the scopes that have room now, and closes those that have none.

A tenant or a line (tenant, queue) without room is closed: it leaves the index that claims walk. A
job of a group without room is gated: it leaves the index of ready jobs. Room is freed by moves that
are counted anyway: `apply_limits` checks the tenants, lines and groups that they touched, so no way
to end a job can forget to free its place. `limits_platform.py` has the limits over all tenants.
"""

from __future__ import annotations

from holdfast.core.scope import (
    Scope,
    ScopeKind,
)
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite.limits_groups import grant
from holdfast.stores.sqlite.limits_platform import platform_changed, refresh_platform
from holdfast.stores.sqlite.limits_room import Room, key_of, reopen_later, wake_lines
from holdfast.stores.sqlite.transaction import Transaction


def apply_limits(transaction: Transaction) -> None:
    """Opens what has room now and closes what has none."""
    apply_tenant_limits(transaction)
    if transaction.scope_cache.over_all:
        refresh_platform(transaction)


def apply_tenant_limits(transaction: Transaction) -> None:
    """The same of groups, then of tenants and lines, without the scopes of the platform."""
    transaction.write_counts()
    while transaction.groups_to_check:
        grant(transaction, *transaction.groups_to_check.pop())
    transaction.write_counts()
    while transaction.tenants_to_check:
        refresh_tenant(transaction, transaction.tenants_to_check.pop())
    while transaction.lines_to_check:
        refresh_line(transaction, *transaction.lines_to_check.pop())


def refresh_tenant(transaction: Transaction, tenant: str) -> None:
    """Opens or closes a tenant: its lines stay as they are, however many it has."""
    if _refresh(transaction, Scope(tenant)):
        transaction.execute(scope_sql.RING_BACK, (tenant,))
        wake_lines(transaction, tenant, None)


def refresh_line(transaction: Transaction, tenant: str, queue: str) -> None:
    """Opens or closes a line by the room of its queue."""
    if _refresh(transaction, Scope(tenant, ScopeKind.QUEUE, queue)):
        transaction.ready_lines.add((tenant, queue))


def _refresh(transaction: Transaction, scope: Scope) -> bool:
    """Opens or closes a scope; True when it has just been opened."""
    cache = transaction.scope_cache
    rates = cache.rates_change(scope.tenant)
    room = Room(transaction.connection, scope, cache.of(scope), transaction.now, rates)
    is_open, rests = room.left() > 0, None
    if not is_open:
        reopen_later(transaction, room)
        rests = cache.tier_of(scope.tenant) if cache.tiered else None
    key = key_of(scope)
    found = transaction.execute(scope_sql.SCOPE_OPEN, key).fetchone()
    if found is None or found == (is_open, rests):
        return False
    marks = (rests, transaction.scopes_version)
    if found[0] == is_open:
        transaction.execute(scope_sql.SCOPE_REST, (*marks, *key))
        return False
    transaction.turn += 1
    transaction.execute(scope_sql.SCOPE_SET, (int(is_open), transaction.turn, *marks, *key))
    return is_open


def reopen_past(transaction: Transaction, limit: int) -> int:
    """Checks the scopes that time may have opened; returns how many."""
    past = transaction.execute(scope_sql.REOPEN_PAST, (transaction.now, limit)).fetchall()
    for kind, tenant, part in past:
        transaction.execute(scope_sql.REOPEN_DROP, (kind, tenant, part))
        room_changed(transaction, Scope(tenant, ScopeKind(kind), part))
    return len(past)


def room_changed(transaction: Transaction, scope: Scope) -> None:
    """Has a scope checked whose room may have changed by something other than its jobs."""
    if scope.of_platform:
        platform_changed(transaction, scope)
        return
    gone = transaction.execute(scope_sql.SLOTS_DROP, (scope.slots, transaction.now)).rowcount
    if gone > 0:
        transaction.execute(scope_sql.SLOT_ADD, (*key_of(scope), -gone))
    if scope.kind is ScopeKind.GROUP:
        transaction.groups_to_check.add((scope.tenant, scope.part))
    elif scope.kind is ScopeKind.QUEUE:
        transaction.lines_to_check.add((scope.tenant, scope.part))
    else:
        transaction.tenants_to_check.add(scope.tenant)
