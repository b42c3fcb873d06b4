"""Names with a value (settings) and names held for a time (leaders, presence, slots)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.errors import StaleSetting
from holdfast.job import EventKind
from holdfast.scope import Scope, ScopeKind, decode, scope_of, slot_scope_of
from holdfast.store import Hold, Put, Setting, Take
from holdfast.stores.sqlite import statements as sql
from holdfast.stores.sqlite.gates import bound, changed, key_of, regrant, regrant_queue
from holdfast.stores.sqlite.transaction import Transaction


def put(transaction: Transaction, puts: Sequence[Put], under: str | None) -> list[Setting]:
    execute = transaction.execute
    last: dict[str, int] = {}
    for one in puts:
        _, value, version = execute(sql.SETTING, (one.name,)).fetchone() or (one.name, None, 0)
        last[one.name] = version
        seen = 0 if value is None else version
        if seen != one.version:
            raise StaleSetting(field="version", name=one.name, version=seen, expected=one.version)
        if one.value is not None and scope_of(one.name) is not None:
            decode(one.name, one.value)  # Refused before anything is changed.
    for one in puts:
        last[one.name] += 1
        scope = scope_of(one.name)
        stamp = None if scope is None else transaction.scopes + 1
        execute(sql.SETTING_PUT, (one.name, one.value, last[one.name], stamp))
        if scope is not None:
            _configure(transaction, scope, one)
    if under is not None:
        return settings_under(transaction.connection, under)
    rows = [execute(sql.SETTING, (one.name,)).fetchone() for one in puts]
    return [Setting(*row) for row in rows if row[1] is not None]


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


def settings_under(connection: sqlite3.Connection, under: str) -> list[Setting]:
    return [Setting(*row) for row in connection.execute(sql.SETTINGS_UNDER, (under,))]


def take(transaction: Transaction, takes: Sequence[Take], under: str | None) -> list[Hold]:
    holds = [_take(transaction, one) for one in takes]
    return holds if under is None else holds_under(transaction.connection, under, transaction.now)


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
    slots = None if scope is None else scope.slots
    transaction.execute(sql.HOLD_PUT, (hold.name, hold.owner, hold.until, hold.note, slots))
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


def holds_under(connection: sqlite3.Connection, under: str, now: Micros) -> list[Hold]:
    return [Hold(*row) for row in connection.execute(sql.HOLDS_UNDER, (under, now))]
