"""The keys of tenants, as the mapper asks for them."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from holdfast.core.edge_bounds import KEYS_CACHED_MAX
from holdfast.core.errors import HoldfastError
from holdfast.encryption.sealed import Cipher

Found = Cipher | HoldfastError
Named = tuple[str, str]
"""A tenant and the id of one of its keys."""


K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """The newest KEYS_CACHED_MAX values. Threads may share it."""

    def __init__(self, most: int = KEYS_CACHED_MAX) -> None:
        self._most = most
        self._values: dict[K, V] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        with self._lock:
            self._values.pop(key, None)
            while len(self._values) >= self._most:
                del self._values[next(iter(self._values))]
            self._values[key] = value

    def clear(self) -> None:
        with self._lock:
            self._values.clear()


class Ring(Protocol):
    """Finds keys. What cannot be had is answered by an error for that key alone: KeyErased,
    DecodeError, or KeyUnavailable where it may be had later. It does not wait for what it knows.
    """

    async def newest(self, tenants: Collection[str]) -> dict[str, Found]:
        """The key that new values of each tenant are encrypted with."""

    async def named(self, wanted: Collection[Named]) -> dict[Named, Found]:
        """The keys with these ids."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...
