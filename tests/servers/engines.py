"""FoundationDB clusters in this process, for tests of its store."""

from __future__ import annotations

from typing import Any

from tests.foundationdb_engine import Engine

from holdfast.core.clock import Clock, SystemClock
from holdfast.dispatch import Dispatcher
from holdfast.store import Store
from holdfast.stores.foundationdb.options import parse
from holdfast.stores.foundationdb.store import FoundationStore


class Engines:
    """A cluster for each place that a test names."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def store(self, name: str, clock: Clock | None) -> Store:
        """A store, not opened yet; those of one name share their cluster."""
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = Engine(clock or SystemClock())
        return Dispatcher(FoundationStore(parse("fdb://"), clock, engine.database()))

    def transaction(self, name: str) -> Any:
        """A transaction of a caller on the cluster of this place, which has a store."""
        return self._engines[name].database().create_transaction()

    def clear(self) -> None:
        self._engines.clear()
