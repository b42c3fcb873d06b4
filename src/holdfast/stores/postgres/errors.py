"""Errors of asyncpg as errors of the library; nothing else in the store knows asyncpg's."""

from __future__ import annotations

import asyncpg

from holdfast.core.errors import (
    HoldfastError,
    InvalidInput,
    SchemaTooNew,
    SchemaTooOld,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.stores.postgres.layout import SCHEMA_VERSION
from holdfast.stores.postgres.schema import FORMAT

OTHER_FORMAT = "HFVER"
"""SQLSTATE of a call that was written for another schema; the message is `schema.FORMAT` of it."""

# By SQLSTATE, or its class where all codes of a class mean the same to us.
_KINDS: dict[str, tuple[type[StoreError], str]] = {
    "28": (StoreUnavailable, "the server refuses this user: check user, password and pg_hba.conf"),
    "3D": (StoreUnavailable, "there is no such database: create it, or correct the URL"),
    "42501": (StoreReadOnly, "this user lacks rights: grant them on the schema and its tables"),
    "25006": (StoreReadOnly, "the server takes no writes: is it a standby?"),
    "53100": (StoreFull, "the server's disk is full"),
    "53200": (StoreUnavailable, "the server is out of memory"),
    "53300": (StoreUnavailable, "the server has no connection left: raise max_connections"),
    "57014": (StoreUnavailable, "the statement took too long and was stopped"),
    "57": (StoreUnavailable, "the server is shutting down or starting up"),
    "08": (StoreUnavailable, "the connection was lost"),
    "40": (StoreUnavailable, "other transactions kept it from going on"),
    "55": (StoreUnavailable, "other transactions kept it locked"),
    "XX001": (StoreCorrupt, "the server found damaged data; restore it from a backup"),
    "XX002": (StoreCorrupt, "the server found a damaged index; rebuild it with REINDEX"),
    "42P01": (StoreError, "a table is missing: was the schema dropped? open the store again"),
    "42883": (StoreError, "a function is missing: was the schema dropped? open the store again"),
    "3F": (StoreError, "the schema is missing: was it dropped? open the store again"),
}

# A value that PostgreSQL cannot hold: the caller's mistake, not the store's.
_BAD_VALUES = (OverflowError, UnicodeEncodeError)
_BAD_CODES = frozenset({"22000", "22003", "22021", "22P05", "54000"})

# What the driver raises for a connection that is lost, before or during a call.
_UNREACHABLE = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError)

# Nothing was done, and another try may succeed.
_AGAIN = frozenset({"40001", "40P01", "55P03"})


def is_bad_value(error: BaseException) -> bool:
    """PostgreSQL cannot hold what it was given: too long for an index, too large, no text."""
    code = getattr(error, "sqlstate", None) or ""
    return isinstance(error, _BAD_VALUES) or code in _BAD_CODES


def cannot_be_stored(error: BaseException) -> HoldfastError:
    """The error of a job with such a value."""
    return _caused(InvalidInput(field="value", why=f"cannot be stored: {_line(error)}"), error)


def ours(error: BaseException, place: str) -> BaseException:
    """The error as one of core/errors.py; those, and bugs, are returned as they are."""
    if isinstance(error, HoldfastError):
        return error
    code = getattr(error, "sqlstate", None) or ""
    if is_bad_value(error):
        return cannot_be_stored(error)
    if code == OTHER_FORMAT:
        return _caused(_other_schema(place, str(error)), error)
    if isinstance(error, asyncpg.PostgresError):
        kind, why = _KINDS.get(code) or _KINDS.get(code[:2]) or (StoreError, "postgresql")
        return _caused(kind(store=place, why=f"{why} ({_line(error)})"), error)
    if isinstance(error, TimeoutError):
        why = "the server did not answer in time"
        return _caused(StoreUnavailable(store=place, why=why), error)
    if isinstance(error, _UNREACHABLE):
        why = f"the server cannot be reached ({_line(error)})"
        return _caused(StoreUnavailable(store=place, why=why), error)
    return error


def _line(error: BaseException) -> str:
    """The error in one line: its first one, or its type where it has no text."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _other_schema(place: str, format: str) -> SchemaTooNew | SchemaTooOld:
    """Of a call that was written for another schema, or for other functions of the same one."""
    version, _, functions = format.partition(".")
    found = int(version)
    if found == SCHEMA_VERSION:
        words = f"{found} with functions {functions}"
        return SchemaTooNew(store=place, found=words, known=FORMAT.replace(".", " with functions "))
    kind = SchemaTooNew if found > SCHEMA_VERSION else SchemaTooOld
    return kind(store=place, found=found, known=SCHEMA_VERSION)


def is_lost(error: BaseException) -> bool:
    """The connection is lost; another one may work."""
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        return code[:2] == "08" or code in ("57P01", "57P02", "57P03", "53300")
    if isinstance(error, TimeoutError):
        return False
    return isinstance(error, _UNREACHABLE)


def is_beaten(error: BaseException) -> bool:
    """Another transaction was in the way: nothing was done, and another try may succeed."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _AGAIN


def _caused(error: HoldfastError, cause: BaseException) -> HoldfastError:
    error.__cause__ = cause
    return error
