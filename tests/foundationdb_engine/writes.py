"""The writing half of a transaction.

Writes have no answer, so what is wrong with one shows in the next call that has: as in the binding,
where a key that is too large fails the commit and not the `set`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.foundationdb_engine.errors import (
    INVERTED_RANGE,
    KEY_TOO_LARGE,
    USED_DURING_COMMIT,
    VALUE_TOO_LARGE,
    FDBError,
)
from tests.foundationdb_engine.keys import (
    END,
    KEY_MAX,
    VALUE_MAX,
    check_legal,
    key_of,
    strinc,
    value_of,
)
from tests.foundationdb_engine.life import Life
from tests.foundationdb_engine.reads import TransactionRead


class TransactionWrite(TransactionRead):
    """Writes of a transaction, kept in its life until the commit."""

    _life: Life

    def _write(self, work: Callable[[], None]) -> None:
        """A call without an answer: what is wrong with it shows in the next one that has."""
        try:
            if self._life.committing:
                raise FDBError(USED_DURING_COMMIT)
            if self._life.failure is None:
                work()
        except FDBError as error:
            self._life.failure = self._life.failure or error

    def set(self, key: Any, value: Any) -> None:
        key, value = key_of(key), value_of(value)

        def work() -> None:
            _check_sizes(key, value)
            self._life.own.set(key, value)
            self._life.note_write_key(key, len(value))

        self._write(work)

    def clear(self, key: Any) -> None:
        key = key_of(self._found(key))

        def work() -> None:
            check_legal(key)
            if len(key) <= KEY_MAX:
                self._life.own.clear(key)
                self._life.note_write_key(key, 0)

        self._write(work)

    def clear_range(self, begin: Any, end: Any) -> None:
        begin = key_of(self._found(b"" if begin is None else begin))
        end = key_of(self._found(END if end is None else end))

        def work() -> None:
            _check_range(begin, end)
            if begin < end:
                self._life.own.clear_range(begin, end)
                self._life.note_write_range(begin, end)

        self._write(work)

    def clear_range_startswith(self, prefix: Any) -> None:
        prefix = key_of(prefix)
        self.clear_range(prefix, strinc(prefix))

    def _found(self, key: Any) -> Any:
        return self.get_key(key) if hasattr(key, "or_equal") else key

    def _operate(self, name: str, key: Any, param: Any) -> None:
        key, param = key_of(key), value_of(param)

        def work() -> None:
            _check_sizes(key, param)
            self._life.own.operate(name, key, param)
            self._life.note_write_key(key, len(param))

        self._write(work)

    def add(self, key: Any, param: Any) -> None:
        self._operate("add", key, param)

    def max(self, key: Any, param: Any) -> None:
        self._operate("max", key, param)

    def min(self, key: Any, param: Any) -> None:
        self._operate("min", key, param)

    def byte_max(self, key: Any, param: Any) -> None:
        self._operate("byte_max", key, param)

    def byte_min(self, key: Any, param: Any) -> None:
        self._operate("byte_min", key, param)

    def bit_and(self, key: Any, param: Any) -> None:
        self._operate("bit_and", key, param)

    def bit_or(self, key: Any, param: Any) -> None:
        self._operate("bit_or", key, param)

    def bit_xor(self, key: Any, param: Any) -> None:
        self._operate("bit_xor", key, param)

    def append_if_fits(self, key: Any, param: Any) -> None:
        self._operate("append_if_fits", key, param)

    def compare_and_clear(self, key: Any, param: Any) -> None:
        self._operate("compare_and_clear", key, param)

    def set_versionstamped_key(self, key: Any, param: Any) -> None:
        key, param = key_of(key), value_of(param)

        def work() -> None:
            _check_sizes(key[:-4], param)
            self._life.own.stamp_key(key, param, self._life.version or 0)
            # Its conflicts are with whoever reads the key that the stamp makes.
            self._life.size += 3 * len(key) + len(param)

        self._write(work)

    def set_versionstamped_value(self, key: Any, param: Any) -> None:
        key, param = key_of(key), value_of(param)

        def work() -> None:
            _check_sizes(key, param[:-4])
            self._life.own.stamp_value(key, param)
            self._life.note_write_key(key, len(param))

        self._write(work)

    def add_read_conflict_range(self, begin: Any, end: Any) -> None:
        begin, end = key_of(begin), key_of(end)

        def work() -> None:
            _check_range(begin, end)
            self._life.note_read_range(begin, end)

        self._write(work)

    def add_read_conflict_key(self, key: Any) -> None:
        key = key_of(key)
        self.add_read_conflict_range(key, key + b"\0")

    def add_write_conflict_range(self, begin: Any, end: Any) -> None:
        begin, end = key_of(begin), key_of(end)

        def work() -> None:
            _check_range(begin, end)
            if begin < end:
                self._life.commit.write_ranges.append((begin, end))
                self._life.size += len(begin) + len(end)

        self._write(work)

    def add_write_conflict_key(self, key: Any) -> None:
        key = key_of(key)
        self.add_write_conflict_range(key, key + b"\0")

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: Any) -> None:
        if isinstance(key, slice):
            self.clear_range(key.start, key.stop)
        else:
            self.clear(key)


def _check_sizes(key: bytes, value: bytes) -> None:
    check_legal(key)
    if len(key) > KEY_MAX:
        raise FDBError(KEY_TOO_LARGE)
    if len(value) > VALUE_MAX:
        raise FDBError(VALUE_TOO_LARGE)


def _check_range(begin: bytes, end: bytes) -> None:
    check_legal(begin, end=True)
    check_legal(end, end=True)
    if begin > end:
        raise FDBError(INVERTED_RANGE)
