"""Settings: names with a value and a version. Those of scopes and tiers take effect at once."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.core import bounds, tiers
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
from holdfast.stores.sqlite.limits_tiers import tenant_moved, tier_changed
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
        last[one.name] = version
    _check_scopes(transaction, new)
    tiers.check_puts(
        [(one.name, one.value) for one in puts],
        transaction.scope_cache.tiers,
        partial(_tier_users, transaction),
    )
    for one in puts:
        last[one.name] += 1
        scope, tier = scope_of(one.name), tiers.tier_of(one.name)
        if scope is not None:
            _configure(transaction, scope, one, last[one.name])
        elif tier is not None:
            _set_tier(transaction, tier, one, last[one.name])
        else:
            _store(transaction, one, last[one.name])
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


def _tier_users(transaction: Transaction, tier: str) -> int:
    """How many tenants are in a tier."""
    (users,) = transaction.execute(scope_sql.TIER_USERS, (tier,)).fetchone()
    return int(users)


def _store(
    transaction: Transaction,
    put: Put,
    version: int,
    tier: str | None = None,
    *,
    rates: bool = False,
) -> None:
    """Writes a setting. The cache reads one of a scope or a tier; `rates` says whether it changes
    rates that tenants have from tiers.
    """
    stamp = None
    if scope_of(put.name) is not None or tiers.tier_of(put.name) is not None:
        stamp = transaction.scopes_version = transaction.scopes_version + 1
    change = (stamp, transaction.now) if rates else (None, None)
    values = (put.name, put.value, version, stamp, tier, *change)
    transaction.execute(scope_sql.SETTING_PUT, values)
    transaction.scope_cache.sync(transaction.connection, transaction.scopes_version)


def _set_tier(transaction: Transaction, tier: str, put: Put, version: int) -> None:
    """Applies what a tier, or the platform for "", sets from now on."""
    before = transaction.scope_cache.tiers.get(tier, tiers.NO_DEFAULTS)
    after = tiers.NO_DEFAULTS if put.value is None else tiers.decode(put.name, put.value)
    _store(transaction, put, version, rates=tiers.rates(before) != tiers.rates(after))
    tier_changed(transaction, tier, before)
    _record(transaction, "", put)


def _configure(transaction: Transaction, scope: Scope, put: Put, version: int) -> None:
    """Applies the new settings of a scope."""
    cache = transaction.scope_cache
    before = cache.of(scope)
    if scope.of_platform:
        transaction.write_counts()  # By the settings that held until now.
    tier = None if put.value is None else decode(put.name, put.value).tier
    moved = tier != before.tier
    _store(transaction, put, version, tier, rates=moved)
    bound_bucket(transaction, scope, cache.of(scope).rate)
    if scope.of_platform:
        count_running(transaction, scope)
    elif scope.kind is ScopeKind.GROUP:
        regrant(transaction, scope.tenant, scope.part)
    elif before.groups != cache.of(scope).groups:
        regrant_queue(transaction, scope)
    room_changed(transaction, scope)
    if moved:
        tenant_moved(transaction, scope.tenant)
    _record(transaction, scope.tenant, put)


def _record(transaction: Transaction, tenant: str, put: Put) -> None:
    text = (put.value or b"").decode()
    transaction.record_event(EventKind.CONFIGURED, (tenant, put.name, "", ""), 0, 0, text=text)


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
