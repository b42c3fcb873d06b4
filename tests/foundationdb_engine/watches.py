"""Watches: futures that are ready once the value of a key is another than their transaction saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.foundationdb_engine.errors import TOO_MANY_WATCHES, FDBError
from tests.foundationdb_engine.futures import Future
from tests.foundationdb_engine.mutations import Mutation

if TYPE_CHECKING:
    from tests.foundationdb_engine.engine import Engine

WATCHES_MAX = 10_000
"""How many a connection may have unless it asks for another number."""


class Watching:
    """The watches that one connection has, those of open transactions too."""

    def __init__(self) -> None:
        self.watches_max = WATCHES_MAX
        self.count = 0


class Watch(Future):
    """Asleep until its transaction commits; then it looks, and is told of changes.

    An engine holds it until it fires or is cancelled; the real client gives up one that is garbage.
    """

    def __init__(self, engine: Engine, watching: Watching, key: bytes, value: bytes | None) -> None:
        super().__init__()
        self.key = key
        self.value = value
        self._engine = engine
        self._watching = watching
        with engine.lock:
            if watching.count >= watching.watches_max:
                raise FDBError(TOO_MANY_WATCHES)
            watching.count += 1

    def _settled(self) -> None:
        with self._engine.lock:
            self._watching.count -= 1
            self._engine.watches.remove(self)


class Watches:
    """Who watches which key. Whoever calls holds the engine's lock."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, dict[int, Watch]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def all(self) -> list[Watch]:
        return [watch for mine in self._by_key.values() for watch in mine.values()]

    def add(self, watch: Watch) -> None:
        self._by_key.setdefault(watch.key, {})[id(watch)] = watch

    def remove(self, watch: Watch) -> None:
        mine = self._by_key.get(watch.key)
        if mine is not None and mine.pop(id(watch), None) is not None and not mine:
            del self._by_key[watch.key]

    def touched(self, mutations: list[Mutation]) -> set[bytes]:
        """The watched keys that the mutations change, or write again."""
        found: set[bytes] = set()
        for name, key, param in mutations:
            if name == "clear_range":
                found.update(each for each in self._by_key if key <= each < param)
            elif key in self._by_key:
                found.add(key)
        return found

    def differing(self, key: bytes, value: bytes | None) -> list[Watch]:
        """Those on the key that saw another value."""
        return [watch for watch in self._by_key.get(key, {}).values() if watch.value != value]
