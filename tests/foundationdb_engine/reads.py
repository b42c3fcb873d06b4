"""The reading half of a transaction, plain or as a snapshot, and the rows of a range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.foundationdb_engine.futures import Future, Key, Value
from tests.foundationdb_engine.keys import (
    END,
    KeySelector,
    KeyValue,
    StreamingMode,
    key_of,
    selector_of,
    strinc,
)

if TYPE_CHECKING:
    from tests.foundationdb_engine.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Span:
    """What one answer of a range read may bring."""

    begin: KeySelector
    end: KeySelector
    limit: int
    """0 for none."""
    mode: tuple[int, int]
    """The streaming mode, and the number of the answer."""
    reverse: bool


class TransactionRead:
    """Reads of a transaction. Those of its `snapshot` cause no conflicts."""

    _is_snapshot = False

    def _whole(self) -> Transaction:
        raise NotImplementedError

    def get_read_version(self) -> Future:
        return self._whole()._ask_version()

    def get(self, key: Any) -> Value:
        """The value of a key: a future with `value` and `present()`."""
        return self._whole()._ask_value(key_of(key), self._is_snapshot)

    def get_key(self, key_selector: Any) -> Key:
        """The key that the selector points at; b"" or 0xff where there is none."""
        return self._whole()._ask_key(selector_of(key_selector), self._is_snapshot)

    def _get_range(
        self,
        begin: Any,
        end: Any,
        limit: int = 0,
        streaming_mode: int = StreamingMode.iterator,
        iteration: int = 1,
        *reversed_: bool,
        reverse: bool = False,
    ) -> Future:
        """One answer of a range read: (rows, their number, whether there may be more)."""
        span = Span(
            selector_of(begin),
            selector_of(end),
            limit,
            (streaming_mode, iteration),
            any(reversed_) or reverse,
        )
        return self._whole()._ask_rows(span, self._is_snapshot)

    def get_range(
        self,
        begin: Any,
        end: Any,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = StreamingMode.iterator,
    ) -> FDBRange:
        """The rows from one key or selector to before another; sent at once, read by iterating."""
        first = selector_of(b"" if begin is None else begin)
        last = selector_of(END if end is None else end)
        return FDBRange(self, (first, last), limit, reverse, streaming_mode)

    def get_range_startswith(self, prefix: Any, *args: Any, **kwargs: Any) -> FDBRange:
        prefix = key_of(prefix)
        return self.get_range(prefix, strinc(prefix), *args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.get_range(key.start, key.stop, reverse=key.step == -1)
        return self.get(key)


class Snapshot(TransactionRead):
    """The same transaction, read without conflicts; the transaction lives as long as this."""

    _is_snapshot = True

    def __init__(self, whole: Transaction) -> None:
        self._transaction = whole

    def _whole(self) -> Transaction:
        return self._transaction


class FDBRange:
    """The rows of a range, asked for in answers of growing size while somebody iterates."""

    def __init__(
        self,
        tr: TransactionRead,
        ends: tuple[KeySelector, KeySelector],
        limit: int,
        reverse: bool,
        mode: int,
    ) -> None:
        self._tr = tr
        self._ends = ends
        self._limit = limit
        self._reverse = reverse
        self._mode = mode
        self._future = self._ask(*ends, limit, mode, 1)

    def _ask(
        self, begin: KeySelector, end: KeySelector, limit: int, mode: int, iteration: int
    ) -> Future:
        return self._tr._get_range(begin, end, limit, mode, iteration, self._reverse)

    def to_list(self) -> list[KeyValue]:
        mode = self._mode
        if mode == StreamingMode.iterator:
            mode = StreamingMode.exact if self._limit > 0 else StreamingMode.want_all
        return list(self._rows(mode))

    def __iter__(self) -> Iterator[KeyValue]:
        return self._rows(self._mode)

    def _rows(self, mode: int) -> Iterator[KeyValue]:
        (begin, end), limit, iteration = self._ends, self._limit, 1
        future = self._future
        while True:
            rows, count, more = future.wait()
            yield from rows
            if count == 0 or not more or limit == count:
                return
            iteration += 1
            limit = max(limit - count, 0)
            if self._reverse:
                end = KeySelector.first_greater_or_equal(rows[-1].key)
            else:
                begin = KeySelector.first_greater_than(rows[-1].key)
            future = self._ask(begin, end, limit, mode, iteration)
