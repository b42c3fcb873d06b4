"""Settings: names with a value and a version; settings of scopes take effect in the same step."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.core import bounds
from holdfast.core.bounds import NAME_MAX
from holdfast.core.errors import StaleSetting, TenantFull
from holdfast.core.job import EventKind
from holdfast.core.scope import Scope, ScopeKind, decode, scope_of
from holdfast.store import Put, Setting
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite.limits import room_changed
from holdfast.stores.sqlite.limits_groups import regrant, regrant_queue
from holdfast.stores.sqlite.limits_platform import count_running
from holdfast.stores.sqlite.limits_room import bound_bucket
from holdfast.stores.sqlite.transaction import Transaction

Paging = tuple[str, str, int]
"""(under which prefix, after which name, how many)"""


def put_settings(
    transaction: Transaction, puts: Sequence[Put], page: Paging | None, signed: str | None
) -> list[Setting]:
    execute = transaction.execute
    transaction.signed = signed
    last: dict[str, int] = {}
    new: Counter[str] = Counter()
    for one in puts:
        found = execute(scope_sql.SETTING, (one.name,)).fetchone()
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
        stamp = None if scope is None else transaction.scopes_version + 1
        execute(scope_sql.SETTING_PUT, (one.name, one.value, last[one.name], stamp))
        if scope is not None:
            _configure(transaction, scope, one)
    if page is not None:
        return settings_page(transaction.connection, page)
    rows = [execute(scope_sql.SETTING, (one.name,)).fetchone() for one in puts]
    return [Setting(*row) for row in rows if row[1] is not None]


def _check_scopes(transaction: Transaction, new: Counter[str]) -> None:
    """Raises TenantFull if a tenant would have settings for too many scopes."""
    for tenant, more in new.items():
        has = 0
        for kind in ScopeKind:
            under = Scope(tenant, kind).name
            found = transaction.execute(
                scope_sql.SETTINGS_WITHIN, (under, after_prefix(under))
            ).fetchone()
            has += found[0]
        if has + more > bounds.SETTINGS_MAX:
            raise TenantFull(tenant=tenant, what="scopes", max=bounds.SETTINGS_MAX)


def _configure(transaction: Transaction, scope: Scope, put: Put) -> None:
    """Applies the new settings of a scope."""
    cache = transaction.scope_cache
    before = cache.of(scope)
    if scope.of_platform:
        transaction.write_counts()  # By the settings that held until now.
    transaction.scopes_version += 1
    cache.sync(transaction.connection, transaction.scopes_version)
    bound_bucket(transaction, scope, cache.of(scope).rate)
    if scope.of_platform:
        count_running(transaction, scope)
    elif scope.kind is ScopeKind.GROUP:
        regrant(transaction, scope.tenant, scope.part)
    elif before.groups != cache.of(scope).groups:
        regrant_queue(transaction, scope)
    room_changed(transaction, scope)
    text = (put.value or b"").decode()
    transaction.record_event(
        EventKind.CONFIGURED, (scope.tenant, put.name, "", ""), 0, 0, text=text
    )


def settings_page(connection: sqlite3.Connection, page: Paging) -> list[Setting]:
    return [Setting(*row) for row in page_of(connection, scope_sql.SETTINGS_PAGE, (), page)]


def page_of(
    connection: sqlite3.Connection, query: str, values: tuple[Any, ...], page: Paging
) -> list[tuple[Any, ...]]:
    """The rows of the first names under a prefix and after a name, in order."""
    under, after, limit = page
    names, given = "name >= ? AND name > ?", [under, after]
    if under:
        names, given = f"{names} AND name < ?", [*given, after_prefix(under)]
    query = f"{query.format(names=names)} ORDER BY name LIMIT ?"
    return connection.execute(query, (*values, *given, limit)).fetchall()


def after_prefix(prefix: str) -> str:
    """The first text after all names with this prefix; SQLite orders texts by their bytes."""
    last = ord(prefix[-1])
    if last == 0x10FFFF:
        return prefix + chr(last) * NAME_MAX
    return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
