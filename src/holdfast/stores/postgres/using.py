"""Enqueue on the caller's own connection, in its transaction, with any of several drivers.

A driver only has to call one function with one text. The package of its class tells which driver a
connection belongs to; no driver is imported unless the caller has imported it already.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from holdfast.core.errors import InvalidInput
from holdfast.core.job import NewJob, edge_bytes
from holdfast.stores.postgres.rows import TAGS_BETWEEN
from holdfast.stores.postgres.statements import EXPECT
from holdfast.stores.sql_rows import rules_text

Rows = Sequence[Sequence[Any]]

_CALL = (
    "SELECT ord, why, id, queue, type, has, most FROM holdfast.enqueue_json(CAST({} AS jsonb), "
    + EXPECT.format("CAST({} AS bigint)")
    + ", CAST({} AS boolean), CAST({} AS text), CAST({} AS text))"
)
_NAMES = ("jobs", "given_now", "events", "channel", "hint")


class Query(NamedTuple):
    """A statement as the drivers want it: with numbered, formatted or named parameters."""

    numbered: str
    formatted: str
    named: str


WHERE = (
    "SELECT CAST(system_identifier AS text) || '/' || CAST((SELECT oid FROM pg_database"
    " WHERE datname = current_database()) AS text), CAST(current_database() AS text)"
    " FROM pg_control_system()"
)
"""Which database of which cluster this is: the same on a replica that took over."""
_WHERE = Query(WHERE, WHERE, WHERE)
_places: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The databases of connections that were checked before."""
_ABSENT = frozenset({"3F000", "42883"})
"""There is no such schema, or no such function in it."""


def document(jobs: Sequence[NewJob]) -> str:
    """The jobs as the function reads them."""
    return msgspec.json.encode([_plain(job) for job in jobs]).decode()


def in_flow(job: NewJob) -> bool:
    """Whether it awaits others, or others await it."""
    return bool(job.edges or job.parents)


def flow(job: NewJob) -> dict[str, Any]:
    """What such a job has beyond the others, as `enqueue_flow.sql` reads it."""
    edges = [(edge.target, edge.join, edge.on_failure.value) for edge in job.edges]
    size = edge_bytes(job) if edges else 0
    return {
        "parents": job.parents,
        "ends": int(job.ends_with_parents),
        "edges": edges,
        "number": len(edges),
        "bytes": size,
    }


def _plain(job: NewJob) -> dict[str, Any]:
    envelope, rules = job.envelope, job.rules
    return {
        "tenant": job.tenant,
        "id": job.id,
        "queue": job.queue,
        "type": envelope.type,
        "codec": envelope.codec,
        "version": envelope.version,
        "payload": base64.b64encode(envelope.body).decode(),
        "rules": rules_text(rules),
        "priority": job.priority,
        "delay_us": job.delay_us,
        "run_at": job.run_at,
        "ttl_us": job.ttl_us,
        "key": job.key,
        "key_us": rules.key_us,
        "group_name": job.group,
        "tags": TAGS_BETWEEN.join(job.tags) if job.tags else None,
        "origin": job.origin,
        "max_attempts": rules.max_attempts,
        "keep_us": rules.keep_us,
        "flow": flow(job) if in_flow(job) else None,
    }


async def ask(connection: Any, schema: str, values: tuple[Any, ...]) -> Rows:
    """The rows that the function returns. Awaits nothing where the connection blocks."""
    call = _CALL.replace("holdfast.", f'"{schema}".')
    query = Query(
        call.format("$1", "$2", "$3", "$4", "$5"),
        call.format("%s", "%s", "%s", "%s", "%s"),
        call.format(*(f":{name}" for name in _NAMES)),
    )
    try:
        return await _run(connection, query, values)
    except Exception as error:
        if _ABSENT.isdisjoint(_states(error)):
            raise
        why = (
            f"is a connection to a database without the schema {schema!r}; give one to the store's"
        )
        raise InvalidInput(field="using", why=why) from error


def _states(error: BaseException) -> set[object]:
    """SQL's codes of an error, also of one that SQLAlchemy or Django wrapped."""
    found = (error, getattr(error, "orig", None), error.__cause__)
    return {getattr(one, "sqlstate", None) for one in found}


async def check_place(connection: Any, place: str | None, store: str) -> None:
    """Refuses a connection to another database than the store's: the job would never run, or in
    another store. Without a place, since the store was never opened, it checks nothing.
    """
    if place is None:
        return
    with suppress(TypeError):  # Such a connection cannot be remembered.
        if _places.get(connection) == place:
            return
    [(found, name)] = await _run(connection, _WHERE, ())
    if found != place:
        why = f"is a connection to another database, {name!r}; give one to the store's, {store}"
        raise InvalidInput(field="using", why=why)
    with suppress(TypeError):
        _places[connection] = place


async def _run(connection: Any, query: Query, values: tuple[Any, ...]) -> Rows:
    package = type(connection).__module__.partition(".")[0]
    way = _WAYS.get(package)
    if way is None:
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
        known = ", ".join(sorted(_WAYS))
        raise InvalidInput(field="using", why=f"is a {kind}; must be a connection of {known}")
    answer = way(connection, query, values)
    return await answer if isinstance(answer, Awaitable) else answer


def _looped(connection: Any, work: Callable[[], Awaitable[Rows]]) -> Awaitable[Rows]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        kind = type(connection).__qualname__
        why = f"is an async connection ({kind}): enqueue with await, not by app.sync"
        raise InvalidInput(field="using", why=why) from None
    return work()


def _asyncpg(connection: Any, query: Query, values: tuple[Any, ...]) -> Awaitable[Rows]:
    if not hasattr(connection, "transaction"):
        raise InvalidInput(field="using", why="is a pool; give the connection with the transaction")
    return _looped(connection, lambda: connection.fetch(query.numbered, *values))


def _psycopg(connection: Any, query: Query, values: tuple[Any, ...]) -> Rows | Awaitable[Rows]:
    from psycopg import AsyncConnection, Connection
    from psycopg.rows import tuple_row

    if isinstance(connection, AsyncConnection):

        async def work() -> Rows:
            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(query.formatted.encode(), values)
                return await cursor.fetchall()

        return _looped(connection, work)
    if not isinstance(connection, Connection):
        raise InvalidInput(field="using", why="is not a connection; give the one of your cursor")
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query.formatted.encode(), values)
        return cursor.fetchall()


def _sqlalchemy(connection: Any, query: Query, values: tuple[Any, ...]) -> Rows | Awaitable[Rows]:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    if not hasattr(connection, "execute"):
        raise InvalidInput(field="using", why="is an engine; give a connection or a session")
    statement, named_values = text(query.named), dict(zip(_NAMES, values, strict=False))
    if isinstance(connection, AsyncConnection | AsyncSession):

        async def work() -> Rows:
            return (await connection.execute(statement, named_values)).all()

        return _looped(connection, work)
    return list(connection.execute(statement, named_values).all())


def _django(connection: Any, query: Query, values: tuple[Any, ...]) -> Rows:
    if connection.vendor != "postgresql":
        raise InvalidInput(field="using", why=f"is a connection to {connection.vendor}")
    with connection.cursor() as cursor:
        cursor.execute(query.formatted, values)
        return list(cursor.fetchall())


_WAYS: dict[str, Callable[[Any, Query, tuple[Any, ...]], Rows | Awaitable[Rows]]] = {
    "asyncpg": _asyncpg,
    "psycopg": _psycopg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
}
