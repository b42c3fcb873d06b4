"""Holds: names held for a time. Leaders, the presence of workers, and slots."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.core import bounds
from holdfast.core.bounds import PRUNE_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import TenantFull
from holdfast.core.scope import Scope, slot_scope_of
from holdfast.store import Hold, Take
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.limits import room_changed
from holdfast.stores.sqlite.limits_room import key_of
from holdfast.stores.sqlite.settings import Paging, page_of
from holdfast.stores.sqlite.transaction import Transaction


def take_holds(transaction: Transaction, takes: Sequence[Take], page: Paging | None) -> list[Hold]:
    _check_slots(transaction, takes)
    holds = [_take(transaction, one) for one in takes]
    return holds if page is None else holds_page(transaction.connection, page, transaction.now)


def _check_slots(transaction: Transaction, takes: Sequence[Take]) -> None:
    """Raises TenantFull if the takes would give a tenant too many slots."""
    new: dict[str, set[str]] = {}
    for one in takes:
        scope = slot_scope_of(one.name)  # Refused before anything is changed.
        if scope is None or one.length_us <= 0:
            continue
        if transaction.execute(scope_sql.HOLD, (one.name,)).fetchone() is None:
            new.setdefault(scope.tenant, set()).add(one.name)
    for tenant, names in new.items():
        if _slots(transaction, tenant) + len(names) > bounds.SLOTS_MAX:
            past = transaction.execute(scope_sql.PAST_SLOTS, (tenant, transaction.now, PRUNE_MAX))
            for (name,) in past.fetchall():
                _slot(transaction, slot_scope_of(name), -1)
        if _slots(transaction, tenant) + len(names) > bounds.SLOTS_MAX:
            raise TenantFull(tenant=tenant, what="slots", max=bounds.SLOTS_MAX)


def _slots(transaction: Transaction, tenant: str) -> int:
    found = transaction.execute(scope_sql.SLOT_COUNT, (tenant,)).fetchone()
    return 0 if found is None else int(found[0])


def _take(transaction: Transaction, one: Take) -> Hold:
    now = transaction.now
    found = transaction.execute(scope_sql.HOLD, (one.name,)).fetchone()
    held = None if found is None else Hold(*found)
    if held is not None and held.until > now and held.owner != one.owner:
        return held
    scope = slot_scope_of(one.name)
    if one.length_us <= 0:
        transaction.execute(scope_sql.HOLD_DROP, (one.name,))
        _slot(transaction, scope, 0 if found is None else -1)
        return Hold(one.name, "", 0, "")
    hold = Hold(one.name, one.owner, now + one.length_us, one.note)
    of = (None, None) if scope is None else (scope.slots, scope.tenant)
    transaction.execute(scope_sql.HOLD_PUT, (hold.name, hold.owner, hold.until, hold.note, *of))
    _slot(transaction, scope, 1 if found is None else 0)
    return hold


def _slot(transaction: Transaction, scope: Scope | None, more: int) -> None:
    """Counts the slots of a scope, and has its room checked."""
    if scope is None:
        return
    if more:
        transaction.execute(scope_sql.SLOT_ADD, (*key_of(scope), more))
    if transaction.scope_cache.limited(scope.tenant):
        room_changed(transaction, scope)


def prune_holds(transaction: Transaction, limit: int) -> None:
    """Deletes holds that have expired."""
    for name, slots in transaction.execute(sql.PRUNE_HOLDS, (transaction.now, limit)).fetchall():
        if slots is not None:
            _slot(transaction, slot_scope_of(name), -1)


def holds_page(connection: sqlite3.Connection, page: Paging, now: Micros) -> list[Hold]:
    return [Hold(*row) for row in page_of(connection, scope_sql.HOLDS_PAGE, (now,), page)]
