"""How a database file is opened: its pragmas, its schema, and patience with other processes."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from typing import TypeVar

from holdfast.errors import SchemaTooNew, StoreCorrupt, StoreUnavailable, StoreUnsupported
from holdfast.stores.sqlite.faults import check_place, is_busy
from holdfast.stores.sqlite.layout import APPLICATION_ID, SCHEMA_VERSION
from holdfast.stores.sqlite.options import Options

T = TypeVar("T")

SQLITE_MIN = (3, 35, 0)
"""RETURNING came with it."""

STATEMENTS_MAX = 256
"""Prepared statements that one connection keeps."""

NAP_S_MIN = 0.0002
NAP_S_MAX = 0.001
"""SQLite's own busy handler naps up to 100 ms, far longer than our transactions last."""

LOG_PAGES = {"full": 250, "normal": 1000}
"""Pages of the log after which it is written over from its start. Where each commit is flushed, the
log is made that long at once (`lengthen_log`); where none is, a checkpoint is the only flush.
"""
LOG_BYTES = 1536 * 1024
"""How long that is: 250 pages of jobs that were posted one by one, and those they are filed into.
"""
WAL_BYTES_MAX = 64 * 1024 * 1024
"""To this the log file is cut back after a long reader made it grow."""


def open_writer(options: Options) -> sqlite3.Connection:
    """A connection that may write, with the schema at its newest version."""
    _check_version(options.path)
    if not options.create and not os.path.exists(options.path):
        raise StoreUnavailable(store=options.path, why="there is no such database")
    check_place(options.path)
    connection = _connect(options)
    try:
        _journal(connection, options)
        _migrate(connection, options)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(options: Options) -> sqlite3.Connection:
    """A connection that only looks; it never holds up the writer."""
    connection = _connect(options)
    _set(connection, options, "query_only = 1")
    return connection


def open_poster(options: Options) -> sqlite3.Connection:
    """A connection that writes, of any thread that asks. It never checkpoints, which takes long:
    those that file what it wrote do.
    """
    connection = _connect(options, check_same_thread=False)
    _set(connection, options, "wal_autocheckpoint = 0")
    return connection


def lengthen_log(connection: sqlite3.Connection, options: Options) -> None:
    """Makes the log file as long as it will be, for a connection of one who begins to post.

    A flush after the file grew takes 250 us, one that finds it as long as it was takes 150. The log
    begins with nothing at each start, for the last who closes deletes it. Zeros at its end are no
    frames to SQLite, and under the lock of writers nobody else makes it longer.
    """
    # It may well not work: others write, or the disk is full. Then the file grows as it is used.
    with suppress(sqlite3.Error, OSError):
        connection.execute("BEGIN IMMEDIATE")
        with open(f"{options.path}-wal", "r+b") as log:  # Never one that SQLite did not make.
            log.write(bytes(max(0, LOG_BYTES - log.seek(0, os.SEEK_END))))
    if connection.in_transaction:
        connection.execute("ROLLBACK")


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


def _connect(options: Options, check_same_thread: bool = True) -> sqlite3.Connection:
    # No timeout: `patiently` waits, in shorter naps than SQLite would.
    connection = sqlite3.connect(
        options.path,
        timeout=0,
        isolation_level=None,
        check_same_thread=check_same_thread,
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


def _migrate(connection: sqlite3.Connection, options: Options) -> None:
    """Runs the missing migrations in one transaction; of many processes one does it."""
    if patiently(options.busy_s, lambda: _version(connection, options.path)) == SCHEMA_VERSION:
        return
    patiently(options.busy_s, lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        found = _version(connection, options.path)
        for number, text in _migrations():
            if number > found:
                for statement in _statements(text):
                    connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: str) -> int:
    """The schema's version; 0 for an empty file. Refuses what is not ours, or newer than we are."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise StoreCorrupt(store=path, why="the file is another application's database")
    if found > SCHEMA_VERSION:
        raise SchemaTooNew(store=path, found=found, known=SCHEMA_VERSION)
    return found if tables else 0


def _migrations() -> list[tuple[int, str]]:
    folder = resources.files("holdfast.stores.sqlite").joinpath("migrations")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name
    )
    return [(int(file.name[:4]), file.read_text("utf-8")) for file in files]


def _statements(text: str) -> list[str]:
    # Not executescript: it would commit the transaction that the migration runs in.
    statements, part = [], ""
    for line in text.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements
