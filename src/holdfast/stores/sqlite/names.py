"""Names with a value (settings) and names held for a time (leaders, presence, slots)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast import limits
from holdfast.clock import Micros
from holdfast.errors import StaleSetting, TenantFull
from holdfast.job import EventKind
from holdfast.limits import NAME_MAX, PRUNE_MAX
from holdfast.scope import Scope, ScopeKind, decode, scope_of, slot_scope_of
from holdfast.store import Hold, Put, Setting, Take
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.gates import bound, changed, key_of, regrant, regrant_queue
from holdfast.stores.sqlite.transaction import Transaction

Paging = tuple[str, str, int]
"""(under which prefix, after which name, how many)"""


def put(
    transaction: Transaction, puts: Sequence[Put], page: Paging | None, signed: str | None
) -> list[Setting]:
    execute = transaction.execute
    transaction.signed = signed
    last: dict[str, int] = {}
    new: Counter[str] = Counter()
    for one in puts:
        found = execute(sql.SETTING, (one.name,)).fetchone()
        _, value, version = found or (one.name, None, 0)
        seen = 0 if value is None else version
        if seen != one.version:
            raise StaleSetting(field="version", name=one.name, version=seen, expected=one.version)
        scope = scope_of(one.name)
        if scope is not None and found is None and one.name not in last:
            new[scope.tenant] += 1
        if one.value is not None and scope is not None:
            decode(one.name, one.value)  # Refused before anything is changed.
        last[one.name] = version
    _check_scopes(transaction, new)
    for one in puts:
        last[one.name] += 1
        scope = scope_of(one.name)
        stamp = None if scope is None else transaction.scopes + 1
        execute(sql.SETTING_PUT, (one.name, one.value, last[one.name], stamp))
        if scope is not None:
            _configure(transaction, scope, one)
    if page is not None:
        return settings_page(transaction.connection, page)
    rows = [execute(sql.SETTING, (one.name,)).fetchone() for one in puts]
    return [Setting(*row) for row in rows if row[1] is not None]


def _check_scopes(transaction: Transaction, new: Counter[str]) -> None:
    """TenantFull if so many new scopes would give a tenant more with settings than it may have."""
    for tenant, more in new.items():
        has = 0
        for kind in ScopeKind:
            under = Scope(tenant, kind).name
            found = transaction.execute(sql.SETTINGS_WITHIN, (under, _past(under))).fetchone()
            has += found[0]
        if has + more > limits.SETTINGS_MAX:
            raise TenantFull(tenant=tenant, what="scopes", max=limits.SETTINGS_MAX)


def _configure(transaction: Transaction, scope: Scope, put: Put) -> None:
    """Lets the new settings of a scope take effect."""
    rules = transaction.rules
    before = rules.of(scope)
    transaction.scopes += 1
    rules.sync(transaction.connection, transaction.scopes)
    bound(transaction, scope, rules.of(scope).rate)
    if scope.kind is ScopeKind.GROUP:
        regrant(transaction, scope.tenant, scope.part)
    elif before.groups != rules.of(scope).groups:
        regrant_queue(transaction, scope)
    changed(transaction, scope)
    text = (put.value or b"").decode()
    transaction.note(EventKind.CONFIGURED, (scope.tenant, put.name, "", ""), 0, 0, text=text)


def settings_page(connection: sqlite3.Connection, page: Paging) -> list[Setting]:
    return [Setting(*row) for row in _page(connection, sql.SETTINGS_PAGE, (), page)]


def _page(
    connection: sqlite3.Connection, query: str, values: tuple[Any, ...], page: Paging
) -> list[tuple[Any, ...]]:
    """The rows of the first names under a prefix and after a name, in order."""
    under, after, limit = page
    names, given = "name >= ? AND name > ?", [under, after]
    if under:
        names, given = f"{names} AND name < ?", [*given, _past(under)]
    query = f"{query.format(names=names)} ORDER BY name LIMIT ?"
    return connection.execute(query, (*values, *given, limit)).fetchall()


def _past(prefix: str) -> str:
    """What comes after all names that start with a prefix; SQLite orders texts as their bytes."""
    last = ord(prefix[-1])
    if last == 0x10FFFF:
        return prefix + chr(last) * NAME_MAX
    return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)


def take(transaction: Transaction, takes: Sequence[Take], page: Paging | None) -> list[Hold]:
    _check_slots(transaction, takes)
    holds = [_take(transaction, one) for one in takes]
    return holds if page is None else holds_page(transaction.connection, page, transaction.now)


def _check_slots(transaction: Transaction, takes: Sequence[Take]) -> None:
    """TenantFull if the takes would give a tenant more slots than it may have."""
    new: dict[str, set[str]] = {}
    for one in takes:
        scope = slot_scope_of(one.name)  # Refused before anything is changed.
        if scope is None or one.length_us <= 0:
            continue
        if transaction.execute(sql.HOLD, (one.name,)).fetchone() is None:
            new.setdefault(scope.tenant, set()).add(one.name)
    for tenant, names in new.items():
        if _slots(transaction, tenant) + len(names) > limits.SLOTS_MAX:
            past = transaction.execute(sql.PAST_SLOTS, (tenant, transaction.now, PRUNE_MAX))
            for (name,) in past.fetchall():
                _slot(transaction, slot_scope_of(name), -1)
        if _slots(transaction, tenant) + len(names) > limits.SLOTS_MAX:
            raise TenantFull(tenant=tenant, what="slots", max=limits.SLOTS_MAX)


def _slots(transaction: Transaction, tenant: str) -> int:
    found = transaction.execute(sql.SLOT_COUNT, (tenant,)).fetchone()
    return 0 if found is None else int(found[0])


def _take(transaction: Transaction, one: Take) -> Hold:
    now = transaction.now
    found = transaction.execute(sql.HOLD, (one.name,)).fetchone()
    held = None if found is None else Hold(*found)
    if held is not None and held.until > now and held.owner != one.owner:
        return held
    scope = slot_scope_of(one.name)
    if one.length_us <= 0:
        transaction.execute(sql.HOLD_DROP, (one.name,))
        _slot(transaction, scope, 0 if found is None else -1)
        return Hold(one.name, "", 0, "")
    hold = Hold(one.name, one.owner, now + one.length_us, one.note)
    of = (None, None) if scope is None else (scope.slots, scope.tenant)
    transaction.execute(sql.HOLD_PUT, (hold.name, hold.owner, hold.until, hold.note, *of))
    _slot(transaction, scope, 1 if found is None else 0)
    return hold


def _slot(transaction: Transaction, scope: Scope | None, more: int) -> None:
    """Counts the slots of a scope, and looks at its room."""
    if scope is None:
        return
    if more:
        transaction.execute(sql.SLOT_ADD, (*key_of(scope), more))
    if scope.tenant in transaction.rules.tenants:
        changed(transaction, scope)


def prune(transaction: Transaction, limit: int) -> None:
    """Drops names that nobody holds any more."""
    for name, slots in transaction.execute(sql.PRUNE_HOLDS, (transaction.now, limit)).fetchall():
        if slots is not None:
            _slot(transaction, slot_scope_of(name), -1)


def holds_page(connection: sqlite3.Connection, page: Paging, now: Micros) -> list[Hold]:
    return [Hold(*row) for row in _page(connection, sql.HOLDS_PAGE, (now,), page)]
