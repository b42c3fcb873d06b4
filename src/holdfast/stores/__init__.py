"""Which store speaks this URL? Stores load on demand, so that importing holdfast stays light."""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import urlsplit

from holdfast.core.clock import Clock
from holdfast.core.errors import MissingExtra, UnknownStore, did_you_mean
from holdfast.dispatch import Dispatcher
from holdfast.store import Store

# scheme -> (module, class, extra that brings its driver)
STORES: dict[str, tuple[str, str, str | None]] = {
    "memory": ("holdfast.stores.memory.store", "MemoryStore", None),
    "sqlite": ("holdfast.stores.sqlite.store", "SqliteStore", None),
    "postgresql": ("holdfast.stores.postgres.store", "PostgresStore", "postgres"),
    "postgres": ("holdfast.stores.postgres.store", "PostgresStore", "postgres"),
    "redis": ("holdfast.stores.redis.store", "RedisStore", "redis"),
    "rediss": ("holdfast.stores.redis.store", "RedisStore", "redis"),
    "redis+cluster": ("holdfast.stores.redis.store", "RedisStore", "redis"),
    "rediss+cluster": ("holdfast.stores.redis.store", "RedisStore", "redis"),
    "fdb": ("holdfast.stores.foundationdb.store", "FoundationStore", "foundationdb"),
    "http": ("holdfast.stores.remote.store", "RemoteStore", "remote"),
    "https": ("holdfast.stores.remote.store", "RemoteStore", "remote"),
}


def open_store(url: str, clock: Clock | None = None) -> Dispatcher:
    """The store of a URL, behind its dispatcher, not opened yet.

    Errors name the scheme, the setting or the missing extra.
    """
    scheme = urlsplit(url).scheme
    if scheme not in STORES:
        known = ", ".join(f"{name}://" for name in sorted(STORES))
        raise UnknownStore(
            field="store", scheme=scheme or url, known=known, hint=did_you_mean(scheme, STORES)
        )
    module, name, extra = STORES[scheme]
    try:
        kind: Any = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if extra is None:
            raise
        raise MissingExtra(
            field="store", what=f"{scheme}://", package=error.name, extra=extra
        ) from None
    store: Store = kind.from_url(url, clock)
    return Dispatcher(store)
