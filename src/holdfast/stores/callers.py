"""Statements on connections of callers, with any of several drivers.

The package of a connection's class tells which driver it belongs to; no driver is imported unless
the caller has imported it already. With a blocking connection nothing here awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from holdfast.core.errors import InvalidInput

Rows = Sequence[Sequence[Any]]


class Query(NamedTuple):
    """A statement that returns rows, as the drivers want it: with numbered, formatted, named or
    marked parameters.
    """

    numbered: str
    formatted: str
    named: str
    marked: str
    names: tuple[str, ...]


def query(text: str, *names: str) -> Query:
    """A statement with `{}` where each of these parameters goes, in this order."""
    return Query(
        text.format(*(f"${number}" for number in range(1, len(names) + 1))),
        text.format(*("%s" for _ in names)),
        text.format(*(f":{name}" for name in names)),
        text.format(*("?" for _ in names)),
        names,
    )


def package_of(connection: Any) -> str:
    """The package of the driver."""
    return type(connection).__module__.partition(".")[0].lstrip("_")


def unknown(field: str, connection: Any, known: Sequence[str]) -> InvalidInput:
    """The error for what is no connection of these drivers."""
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    names = ", ".join(sorted(known))
    return InvalidInput(field=field, why=f"is a {kind}; must be a connection of {names}")


async def run(
    connection: Any, statement: Query, values: Sequence[Any], *, known: Sequence[str] = ()
) -> Rows:
    """The rows of a statement. `known`: the drivers that will do; none are named: all."""
    package = package_of(connection)
    way = _WAYS.get(package)
    if way is None or (known and package not in known):
        raise unknown("using", connection, known or tuple(_WAYS))
    answer = way(connection, statement, tuple(values))
    return await answer if isinstance(answer, Awaitable) else answer


def is_async(connection: Any) -> bool:
    """Whether the calls of this connection are awaited."""
    package = package_of(connection)
    if package == "psycopg":
        from psycopg import AsyncConnection

        return isinstance(connection, AsyncConnection)
    if package == "sqlalchemy":
        from sqlalchemy.ext.asyncio import AsyncConnection as Awaited
        from sqlalchemy.ext.asyncio import AsyncSession

        return isinstance(connection, Awaited | AsyncSession)
    return package in ("asyncpg", "aiosqlite")


def _looped(connection: Any, work: Callable[[], Awaitable[Rows]]) -> Awaitable[Rows]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        kind = type(connection).__qualname__
        why = f"is an async connection ({kind}): enqueue with await, not by app.sync"
        raise InvalidInput(field="using", why=why) from None
    return work()


def _asyncpg(connection: Any, statement: Query, values: tuple[Any, ...]) -> Awaitable[Rows]:
    if not hasattr(connection, "transaction"):
        raise InvalidInput(field="using", why="is a pool; give the connection with the transaction")
    return _looped(connection, lambda: connection.fetch(statement.numbered, *values))


def _psycopg(connection: Any, statement: Query, values: tuple[Any, ...]) -> Rows | Awaitable[Rows]:
    from psycopg import Connection
    from psycopg.rows import tuple_row

    if is_async(connection):

        async def work() -> Rows:
            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(statement.formatted.encode(), values)
                rows: Rows = await cursor.fetchall()
                return rows

        return _looped(connection, work)
    if not isinstance(connection, Connection):
        raise InvalidInput(field="using", why="is not a connection; give the one of your cursor")
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement.formatted.encode(), values)
        return cursor.fetchall()


def _sqlalchemy(
    connection: Any, statement: Query, values: tuple[Any, ...]
) -> Rows | Awaitable[Rows]:
    from sqlalchemy import text

    if not hasattr(connection, "execute"):
        raise InvalidInput(field="using", why="is an engine; give a connection or a session")
    clause, named = text(statement.named), dict(zip(statement.names, values, strict=True))
    if is_async(connection):

        async def work() -> Rows:
            rows: Rows = (await connection.execute(clause, named)).all()
            return rows

        return _looped(connection, work)
    return list(connection.execute(clause, named).all())


def _django(connection: Any, statement: Query, values: tuple[Any, ...]) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(statement.formatted, values)
        return list(cursor.fetchall())


def _sqlite3(connection: Any, statement: Query, values: tuple[Any, ...]) -> Rows:
    if not hasattr(connection, "cursor"):
        raise InvalidInput(field="using", why="is not a connection; give the one of your cursor")
    cursor = connection.cursor()
    cursor.row_factory = None
    return list(cursor.execute(statement.marked, values).fetchall())


_WAYS: dict[str, Callable[[Any, Query, tuple[Any, ...]], Rows | Awaitable[Rows]]] = {
    "asyncpg": _asyncpg,
    "psycopg": _psycopg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
    "sqlite3": _sqlite3,
}
