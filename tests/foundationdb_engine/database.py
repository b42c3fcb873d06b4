"""A connection to the engine: it opens transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from tests.foundationdb_engine.engine import Engine
from tests.foundationdb_engine.errors import FDBError
from tests.foundationdb_engine.keys import KeyValue
from tests.foundationdb_engine.options import DatabaseOptions, Lasting
from tests.foundationdb_engine.transaction import Transaction
from tests.foundationdb_engine.watches import Watching

T = TypeVar("T")


class Database:
    """What `fdb.open` gives: it has options, a number of watches, and transactions."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.watching = Watching()
        self._lasting = Lasting()
        self.options = DatabaseOptions(self._lasting, self.watching)

    def create_transaction(self) -> Transaction:
        return Transaction(self)

    def defaults(self) -> Lasting:
        """The options that each of its transactions begins with."""
        return replace(self._lasting)

    # -- shortcuts, each a transaction of its own ------------------------------------------------

    def _run(self, work: Callable[[Transaction], T]) -> T:
        tr = self.create_transaction()
        while True:
            try:
                result = work(tr)
                tr.commit().wait()
            except FDBError as error:
                tr.on_error(error).wait()
            else:
                return result

    def get(self, key: Any) -> bytes | None:
        """The value itself, None where none is; a transaction gives a future."""
        found: bytes | None = self._run(lambda tr: tr.get(key).value)
        return found

    def get_range(
        self, begin: Any, end: Any, limit: int = 0, reverse: bool = False
    ) -> list[KeyValue]:
        return self._run(lambda tr: tr.get_range(begin, end, limit, reverse).to_list())

    def set(self, key: Any, value: Any) -> None:
        self._run(lambda tr: tr.set(key, value))

    def clear(self, key: Any) -> None:
        self._run(lambda tr: tr.clear(key))

    def clear_range(self, begin: Any, end: Any) -> None:
        self._run(lambda tr: tr.clear_range(begin, end))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.get_range(key.start, key.stop, reverse=key.step == -1)
        return self.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: Any) -> None:
        if isinstance(key, slice):
            self.clear_range(key.start, key.stop)
        else:
            self.clear(key)
