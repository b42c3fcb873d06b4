"""Opens the database file: pragmas, schema, and waiting for the locks of other processes."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.core.backoff import Delays
from holdfast.core.errors import SchemaTooOld, StoreUnavailable, StoreUnsupported
from holdfast.stores.sqlite import migrate
from holdfast.stores.sqlite.errors import check_place, is_busy, translated
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
"""The wait between two tries for the lock. SQLite's own busy handler waits up to 100 ms, far longer
than our transactions take.
"""

CHECKPOINT_PAGES = {"full": 1000, "normal": 4000}
"""Pages of the write-ahead log after which a commit copies it into the database file. A page that
many commits changed is copied once: with logs of a quarter of this a busy store took 10 % more CPU
time. With `full` a longer log would not pay, since an fsync takes longer while the file grows. With
`normal` a checkpoint is the only time when SQLite waits for the disk.
"""
WAL_BYTES_MAX = 64 * 1024 * 1024
"""To this the log file is cut back after a long reader made it grow."""


def open_writer(options: Options, may_migrate: bool | None = None) -> sqlite3.Connection:
    """A connection that may write, to a file with the schema of this version.

    `may_migrate` says whether the schema may be created or upgraded; None leaves that to the
    options.
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


def migrate_file(options: Options) -> None:
    """Creates or upgrades the file and its schema, whatever the options say."""
    try:
        open_writer(options, may_migrate=True).close()
    except sqlite3.Error as error:
        raise translated(error, options.path) from error


def _make(options: Options, may_migrate: bool) -> None:
    """Creates an empty file that only its owner can read. SQLite gives the files beside it the
    same mode.
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
    """A connection that only reads; it never blocks the writer."""
    connection = _connect(options)
    _set(connection, options, "query_only = 1")
    return connection


def checkpoint_pages(options: Options) -> int:
    """The value of PRAGMA wal_autocheckpoint."""
    return CHECKPOINT_PAGES[options.synchronous]


def patiently(busy_s: float, act: Callable[[], T]) -> T:
    """What `act` gives, tried again while other processes hold the lock, at most `busy_s` long."""
    deadline = time.monotonic() + busy_s
    naps: Delays | None = None
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        naps = naps or Delays(NAP_S_MIN, NAP_S_MAX, factor=1.5, chance=random.random)
        time.sleep(naps.next_s())


def _check_version(path: str) -> None:
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        raise StoreUnsupported(
            store=path, feature=f"SQLite {sqlite3.sqlite_version}; {needed} or newer is needed"
        )


def _connect(options: Options) -> sqlite3.Connection:
    # No timeout: `patiently` waits, in shorter steps than SQLite would.
    connection = sqlite3.connect(
        options.path,
        timeout=0,
        isolation_level=None,
        cached_statements=STATEMENTS_MAX,
        check_same_thread=False,  # One thread at a time uses it: see `connection_thread.py`.
    )
    _set(connection, options, f"synchronous = {options.synchronous}")
    # Savepoints keep their undo records in memory: in a file, updates took a third longer.
    _set(connection, options, "temp_store = MEMORY")
    # Debian's SQLite writes each freed page once more, as zeros: 150 of the 350 bytes that a job
    # of a drain wrote to the log. FAST still clears what was deleted on pages that are in use.
    _set(connection, options, "secure_delete = FAST")
    return connection


def _set(connection: sqlite3.Connection, options: Options, pragma: str) -> str | None:
    """Sets a pragma, and returns what it says it is now."""
    # Even a read meets a lock while another process is closing the file.
    answer = patiently(options.busy_s, lambda: connection.execute(f"PRAGMA {pragma}").fetchone())
    return None if answer is None else str(answer[0])


def _journal(connection: sqlite3.Connection, options: Options) -> None:
    if _set(connection, options, "journal_mode = WAL") != "wal":
        why = "its file system cannot share memory, which SQLite's WAL needs; use a local disk"
        raise StoreUnavailable(store=options.path, why=why)
    _set(connection, options, f"wal_autocheckpoint = {checkpoint_pages(options)}")
    _set(connection, options, f"journal_size_limit = {WAL_BYTES_MAX}")


def _migrate(connection: sqlite3.Connection, options: Options, may: bool) -> None:
    """Creates or upgrades the schema in one transaction; of many processes one does it."""
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
