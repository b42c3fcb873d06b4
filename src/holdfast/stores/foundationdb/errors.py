"""Turns errors of the client library into ours. No other file knows its codes."""

from __future__ import annotations

from holdfast.core.errors import (
    HoldfastError,
    InvalidInput,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

NOT_COMMITTED = 1020
UNKNOWN_RESULT = 1021
CANCELLED = 1025
TIMED_OUT = 1031

# Nothing was done, and another try may succeed. 1004 to 1009: the version is too old or too new, or
# storage is behind; 1037 to 1042: processes are behind, or the cluster has moved; 1051, 1078, 1213:
# the cluster throttles.
_AGAIN = frozenset({1004, 1007, 1009, NOT_COMMITTED, 1037, 1038, 1042, 1051, 1078, 1213, 1235})

# The commit may have been done, or may be done later. That holds also for a transaction that was
# cancelled or ran out of time while it committed.
_UNKNOWN = frozenset({UNKNOWN_RESULT, 1039, TIMED_OUT, CANCELLED})

_KINDS: dict[int, tuple[type[StoreError], str]] = {
    1020: (StoreUnavailable, "other transactions kept it from going on"),
    1021: (StoreUnavailable, "it is not known whether the last commit was done"),
    1025: (StoreUnavailable, "the transaction was cancelled"),
    1031: (StoreUnavailable, "the cluster did not answer in time: is it up, is the file right?"),
    1032: (StoreUnavailable, "too many watches are open"),
    1038: (StoreReadOnly, "the database is locked: by a backup, or for another cluster"),
    1515: (StoreUnavailable, "there is no cluster file"),
    1516: (StoreUnavailable, "the cluster file names no cluster"),
    2104: (StoreUnavailable, "the cluster file cannot be read"),
    1510: (StoreFull, "an error of its disks"),
    2101: (StoreError, "the transaction is too large"),
}

_BAD_VALUES = frozenset({2102, 2103})
"""A key or a value that is too large: the caller's mistake."""


def code_of(error: BaseException) -> int | None:
    """The code of an error of FoundationDB; None for other errors.

    By the name of its class: the binding need not be installed where the tests' engine is used.
    """
    if type(error).__name__ != "FDBError":
        return None
    code = getattr(error, "code", None)
    return code if isinstance(code, int) else None


def is_again(error: BaseException) -> bool:
    """Whether nothing was done and another try may succeed."""
    return code_of(error) in _AGAIN


def is_unknown(error: BaseException) -> bool:
    """Whether it may have been done, if it was a commit."""
    return code_of(error) in _UNKNOWN


def ours(error: BaseException, place: str) -> BaseException:
    """The error as one of ours; those that already are, or are bugs, are returned unchanged."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return _caused(InvalidInput(field="value", why=f"cannot be stored: {error}"), error)
    code = code_of(error)
    if code is None:
        return error
    if code in _BAD_VALUES:
        return _caused(InvalidInput(field="value", why=f"cannot be stored: {error}"), error)
    known = StoreUnavailable if code in _AGAIN | _UNKNOWN else StoreError
    kind, why = _KINDS.get(code, (known, "foundationdb"))
    return _caused(kind(store=place, why=f"{why} ({error})"), error)


def _caused(error: HoldfastError, cause: BaseException) -> HoldfastError:
    error.__cause__ = cause
    return error
