"""`App(url, keys=...)`: where keys come from, and the store that encrypts with them."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import ConfigError, MissingExtra
from holdfast.dispatch import Dispatcher
from holdfast.encryption.given import GivenRing
from holdfast.encryption.mapper import Encrypting
from holdfast.encryption.masters import (
    FileKeys,
    MasterKeys,
    Masters,
    WrapperKeys,
    check_key_id,
    checked,
    parsed,
    secret_of,
)
from holdfast.encryption.ring import Ring
from holdfast.encryption.stored import StoredRing
from holdfast.payload.through import ThroughStore
from holdfast.store import Store

VARIABLE = "HOLDFAST_ENCRYPTION_KEYS"
REQUIRE_VARIABLE = "HOLDFAST_ENCRYPTION_REQUIRE"

logger = logging.getLogger("holdfast.encryption")


class Keys:
    """The keys of an app. `source` is one of these:

    - "env", or "env:NAME": master keys in the variable HOLDFAST_ENCRYPTION_KEYS, or NAME
    - "file:PATH": master keys in a file, which is read again when it changes
    - "call:MODULE:NAME": a callable or a wrapper, as below
    - "ID:BASE64,ID:BASE64", or a mapping of ids to bytes or base64: master keys, the newest first
    - an object with `wrap` and `unwrap`: a key management service with the master key
    - a callable: it gives the keys of each tenant itself; see `holdfast.encryption.given`

    `require` refuses payloads, results and steps that are stored unencrypted. `store` is another
    store for the wrapped keys of tenants, so that a backup of the jobs does not hold them.
    """

    def __init__(self, source: Any, *, require: bool = False, store: Store | None = None) -> None:
        if importlib.util.find_spec("cryptography") is None:
            raise MissingExtra(
                field="keys", what="encryption", package="cryptography", extra="encryption"
            )
        found = _source(source)
        self.require = require
        self.store = store
        self._masters: Masters | None = None
        self._provider: Callable[..., Any] | None = None
        if isinstance(found, MasterKeys | WrapperKeys):
            self._masters = found
        else:
            self._provider = found
        if store is not None and self._masters is None:
            why = "is for the keys that master keys wrap; a callable keeps its own"
            raise ConfigError(field="store", why=why)

    def __repr__(self) -> str:
        return f"Keys(require={self.require})"

    def ring(self, store: Store) -> Ring:
        """The keys of the tenants of a store."""
        if self._provider is not None:
            return GivenRing(self._provider)
        assert self._masters is not None, "keys have a provider or masters"
        own = self.store is not None
        return StoredRing(self.store or store, self._masters, own=own)


class EncryptedStore(ThroughStore):
    """A store whose jobs' bytes are encrypted."""

    def __init__(self, inner: Store, keys: Keys) -> None:
        self.ring = keys.ring(inner)
        super().__init__(inner, Encrypting(self.ring, require=keys.require))

    async def open(self) -> None:
        await super().open()
        await self.ring.open()

    async def close(self) -> None:
        await super().close()
        await self.ring.close()


def encrypted(store: Dispatcher, keys: Any) -> Dispatcher:
    """The store, with what jobs carry encrypted by these keys; None: the store itself."""
    if keys is None:
        return store
    given = keys if isinstance(keys, Keys) else Keys(keys)
    return Dispatcher(EncryptedStore(store.inner, given), store.observe)


def stored_ring(store: Store) -> StoredRing:
    """The keys of tenants that a store with keys keeps. Raises ConfigError if there are none."""
    inner = store.inner if isinstance(store, Dispatcher) else store
    if not isinstance(inner, EncryptedStore):
        why = f"are not given: set {VARIABLE}, or App(..., keys=...)"
        raise ConfigError(field="keys", why=why)
    if not isinstance(inner.ring, StoredRing):
        why = "come from a callable, which also makes, rotates and erases them"
        raise ConfigError(field="keys", why=why)
    return inner.ring


def from_environment() -> Keys | None:
    """The keys of HOLDFAST_ENCRYPTION_KEYS, for command lines and services; None if not set."""
    source = os.environ.get(VARIABLE, "").strip()
    require = os.environ.get(REQUIRE_VARIABLE, "").strip().lower()
    if require not in ("", "0", "1", "on", "off"):
        why = f"is {require!r}, must be 1, on, 0 or off"
        raise ConfigError(field=REQUIRE_VARIABLE, why=why)
    needed = require in ("1", "on")
    if not source:
        if needed:
            raise ConfigError(field=VARIABLE, why=f"is not set, and {REQUIRE_VARIABLE} needs it")
        return None
    if source.startswith("env"):
        raise ConfigError(field=VARIABLE, why="must not refer to a variable")
    return Keys(source, require=needed)


# -- sources ---------------------------------------------------------------------------------------


def _source(source: Any) -> MasterKeys | WrapperKeys | Callable[..., Any]:
    if isinstance(source, str):
        return _named(source)
    if isinstance(source, Mapping):
        found = {check_key_id("keys", id): secret_of("keys", id, source[id]) for id in source}
        return MasterKeys(checked("keys", found))
    return _object(source)


def _object(found: Any) -> WrapperKeys | Callable[..., Any]:
    if callable(getattr(found, "wrap", None)) and callable(getattr(found, "unwrap", None)):
        return WrapperKeys(found)
    if callable(found):
        provider: Callable[..., Any] = found
        return provider
    kind = type(found).__name__
    why = f"must be text, a mapping, a callable, or have wrap() and unwrap(); it is a {kind}"
    raise ConfigError(field="keys", why=why)


def _named(source: str) -> MasterKeys | WrapperKeys | Callable[..., Any]:
    way, _, rest = source.partition(":")
    if way == "env":
        name = rest or VARIABLE
        text = os.environ.get(name, "")
        if not text.strip():
            raise ConfigError(field="keys", why=f"the variable {name} is not set")
        return MasterKeys(checked("keys", parsed(name, text)))
    if way == "file":
        path = Path(rest)
        keys = FileKeys(path)
        if path.stat().st_mode & 0o044:
            logger.warning("the file of master keys can be read by others: %s", path)
        return keys
    if way == "call":
        return _object(_imported(rest))
    return MasterKeys(parsed("keys", source))


def _imported(name: str) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        why = f"{name!r} must be MODULE:NAME, of a callable: {error}"
        raise ConfigError(field="keys", why=why) from None
    return found
