"""Names with a value (settings) and names held for a time (leaders, presence, slots)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.clock import Micros
from holdfast.errors import StaleSetting
from holdfast.store import Hold, Put, Setting, Take
from holdfast.stores.sqlite import statements as sql
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
    for one in puts:
        last[one.name] += 1
        execute(sql.SETTING_PUT, (one.name, one.value, last[one.name]))
    if under is not None:
        return settings_under(transaction.connection, under)
    rows = [execute(sql.SETTING, (one.name,)).fetchone() for one in puts]
    return [Setting(*row) for row in rows if row[1] is not None]


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
    if one.length_us <= 0:
        transaction.execute(sql.HOLD_DROP, (one.name,))
        return Hold(one.name, "", 0, "")
    hold = Hold(one.name, one.owner, now + one.length_us, one.note)
    transaction.execute(sql.HOLD_PUT, (hold.name, hold.owner, hold.until, hold.note))
    return hold


def holds_under(connection: sqlite3.Connection, under: str, now: Micros) -> list[Hold]:
    return [Hold(*row) for row in connection.execute(sql.HOLDS_UNDER, (under, now))]
