"""Fences in tables of your own: a row remembers the newest run that has written it.

A worker that was cut off may go on after its job was given to another one. With
`guard(connection, table, key, fence)` as the first statement of its transaction its later writes
fail: the row has the fence of the newer run by then, and until the commit nobody else passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.core.check import check_whole
from holdfast.core.errors import InvalidInput, StaleFence
from holdfast.run_here import run_here
from holdfast.stores.callers import Query, is_async, query, run

FENCE_MAX = 2**53
KEYS_MAX = 16
"""Columns of one key."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


async def guard(
    connection: Any,
    table: str,
    key: Mapping[str, Any],
    fence: int,
    *,
    column: str = "fence",
    insert: bool = False,
) -> None:
    """Writes `fence` into the row with this key unless it has a higher one: StaleFence then. Call
    it first in a transaction. `insert` makes a missing row; otherwise that is InvalidInput. With a
    blocking connection nothing awaits: see `guard_sync`.
    """
    check_whole("fence", fence, 0, FENCE_MAX)
    names = _checked(table, key, column)
    values = [fence, *key.values()]
    updated = await run(connection, _update(names, column), [*values, fence])
    if updated:
        return
    found = await run(connection, _select(names, column), list(key.values()))
    if not found and insert:
        found = await run(connection, _insert(names, column), [*key.values(), fence])
        if found and int(found[0][0]) == fence:
            return
    if not found:
        why = f"names no row of {table}: {dict(key)!r}; insert=True makes it"
        raise InvalidInput(field="key", why=why)
    raise StaleFence(table=table, key=dict(key), found=found[0][0], fence=fence)


def guard_sync(
    connection: Any,
    table: str,
    key: Mapping[str, Any],
    fence: int,
    *,
    column: str = "fence",
    insert: bool = False,
) -> None:
    """As `guard`, on a blocking connection."""
    if is_async(connection):
        raise InvalidInput(field="connection", why="is an async connection: await guard(...)")
    work = guard(connection, table, key, fence, column=column, insert=insert)
    run_here(work, "connection", "await guard(...)")


def _checked(table: str, key: Mapping[str, Any], column: str) -> tuple[str, ...]:
    """The quoted name of the table, and the names of the key's columns."""
    if not 1 <= len(key) <= KEYS_MAX:
        raise InvalidInput(field="key", why=f"has {len(key)} columns, must have 1 to {KEYS_MAX}")
    for field, name in (("table", table), ("column", column), *(("key", one) for one in key)):
        parts = name.split(".") if field == "table" else [name]
        if len(parts) > 2 or not all(_NAME.fullmatch(part) for part in parts):
            raise InvalidInput(field=field, why=f"is no name of a {field}: {name!r}")
    return (".".join(f'"{part}"' for part in table.split(".")), *key)


def _where(columns: tuple[str, ...]) -> str:
    return " AND ".join(f'"{name}" = {{}}' for name in columns)


def _update(names: tuple[str, ...], column: str) -> Query:
    table, *columns = names
    text = (
        f'UPDATE {table} SET "{column}" = {{}} WHERE {_where(tuple(columns))}'
        f' AND ("{column}" IS NULL OR "{column}" <= {{}}) RETURNING "{column}"'
    )
    return query(text, "fence", *_numbered(columns), "most")


def _select(names: tuple[str, ...], column: str) -> Query:
    table, *columns = names
    text = f'SELECT "{column}" FROM {table} WHERE {_where(tuple(columns))}'
    return query(text, *_numbered(columns))


def _insert(names: tuple[str, ...], column: str) -> Query:
    """Of two that insert at once the second one finds the row of the first."""
    table, *columns = names
    listed = ", ".join(f'"{name}"' for name in (*columns, column))
    marks = ", ".join(["{}"] * (len(columns) + 1))
    own, short = f'"{column}"', table.rpartition(".")[2]
    keys = ", ".join(f'"{name}"' for name in columns)
    text = (
        f"INSERT INTO {table} ({listed}) VALUES ({marks}) ON CONFLICT ({keys}) DO UPDATE SET"
        f" {own} = CASE WHEN {short}.{own} > excluded.{own} THEN {short}.{own}"
        f" ELSE excluded.{own} END RETURNING {own}"
    )
    return query(text, *_numbered(columns), "fence")


def _numbered(columns: list[str]) -> list[str]:
    return [f"k{number}" for number in range(len(columns))]
