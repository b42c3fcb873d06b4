"""FoundationDB clusters in this process, for tests of its store."""

from __future__ import annotations

from holdfast.clock import Clock, SystemClock
from holdfast.store import Store
from holdfast.stores.foundationdb.options import parse
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.foundationdb import Engine


class Engines:
    """A cluster for each place that a test names."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def store(self, name: str, clock: Clock | None) -> Store:
        """A store, not opened yet; those of one name share their cluster."""
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = Engine(clock or SystemClock())
        return FoundationStore(parse("fdb://"), clock, engine.database())

    def clear(self) -> None:
        self._engines.clear()
