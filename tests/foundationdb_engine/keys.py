"""Keys, rows, selectors and the sizes that FoundationDB allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.foundationdb_engine.errors import (
    EXACT_WITHOUT_LIMITS,
    KEY_OUTSIDE,
    LIMITS_INVALID,
    FDBError,
)

KEY_MAX = 10_000
VALUE_MAX = 100_000
TRANSACTION_MAX = 10_000_000

END = b"\xff"
"""Where the keys of users end; what follows belongs to the system."""

STAMP_BYTES = 10

Range = tuple[bytes, bytes]
"""From the first key to before the second."""


class StreamingMode:
    """How much of a range one answer brings."""

    want_all = -2
    iterator = -1
    exact = 0
    small = 1
    medium = 2
    large = 3
    serial = 4


_BYTES = {
    StreamingMode.exact: 0,
    StreamingMode.small: 256,
    StreamingMode.medium: 1_000,
    StreamingMode.large: 4_096,
    StreamingMode.serial: 80_000,
    StreamingMode.want_all: 80_000,
}
_ITERATIONS = (4_096, 80_000, 6_144, 9_216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000)
"""How many bytes the first, second and further answers of the mode `iterator` bring."""


def answer_bytes(mode: int, iteration: int, limit: int) -> int:
    """How many bytes one answer of a range read brings at most; 0 for no limit."""
    if limit < 0:
        raise FDBError(LIMITS_INVALID)
    if mode == StreamingMode.exact and limit == 0:
        raise FDBError(EXACT_WITHOUT_LIMITS)
    if mode == StreamingMode.iterator:
        return _ITERATIONS[min(max(iteration, 1), len(_ITERATIONS)) - 1]
    return _BYTES.get(mode, 80_000)


@dataclass(slots=True)
class KeyValue:
    """A row of a range read; `key, value = row` works too."""

    key: bytes
    value: bytes

    def __iter__(self) -> Iterator[bytes]:
        yield self.key
        yield self.value


@dataclass(frozen=True, slots=True)
class KeySelector:
    """A key by its place among the keys that are there."""

    key: bytes
    or_equal: bool
    offset: int

    def __add__(self, offset: int) -> KeySelector:
        return KeySelector(self.key, self.or_equal, self.offset + offset)

    def __sub__(self, offset: int) -> KeySelector:
        return KeySelector(self.key, self.or_equal, self.offset - offset)

    @classmethod
    def last_less_than(cls, key: bytes) -> KeySelector:
        return cls(key, False, 0)

    @classmethod
    def last_less_or_equal(cls, key: bytes) -> KeySelector:
        return cls(key, True, 0)

    @classmethod
    def first_greater_than(cls, key: bytes) -> KeySelector:
        return cls(key, True, 1)

    @classmethod
    def first_greater_or_equal(cls, key: bytes) -> KeySelector:
        return cls(key, False, 1)


def key_of(key: Any) -> bytes:
    """The bytes of a key, also of what knows its own."""
    if type(key) is bytes:
        return key
    if hasattr(key, "as_foundationdb_key"):
        key = key.as_foundationdb_key()
    if not isinstance(key, bytes):
        raise TypeError("Key must be of type bytes")
    return key


def value_of(value: Any) -> bytes:
    """The bytes of a value, also of what knows its own."""
    if type(value) is bytes:
        return value
    if hasattr(value, "as_foundationdb_value"):
        value = value.as_foundationdb_value()
    if not isinstance(value, bytes):
        raise TypeError("Value must be of type bytes")
    return value


def selector_of(key: Any) -> KeySelector:
    """What a range read begins or ends with; a plain key means the first from it on.

    Whatever looks like a selector is one: the binding's own too.
    """
    if hasattr(key, "or_equal"):
        return KeySelector(key_of(key.key), bool(key.or_equal), key.offset)
    return KeySelector(key_of(key), False, 1)


def check_legal(key: bytes, *, end: bool = False) -> None:
    """Users' keys lie before 0xff; a range may end there."""
    if key >= END and not (end and key == END):
        raise FDBError(KEY_OUTSIDE)


def strinc(prefix: bytes) -> bytes:
    """The first key that does not begin with the prefix and follows all that do."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        raise ValueError("Key must contain at least one byte not equal to 0xFF.")
    return stripped[:-1] + bytes([stripped[-1] + 1])
