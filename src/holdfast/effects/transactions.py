"""Transactions that `exactly_once` begins on connections of any of several drivers.

Each can be begun once, and is ended by `commit` or `abandon`. With a blocking connection nothing
awaits, but for the write lock of an SQLite file, which is never waited for on the event loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress
from typing import Any, Protocol

from holdfast.core.backoff import Delays
from holdfast.core.bounds import EFFECT_LOCK_S
from holdfast.core.errors import InvalidInput
from holdfast.stores.callers import is_async, package_of, unknown
from holdfast.stores.sqlite.connection import NAP_S_MAX, NAP_S_MIN, patiently
from holdfast.stores.sqlite.errors import is_busy
from holdfast.stores.sqlite.using import LOCK, raw_connection

OPEN = "has a transaction open: exactly_once begins and commits its own; end that one before"
ENDED = "was committed or rolled back inside the block, which ends its transaction by itself"
DRIVERS = ("asyncpg", "psycopg", "sqlalchemy", "django", "sqlite3")


class OwnTransaction(Protocol):
    locks_store: bool
    """Whether it holds the write lock of the store from its begin on."""

    async def begin(self, left_s: float) -> None:
        """Refuses a connection in a transaction. `left_s`: how long it may wait."""

    async def before_ack(self) -> None:
        """Sends what is still to be written. Refuses if the transaction has ended."""

    async def commit(self) -> None: ...

    async def abandon(self, hard: bool = False) -> None:
        """Rolls back; closes the connection if that fails, or if it may be in the middle of
        something (`hard`). Raises nothing of the database.
        """


def transaction_on(connection: Any, blocks: bool) -> OwnTransaction:
    """The transaction for this connection, not begun yet."""
    package = package_of(connection)
    if package == "asyncpg" and hasattr(connection, "is_in_transaction"):
        return _Asyncpg(connection)
    if package == "psycopg" and hasattr(connection, "transaction"):
        return _Psycopg(connection)
    if package == "sqlalchemy" and hasattr(connection, "in_transaction"):
        return _SqlAlchemy(connection, blocks)
    if package == "django" and hasattr(connection, "vendor"):
        return _Django(connection, blocks)
    if isinstance(connection, sqlite3.Connection):
        return _Sqlite(connection, blocks)
    raise unknown("connection", connection, DRIVERS)


def _refused(why: str) -> InvalidInput:
    return InvalidInput(field="connection", why=why)


class _Asyncpg:
    locks_store = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def begin(self, left_s: float) -> None:
        if self._connection.is_in_transaction():
            raise _refused(OPEN)
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    async def before_ack(self) -> None:
        if not self._connection.is_in_transaction():
            raise _refused(ENDED)

    async def commit(self) -> None:
        await self._transaction.commit()

    async def abandon(self, hard: bool = False) -> None:
        connection = self._connection
        if not (hard or connection.is_closed()):
            with suppress(Exception):  # It has ended by itself, or the connection is lost.
                await self._transaction.rollback()
        if hard or connection.is_in_transaction():
            connection.terminate()


class _Psycopg:
    locks_store = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._awaits = is_async(connection)
        self._left = False
        """Whether the driver's own block has ended, in whatever way."""

    async def begin(self, left_s: float) -> None:
        if not self._is_idle():
            raise _refused(OPEN)
        self._block = self._connection.transaction()
        await self._ask(self._block, "enter")

    def _is_idle(self) -> bool:
        from psycopg.pq import TransactionStatus

        status: TransactionStatus = self._connection.info.transaction_status
        return status is TransactionStatus.IDLE

    async def before_ack(self) -> None:
        if self._is_idle():
            raise _refused(ENDED)

    async def commit(self) -> None:
        self._left = True
        await self._ask(self._block, "exit", None, None, None)

    async def abandon(self, hard: bool = False) -> None:
        from psycopg import Rollback

        if not hard and self._is_idle():
            return
        if not (hard or self._left):
            with suppress(Exception):
                await self._ask(self._block, "exit", Rollback, Rollback(), None)
        if hard or not self._is_idle():
            closed = self._connection.close()
            if self._awaits:
                await closed

    async def _ask(self, block: Any, what: str, *args: Any) -> None:
        if self._awaits:
            await getattr(block, f"__a{what}__")(*args)
        else:
            getattr(block, f"__{what}__")(*args)


class _SqlAlchemy:
    """Of a connection or a session, blocking or not."""

    def __init__(self, connection: Any, blocks: bool) -> None:
        self._connection, self._blocks = connection, blocks
        self._awaits = is_async(connection)
        bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
        self.locks_store = bind.dialect.name == "sqlite"

    async def begin(self, left_s: float) -> None:
        if self._connection.in_transaction():
            raise _refused(OPEN)
        if self.locks_store and self._awaits:
            raw_connection(self._connection)  # Refuses it by name.
        begun = self._connection.begin()
        self._transaction = await begun if self._awaits else begun
        if self.locks_store:
            try:
                await _lock(raw_connection(self._connection), self._blocks, left_s)
            except BaseException:
                self._transaction.rollback()
                raise

    async def before_ack(self) -> None:
        if not self._transaction.is_active:
            raise _refused(ENDED)
        if hasattr(self._connection, "flush"):  # Of a session: what it would write at the commit.
            flushed = self._connection.flush()
            if self._awaits:
                await flushed

    async def commit(self) -> None:
        done = self._transaction.commit()
        if self._awaits:
            await done

    async def abandon(self, hard: bool = False) -> None:
        calls = [self._transaction.rollback, self._connection.invalidate]
        for call in calls[hard:]:
            with suppress(Exception):
                done = call()
                if self._awaits:
                    await done
                return


class _Django:
    """Of a connection that `django.db.connections` knows."""

    def __init__(self, connection: Any, blocks: bool) -> None:
        self._connection, self._blocks = connection, blocks
        self.locks_store = connection.vendor == "sqlite"

    async def begin(self, left_s: float) -> None:
        from django.db import connections, transaction  # type: ignore[import-untyped]

        connection, alias = self._connection, self._connection.alias
        if alias not in connections or connections[alias].queries_log is not connection.queries_log:
            raise _refused(f"{alias!r} is not one of django.db.connections")
        if connection.in_atomic_block or not connection.get_autocommit():
            raise _refused(OPEN)
        self._block = transaction.atomic(using=alias, durable=True)
        self._block.__enter__()
        if self.locks_store:
            try:
                await _lock(raw_connection(connection), self._blocks, left_s)
            except BaseException as error:
                self._block.__exit__(type(error), error, None)
                raise

    async def before_ack(self) -> None:
        if not self._connection.in_atomic_block:
            raise _refused(ENDED)

    async def commit(self) -> None:
        self._block.__exit__(None, None, None)

    async def abandon(self, hard: bool = False) -> None:
        if not self._connection.in_atomic_block:
            return
        error = RuntimeError("rolled back")
        try:
            self._block.__exit__(RuntimeError, error, None)
        except Exception:
            self._connection.close()


class _Sqlite:
    locks_store = True

    def __init__(self, connection: sqlite3.Connection, blocks: bool) -> None:
        self._connection, self._blocks = connection, blocks

    async def begin(self, left_s: float) -> None:
        always = getattr(self._connection, "autocommit", -1) is False  # Python 3.12 and later.
        if self._connection.in_transaction and not always:
            raise _refused(OPEN)
        await _lock(self._connection, self._blocks, left_s)
        self._connection.execute("SAVEPOINT holdfast_effect")

    async def before_ack(self) -> None:
        try:
            self._connection.execute("RELEASE holdfast_effect")
        except sqlite3.OperationalError as error:
            raise _refused(ENDED) from error

    async def commit(self) -> None:
        self._connection.execute("COMMIT")

    async def abandon(self, hard: bool = False) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection.close()


async def _lock(raw: sqlite3.Connection, blocks: bool, left_s: float) -> None:
    """Takes the write lock of the file, so that the transaction reads what it will write upon."""
    statement = LOCK if raw.in_transaction else "BEGIN IMMEDIATE"
    most_s = min(left_s, EFFECT_LOCK_S)
    try:
        if blocks:
            patiently(most_s, lambda: raw.execute(statement))
        else:
            await _lock_on_loop(raw, statement, most_s)
    except sqlite3.OperationalError as error:
        if is_busy(error):
            raise
        raise _refused(f"is not one to the store's database: {error}") from error


async def _lock_on_loop(raw: sqlite3.Connection, statement: str, most_s: float) -> None:
    """The other tasks of the loop go on meanwhile: one of them may hold the lock."""
    [[busy_ms]] = _plain(raw, "PRAGMA busy_timeout")
    _plain(raw, "PRAGMA busy_timeout = 0")
    deadline_s = time.monotonic() + most_s
    naps = Delays(NAP_S_MIN, NAP_S_MAX, factor=1.5)
    try:
        while True:
            try:
                raw.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline_s:
                    raise
            await asyncio.sleep(naps.next_s())
    finally:
        _plain(raw, f"PRAGMA busy_timeout = {int(busy_ms)}")


def _plain(raw: sqlite3.Connection, statement: str) -> list[Any]:
    cursor = raw.cursor()
    cursor.row_factory = None
    return cursor.execute(statement).fetchall()
