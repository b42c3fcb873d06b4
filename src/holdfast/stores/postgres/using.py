"""The caller's own connection: enqueue and ack in its transaction, with any of several drivers.

A driver only has to call one function with one text.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from holdfast.core.bounds import COMMIT_S_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import REFUSALS, InvalidInput, Refused
from holdfast.core.job import NewJob, edge_bytes
from holdfast.core.lifecycle import Transition
from holdfast.stores.callers import Query, Rows, query, run
from holdfast.stores.postgres.joins import SERVER_MAX
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.rows import EDGE_BETWEEN, EDGES_BETWEEN, TAGS_BETWEEN, seq_of
from holdfast.stores.postgres.statements import EXPECT
from holdfast.stores.sql_rows import rules_text

DRIVERS = ("asyncpg", "psycopg", "sqlalchemy", "django")

_NOW = EXPECT.format("CAST({} AS bigint)")
_ENQUEUE = (
    "SELECT ord, why, id, queue, type, has, most FROM holdfast.enqueue_json(CAST({} AS jsonb), "
    + _NOW
    + ", CAST({} AS boolean), CAST({} AS text), CAST({} AS text))"
)
_COMPLETE = (
    "SELECT holdfast.complete_json(CAST({} AS jsonb), "
    + _NOW
    + ", CAST({} AS boolean), CAST({} AS text), CAST({} AS integer), CAST({} AS integer))"
)
WHERE = (
    "SELECT CAST(system_identifier AS text) || '/' || CAST((SELECT oid FROM pg_database"
    " WHERE datname = current_database()) AS text), CAST(current_database() AS text)"
    " FROM pg_control_system()"
)
"""Which database of which cluster this is: the same on a replica that took over."""
_WHERE = query(WHERE)
_places: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The databases of connections that were checked before."""
_ABSENT = frozenset({"3F000", "42883"})
"""There is no such schema, or no such function in it."""


def document(jobs: Sequence[NewJob]) -> str:
    """The jobs as the function reads them."""
    return msgspec.json.encode([_plain(job) for job in jobs]).decode()


def edges_text(job: NewJob) -> str | None:
    """The edges of a job as the function reads them."""
    if not job.edges:
        return None
    return EDGES_BETWEEN.join(
        EDGE_BETWEEN.join((edge.target, edge.join, edge.on_failure.value)) for edge in job.edges
    )


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
        "parents": job.parents,
        "ends_with_parents": job.ends_with_parents,
        "edges": edges_text(job),
        "edge_bytes": edge_bytes(job),
    }


async def enqueue(
    connection: Any, options: Options, now: Micros | None, jobs: Sequence[NewJob], words: str | None
) -> Rows:
    """The rows that the function returns. `words`: what sleepers are notified of."""
    names = ("jobs", "given_now", "events", "channel", "hint")
    values = (document(jobs), now, options.events, options.channel, words)
    return await _ask(connection, options.schema, query(_ENQUEUE, *names), values)


async def complete(
    connection: Any, options: Options, now: Micros | None, change: Transition
) -> type[Refused] | None:
    """Completes a leased job; why not, if that was refused. Must be the last statement before the
    commit: readers of events wait for it, and the server ends the session if it does not come.
    """
    names = ("job", "given_now", "events", "channel", "idle_ms", "edges_max")
    idle_ms = int(COMMIT_S_MAX * 1000)
    values = (_ended(change), now, options.events, options.channel, idle_ms, SERVER_MAX)
    [[why]] = await _ask(connection, options.schema, query(_COMPLETE, *names), values)
    return None if why is None else REFUSALS[why]


def _ended(change: Transition) -> str:
    result = None if change.result is None else base64.b64encode(change.result).decode()
    token = change.token or ""
    facts = {"tenant": change.tenant, "id": change.id, "token": token, "seq": seq_of(token)}
    return msgspec.json.encode({**facts, "result": result}).decode()


async def _ask(connection: Any, schema: str, call: Query, values: tuple[Any, ...]) -> Rows:
    """The rows of a call. Awaits nothing where the connection blocks."""
    own = f'"{schema}".'
    texts = {way: getattr(call, way).replace("holdfast.", own) for way in Query._fields[:4]}
    try:
        return await _run(connection, call._replace(**texts), values)
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


async def _run(connection: Any, call: Query, values: tuple[Any, ...]) -> Rows:
    vendor = getattr(connection, "vendor", "postgresql")
    if vendor != "postgresql":
        raise InvalidInput(field="using", why=f"is a connection to {vendor}")
    return await run(connection, call, values, known=DRIVERS)
