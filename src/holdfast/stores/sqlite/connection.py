"""How a database file is opened: its pragmas, its schema, and patience with other processes."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import SchemaTooOld, StoreUnavailable, StoreUnsupported
from holdfast.stores.sqlite import migrate
from holdfast.stores.sqlite.faults import check_place, is_busy
from holdfast.stores.sqlite.layout import SCHEMA_VERSION
from holdfast.stores.sqlite.options import Options

T = TypeVar("T")

SQLITE_MIN = (3, 35, 0)
"""RETURNING came with it."""

OWNER_ONLY = 0o600
"""The mode of a new database file."""

STATEMENTS_MAX = 256
"""Prepared statements that one connection keeps."""

NAP_S_MIN = 0.0002
NAP_S_MAX = 0.001
"""SQLite's own busy handler naps up to 100 ms, far longer than our transactions last."""

LOG_PAGES = {"full": 250, "normal": 1000}
"""Pages of the log after which it is written over from its start: where no commit is flushed, a
checkpoint is the only flush.
"""
WAL_BYTES_MAX = 64 * 1024 * 1024
"""To this the log file is cut back after a long reader made it grow."""


def open_writer(options: Options, may_migrate: bool | None = None) -> sqlite3.Connection:
    """A connection that may write, with the schema at its newest version. Unless it is said here
    whether that may be brought about, the options say it.
    """
    may = options.migrate == "auto" if may_migrate is None else may_migrate
    _check_version(options.path)
    check_place(options.path)
    if not os.path.exists(options.path):
        _make(options, may)
    connection = _connect(options)
    try:
        _journal(connection, options)
        _migrate(connection, options, may)
    except BaseException:
        connection.close()
        raise
    return connection


def _make(options: Options, may_migrate: bool) -> None:
    """An empty file that nobody but its owner can read. SQLite gives the files that it keeps beside
    it the same mode.
    """
    if not options.create:
        raise StoreUnavailable(store=options.path, why="there is no such database")
    if not may_migrate:
        raise SchemaTooOld(store=options.path, found=0, known=SCHEMA_VERSION)
    try:
        file = os.open(options.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, OWNER_ONLY)
    except FileExistsError:  # Another process made it just now.
        return
    except OSError as error:
        raise StoreUnavailable(store=options.path, why=f"it cannot be made: {error}") from error
    try:
        os.fchmod(file, OWNER_ONLY)  # Whatever the umask says.
    finally:
        os.close(file)


def open_reader(options: Options) -> sqlite3.Connection:
    """A connection that only looks; it never holds up the writer."""
    connection = _connect(options)
    _set(connection, options, "query_only = 1")
    return connection


def patiently(busy_s: float, act: Callable[[], T]) -> T:
    """What `act` gives, tried again while other processes hold the lock, at most `busy_s` long."""
    nap_s = NAP_S_MIN
    deadline = time.monotonic() + busy_s
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        # Chance keeps waiting processes from knocking in step.
        time.sleep(nap_s * (0.5 + random.random()))
        nap_s = min(nap_s * 1.5, NAP_S_MAX)


def _check_version(path: str) -> None:
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        raise StoreUnsupported(
            store=path, feature=f"SQLite {sqlite3.sqlite_version}; {needed} or newer is needed"
        )


def _connect(options: Options) -> sqlite3.Connection:
    # No timeout: `patiently` waits, in shorter naps than SQLite would.
    connection = sqlite3.connect(
        options.path,
        timeout=0,
        isolation_level=None,
        cached_statements=STATEMENTS_MAX,
    )
    _set(connection, options, f"synchronous = {options.synchronous}")
    # What savepoints keep for undoing goes to memory: in a file, updates took a third longer.
    _set(connection, options, "temp_store = MEMORY")
    # Debian's SQLite writes each freed page once more, as zeros: 150 of the 350 bytes that a job
    # of a drain wrote to the log. FAST still clears what was deleted on pages that are in use.
    _set(connection, options, "secure_delete = FAST")
    return connection


def _set(connection: sqlite3.Connection, options: Options, pragma: str) -> str | None:
    """Sets a pragma, and returns what it says it is now."""
    # Even reading meets a lock, while the last process before us closes the file.
    answer = patiently(options.busy_s, lambda: connection.execute(f"PRAGMA {pragma}").fetchone())
    return None if answer is None else str(answer[0])


def _journal(connection: sqlite3.Connection, options: Options) -> None:
    if _set(connection, options, "journal_mode = WAL") != "wal":
        why = "its file system cannot share memory, which SQLite's WAL needs; use a local disk"
        raise StoreUnavailable(store=options.path, why=why)
    _set(connection, options, f"wal_autocheckpoint = {LOG_PAGES[options.synchronous]}")
    _set(connection, options, f"journal_size_limit = {WAL_BYTES_MAX}")


def _migrate(connection: sqlite3.Connection, options: Options, may: bool) -> None:
    """Brings the schema up to date, in one transaction; of many processes one does it."""
    found = patiently(options.busy_s, lambda: migrate.version(connection, options.path))
    if found == SCHEMA_VERSION:
        return
    if not may:
        raise SchemaTooOld(store=options.path, found=found, known=SCHEMA_VERSION)
    patiently(options.busy_s, lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        migrate.run(connection, options.path)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
