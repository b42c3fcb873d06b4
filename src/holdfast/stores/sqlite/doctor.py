"""Doctor: what `holdfast doctor` reports of a SQLite store: engine, file, disk and wake-ups."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing

from holdfast.core.finding import Finding, Level
from holdfast.store import Store
from holdfast.stores.sqlite.connection import open_reader
from holdfast.stores.sqlite.errors import translated
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.store import SqliteStore

FREE_BYTES_MIN = 100 * 1024 * 1024
ERRORS_SHOWN_MAX = 3


async def examine(store: Store) -> list[Finding]:
    """Examines an open store. It reads the whole file, which takes long on a large one."""
    assert isinstance(store, SqliteStore), "operate.examine picks the doctor by the URL"
    found = await asyncio.to_thread(_of_file, store.options)
    return [*found, _wakeup(store)]


def _of_file(options: Options) -> list[Finding]:
    try:
        with closing(open_reader(options)) as connection:
            found = [_version(), *_pragmas(connection), *_disk(options.path)]
            return [*found, *_access(options.path)]
    except sqlite3.Error as error:
        return [Finding(Level.BAD, "file", str(translated(error, options.path)))]


def _version() -> Finding:
    return Finding(Level.OK, "SQLite", f"version {sqlite3.sqlite_version}")


def _pragmas(connection: sqlite3.Connection) -> Iterator[Finding]:
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    if journal == "wal":
        yield Finding(Level.OK, "journal", "write-ahead log: readers and the writer do not block")
    else:
        yield Finding(
            Level.BAD, "journal", f"mode is {journal!r}, not wal: is the disk a local one?"
        )
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    if synchronous >= 2:
        yield Finding(Level.OK, "durability", "every commit is on disk before it is confirmed")
    else:
        words = "synchronous=normal: a loss of power may take the last confirmed jobs with it"
        yield Finding(Level.WARNING, "durability", words)
    errors = [row[0] for row in connection.execute(f"PRAGMA quick_check({ERRORS_SHOWN_MAX})")]
    if errors == ["ok"]:
        yield Finding(Level.OK, "integrity", "quick_check found no errors")
    else:
        yield Finding(Level.BAD, "integrity", f"the file is damaged: {'; '.join(errors)}")


def _disk(path: str) -> Iterator[Finding]:
    log = f"{path}-wal"
    log_bytes = os.path.getsize(log) if os.path.exists(log) else 0
    words = f"{_mega(os.path.getsize(path))}, log {_mega(log_bytes)}: {path}"
    yield Finding(Level.OK, "file", words)
    free = shutil.disk_usage(os.path.dirname(path)).free
    level = Level.OK if free >= FREE_BYTES_MIN else Level.WARNING
    yield Finding(level, "disk", f"{_mega(free)} free")


def _access(path: str) -> Iterator[Finding]:
    """Who may read the jobs besides the owner. Nothing is changed: that may be intended."""
    found = os.stat(path)
    if found.st_uid != os.geteuid():
        words = f"it belongs to the user with id {found.st_uid}, not to the one who asks"
        yield Finding(Level.WARNING, "access", words)
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        words = f"other users may open it (mode {mode:o}); unless that is meant: chmod 600 {path}"
        yield Finding(Level.WARNING, "access", words)
    else:
        yield Finding(Level.OK, "access", "only its owner can open it")


def _wakeup(store: SqliteStore) -> Finding:
    if store._processes.listen():
        return Finding(Level.OK, "wake-up", "processes wake each other by sockets")
    words = (
        f"no sockets can be made in {store._processes.folder}, or it is not this user's alone: "
        "workers look for new jobs by polling"
    )
    return Finding(Level.WARNING, "wake-up", words)


def _mega(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MB"
