"""What goes wrong, by the codes of FoundationDB: the error a transaction raises, and what to do."""

from __future__ import annotations

TOO_OLD = 1007
FUTURE_VERSION = 1009
CONFLICT = 1020
COMMIT_UNKNOWN = 1021
TRANSACTION_CANCELLED = 1025
TIMED_OUT = 1031
TOO_MANY_WATCHES = 1032
WATCHES_DISABLED = 1034
UNREADABLE = 1036
OPERATION_CANCELLED = 1101
INVALID_OPERATION = 2000
KEY_OUTSIDE = 2004
INVERTED_RANGE = 2005
OPTION_INVALID = 2006
VERSION_SET = 2010
VERSION_INVALID = 2011
LIMITS_INVALID = 2012
USED_DURING_COMMIT = 2017
INVALID_VERSION = 2020
NO_COMMIT_VERSION = 2021
TRANSACTION_TOO_LARGE = 2101
KEY_TOO_LARGE = 2102
VALUE_TOO_LARGE = 2103
EXACT_WITHOUT_LIMITS = 2210

MEANINGS = {
    TOO_OLD: "transaction is too old to read or commit",
    FUTURE_VERSION: "read at a version that was not given out yet",
    CONFLICT: "not committed: another transaction wrote what this one read",
    COMMIT_UNKNOWN: "committed or not, nobody knows",
    TRANSACTION_CANCELLED: "transaction was cancelled",
    TIMED_OUT: "transaction timed out",
    TOO_MANY_WATCHES: "too many watches on this connection",
    WATCHES_DISABLED: "no watches without read-your-writes",
    UNREADABLE: "read of a key that waits for its versionstamp",
    OPERATION_CANCELLED: "operation was cancelled",
    INVALID_OPERATION: "invalid operation",
    KEY_OUTSIDE: "key outside the legal range",
    INVERTED_RANGE: "range ends before it begins",
    OPTION_INVALID: "invalid value of an option",
    VERSION_SET: "read version was set already",
    VERSION_INVALID: "invalid version",
    LIMITS_INVALID: "invalid limit of a range read",
    USED_DURING_COMMIT: "transaction used while it commits, or after",
    INVALID_VERSION: "transaction has no valid commit version",
    NO_COMMIT_VERSION: "transaction wrote nothing and has no commit version",
    TRANSACTION_TOO_LARGE: "transaction exceeds its size limit",
    KEY_TOO_LARGE: "key exceeds 10,000 bytes",
    VALUE_TOO_LARGE: "value exceeds 100,000 bytes",
    EXACT_WITHOUT_LIMITS: "streaming mode exact needs a limit",
}

MAYBE_COMMITTED = frozenset({COMMIT_UNKNOWN, 1039})
"""1039: the cluster changed its protocol version."""

RETRYABLE = MAYBE_COMMITTED | {
    TOO_OLD,
    FUTURE_VERSION,
    CONFLICT,
    1037,
    1038,
    1042,
    1051,
    1078,
    1213,
}
"""Also: a process is behind, the database is locked, a proxy is full, a tag is throttled."""


class FDBError(Exception):
    """An error as the binding raises it: its code says all."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)

    @property
    def description(self) -> str:
        return MEANINGS.get(self.code, "error of the database")

    def __str__(self) -> str:
        return f"{self.description} ({self.code})"

    def __repr__(self) -> str:
        return f"FDBError({self.code})"


class Predicates:
    """What may be done about an error; the binding calls it `predicates` too."""

    def is_retryable(self, error: FDBError) -> bool:
        return error.code in RETRYABLE

    def is_maybe_committed(self, error: FDBError) -> bool:
        return error.code in MAYBE_COMMITTED

    def is_retryable_not_committed(self, error: FDBError) -> bool:
        return error.code in RETRYABLE and error.code not in MAYBE_COMMITTED


predicates = Predicates()
