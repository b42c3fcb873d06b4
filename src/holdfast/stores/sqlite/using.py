"""The caller's own connection: enqueue and ack in its transaction, for sqlite3 and what wraps it.

The same calls as in the writer's transactions, in a savepoint of the caller's. To the writer it is
one more process: it reads the counters again after the caller's commit. Whoever holds the write
lock of the file never waits here.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from holdfast.core.clock import Clock
from holdfast.core.errors import InvalidInput, StoreUnavailable
from holdfast.stores.callers import is_async, package_of, unknown
from holdfast.stores.sqlite.errors import is_busy, translated
from holdfast.stores.sqlite.limits import apply_limits
from holdfast.stores.sqlite.migrate import check_version
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.scope_cache import ScopeCache
from holdfast.stores.sqlite.transaction import LastCommit, Transaction
from holdfast.stores.sqlite.using_hints import CommitHints, Notify

T = TypeVar("T")

DRIVERS = ("sqlite3", "sqlalchemy", "django")
LOCK = "UPDATE counters SET seq = seq WHERE 0"
"""Takes the write lock and changes nothing. It waits as long as the caller's connection is set to,
where later statements could not: their transaction would have read already.
"""


_MISUSED = ("SQLite objects created in a thread", "Cannot operate on a closed")


class Joined:
    """Runs calls in transactions of callers. May be called from any thread, opened or not."""

    def __init__(
        self,
        options: Options,
        clock: Clock,
        notify: Notify | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._cache = ScopeCache()
        self._lock = threading.Lock()
        """Of the cache. Only who holds the write lock of the file takes it, so nobody waits."""
        self._hints = None if notify is None else CommitHints(options, notify)

    def close(self) -> None:
        if self._hints is not None:
            self._hints.close()

    def run(self, connection: Any, act: Callable[[Transaction], T]) -> T:
        """The answer of `act`. An error undoes the call, but not what the caller did before."""
        raw = raw_connection(connection)
        try:
            with _as_ours(raw):
                check_file(raw, self._options.path)
                alone = _begin(raw)
                try:
                    answer, done = self._in_savepoint(raw, act)
                except BaseException:
                    if alone and raw.in_transaction:
                        raw.execute("ROLLBACK")
                    raise
                if self._hints is not None:
                    self._hints.await_commit(done)
                if alone:
                    raw.execute("COMMIT")
                return answer
        except BaseException as error:
            known = _explained(error, self._options.path)
            if known is error:
                raise
            raise known from error

    def _in_savepoint(
        self, raw: sqlite3.Connection, act: Callable[[Transaction], T]
    ) -> tuple[T, Transaction]:
        raw.execute(LOCK)
        with self._lock:
            raw.execute("SAVEPOINT holdfast")
            try:
                last = LastCommit(ahead=0)
                last.sync(raw, self._options.path)
                transaction = Transaction(raw, self._options.events, self._cache, last)
                transaction.now = self._clock.now()
                answer = act(transaction)
                apply_limits(transaction)
                transaction.flush()
            except BaseException:
                if raw.in_transaction:
                    raw.execute("ROLLBACK TO holdfast")
                    raw.execute("RELEASE holdfast")
                raise
            raw.execute("RELEASE holdfast")
        return answer, transaction


def raw_connection(connection: Any) -> sqlite3.Connection:
    """The connection of sqlite3 inside one of SQLAlchemy or Django, whose transaction is begun."""
    package, found = package_of(connection), None
    if isinstance(connection, sqlite3.Connection):
        return connection
    if is_async(connection):
        kind = type(connection).__qualname__
        why = f"is an async connection ({kind}); SQLite's own are blocking: give one of those"
        raise InvalidInput(field="using", why=why)
    if package == "sqlalchemy":
        found = _of_sqlalchemy(connection)
    elif package == "django":
        if connection.vendor != "sqlite":
            raise InvalidInput(field="using", why=f"is a connection to {connection.vendor}")
        connection.ensure_connection()
        found = connection.connection
    if not isinstance(found, sqlite3.Connection):
        raise unknown("using", connection, DRIVERS)
    return found


def _of_sqlalchemy(connection: Any) -> Any:
    if not hasattr(connection, "execute"):
        raise InvalidInput(field="using", why="is an engine; give a connection or a session")
    if hasattr(connection, "flush"):  # A session.
        connection = connection.connection()
    if connection.dialect.name != "sqlite":
        raise InvalidInput(field="using", why=f"is a connection to {connection.dialect.name}")
    if not connection.in_transaction():
        connection.exec_driver_sql("SELECT 1")  # It begins what its `commit` ends.
    return connection.connection.dbapi_connection


def check_file(raw: sqlite3.Connection, path: str) -> None:
    """Refuses a connection to another file than the store's: the job would never run, or in another
    store.
    """
    place = next((row[2] for row in raw.execute("PRAGMA database_list") if row[1] == "main"), "")
    try:
        same = bool(place) and os.path.samefile(place, path)
    except OSError:
        same = False
    if not same:
        why = f"is a connection to another database, {place or ':memory:'!r}; give one to the"
        raise InvalidInput(field="using", why=f"{why} store's, {path}")
    check_version(raw, path)


def _begin(raw: sqlite3.Connection) -> bool:
    """Begins a transaction if none is open: the caller's own, as its next write would, or one for
    this call alone on a connection that commits each statement by itself. Whether it is that.
    """
    if raw.in_transaction:
        return False
    raw.execute("BEGIN IMMEDIATE")
    by_itself = getattr(raw, "autocommit", -1)  # From Python 3.12 on.
    return by_itself is True or (by_itself is not False and raw.isolation_level is None)


@contextmanager
def _as_ours(raw: sqlite3.Connection) -> Iterator[None]:
    """Rows and texts as the store reads them, whatever the caller's connection is set to."""
    rows, texts = raw.row_factory, raw.text_factory
    raw.row_factory, raw.text_factory = None, str
    try:
        yield
    finally:
        raw.row_factory, raw.text_factory = rows, texts


def _explained(error: BaseException, path: str) -> BaseException:
    if isinstance(error, sqlite3.OperationalError) and is_busy(error):
        why = (
            f"the caller's connection did not get the write lock ({error}); begin its transaction"
            " with BEGIN IMMEDIATE, and set its time-out"
        )
        return StoreUnavailable(store=path, why=why)
    if isinstance(error, sqlite3.ProgrammingError) and str(error).startswith(_MISUSED):
        return InvalidInput(field="using", why=f"cannot be used here: {error}")
    return translated(error, path)
