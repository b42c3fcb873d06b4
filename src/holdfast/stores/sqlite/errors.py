"""Errors: translates those of sqlite3 into ours; no other module of the project handles them."""

from __future__ import annotations

import os
import sqlite3

from holdfast.core.errors import (
    HoldfastError,
    InvalidInput,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

_KINDS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "other processes kept it locked"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "it is locked"),
    sqlite3.SQLITE_FULL: (StoreFull, "the disk, or its quota, is full"),
    sqlite3.SQLITE_READONLY: (StoreReadOnly, "the file or its directory is read-only"),
    sqlite3.SQLITE_PERM: (StoreReadOnly, "the file may not be opened for writing"),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailable, "the file cannot be opened"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "reading or writing the disk failed"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "the file is damaged; restore it from a backup"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "the file is not an SQLite database"),
}

# What sqlite3 raises for a value that it cannot store: an error of the caller.
_BAD_VALUES = (
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    OverflowError,
    UnicodeEncodeError,
)


def translated(error: BaseException, path: str) -> BaseException:
    """The error as one of ours; errors that are ours already, and bugs, are returned unchanged."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, _BAD_VALUES):
        return _caused(InvalidInput(field="value", why=f"cannot be stored: {error}"), error)
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    kind, why = _KINDS.get(code, (StoreError, "sqlite"))
    return _caused(kind(store=path, why=f"{why} ({error})"), error)


def is_busy(error: sqlite3.Error) -> bool:
    """Another connection holds the lock: a later try may succeed."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_interrupted(error: sqlite3.Error) -> bool:
    """The progress handler ended the statement."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT


def check_place(path: str) -> None:
    """Refuses a path that cannot work, in plainer words than sqlite3 does."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreUnavailable(store=path, why=f"the directory {folder!r} does not exist")
    if os.path.isdir(path):
        raise StoreUnavailable(store=path, why="it is a directory, not a file")
    if os.path.exists(path):
        if not os.access(path, os.R_OK):
            raise StoreUnavailable(store=path, why="this user may not read the file")
        if not os.access(path, os.W_OK):
            raise StoreReadOnly(store=path, why="this user may not write the file")
    if not os.access(folder, os.W_OK | os.X_OK):
        # SQLite keeps its journal in files beside the database.
        raise StoreReadOnly(store=path, why=f"this user may not write the directory {folder!r}")


def _caused(error: HoldfastError, cause: BaseException) -> HoldfastError:
    error.__cause__ = cause
    return error
