"""Master keys: they wrap the data keys of tenants, which are stored only wrapped."""

from __future__ import annotations

import asyncio
import base64
import binascii
import inspect
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.core.check import check_name
from holdfast.core.edge_bounds import KEY_CALL_S, KEY_ID_MAX, KEYS_BYTES_MAX, KEYS_FRESH_S, KEYS_MAX
from holdfast.core.errors import ConfigError, InvalidInput, KeyUnavailable
from holdfast.encryption.sealed import KEY_BYTES, NONCE_BYTES, aead_of

_DOMAIN = b"holdfast key 1"


class Wrapped(msgspec.Struct, frozen=True):
    """A data key, encrypted by the master key with this id."""

    master: str
    body: bytes


class Masters(Protocol):
    """Wraps and unwraps data keys. KeyUnavailable says that it cannot now."""

    @property
    def newest(self) -> str:
        """The id of the master key that wraps."""

    async def wrap(self, tenant: str, key_id: str, secret: bytes) -> Wrapped: ...

    async def unwrap(self, tenant: str, key_id: str, wrapped: Wrapped) -> bytes: ...


# -- keys in this process --------------------------------------------------------------------------


class MasterKeys:
    """Master keys by id, the newest first."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self._use(secrets)

    def _use(self, secrets: Mapping[str, bytes]) -> None:
        self._aeads = {id: aead_of(secret) for id, secret in secrets.items()}

    @property
    def newest(self) -> str:
        return next(iter(self._aeads))

    async def wrap(self, tenant: str, key_id: str, secret: bytes) -> Wrapped:
        nonce, id = os.urandom(NONCE_BYTES), self.newest
        body = self._aeads[id].encrypt(nonce, secret, _bound(tenant, key_id))
        return Wrapped(id, nonce + body)

    async def unwrap(self, tenant: str, key_id: str, wrapped: Wrapped) -> bytes:
        from cryptography.exceptions import InvalidTag

        aead = self._aeads.get(wrapped.master)
        if aead is None:
            known = ", ".join(self._aeads)
            why = f"this process has no master key {wrapped.master!r} (it has {known})"
            raise KeyUnavailable(store="keys", why=why)
        nonce, body = wrapped.body[:NONCE_BYTES], wrapped.body[NONCE_BYTES:]
        try:
            return aead.decrypt(nonce, body, _bound(tenant, key_id))
        except (InvalidTag, ValueError):
            why = f"the master key {wrapped.master!r} of this process is not the one that wrapped"
            why += f" key {key_id!r} of tenant {tenant!r}, or the stored key was changed"
            raise KeyUnavailable(store="keys", why=why) from None


def _bound(tenant: str, key_id: str) -> bytes:
    parts = (_DOMAIN, tenant.encode(), key_id.encode())
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


class FileKeys(MasterKeys):
    """Master keys in a file. It is read again now and then, and when a key is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_s = time.monotonic()
        super().__init__(parsed("keys", _text(path)))

    async def wrap(self, tenant: str, key_id: str, secret: bytes) -> Wrapped:
        self._refresh(KEYS_FRESH_S)
        return await super().wrap(tenant, key_id, secret)

    async def unwrap(self, tenant: str, key_id: str, wrapped: Wrapped) -> bytes:
        self._refresh(KEYS_FRESH_S if wrapped.master in self._aeads else 0.0)
        return await super().unwrap(tenant, key_id, wrapped)

    def _refresh(self, after_s: float) -> None:
        if time.monotonic() - self._read_s < after_s:
            return
        self._read_s = time.monotonic()
        try:
            self._use(parsed("keys", _text(self._path)))
        except ConfigError as error:
            raise KeyUnavailable(store="keys", why=str(error)) from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(KEYS_BYTES_MAX + 1).decode("ascii", "replace")
    except OSError as error:
        why = f"the file {str(path)!r} cannot be read: {error.strerror}"
        raise ConfigError(field="keys", why=why) from None


def parsed(field: str, text: str) -> dict[str, bytes]:
    """The keys of a text: `ID:BASE64`, several with commas or on lines of their own. Lines that
    begin with # are comments. Errors name the id and never show a key.
    """
    if len(text) > KEYS_BYTES_MAX:
        raise ConfigError(field=field, why=f"has more than {KEYS_BYTES_MAX} bytes")
    lines = (line.strip() for line in text.splitlines())
    words = (word for line in lines if not line.startswith("#") for word in line.split(","))
    found: dict[str, bytes] = {}
    for number, word in enumerate(filter(None, map(str.strip, words)), 1):
        id, colon, secret = word.partition(":")
        if not colon:
            raise ConfigError(field=field, why=f"entry {number} is not of the form ID:BASE64")
        if id in found:
            raise ConfigError(field=field, why=f"has two keys with the id {id!r}")
        found[check_key_id(field, id)] = secret_of(field, id, secret)
    return checked(field, found)


def checked(field: str, secrets: Mapping[str, bytes]) -> dict[str, bytes]:
    """The keys if there are some, and not too many."""
    if not 0 < len(secrets) <= KEYS_MAX:
        raise ConfigError(field=field, why=f"has {len(secrets)} keys, must be 1 to {KEYS_MAX}")
    return dict(secrets)


def check_key_id(field: str, id: object) -> str:
    """The id if a key may have it."""
    try:
        found = check_name("id", id, KEY_ID_MAX)
    except InvalidInput as error:
        raise ConfigError(field=field, why=f"the id of a key {error.facts['why']}") from None
    if not found.isascii() or any(char in ":, " for char in found):
        raise ConfigError(field=field, why=f"the id {found!r} may be ASCII without : , and spaces")
    return found


def secret_of(field: str, id: str, secret: object) -> bytes:
    """A key of KEY_BYTES: bytes, or their base64."""
    found = secret
    if isinstance(secret, str):
        try:
            found = base64.b64decode(secret.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(field=field, why=f"key {id!r} is not base64") from None
    if not isinstance(found, bytes):
        kind = type(secret).__name__
        raise ConfigError(field=field, why=f"key {id!r} must be bytes or base64, not {kind}")
    if len(found) != KEY_BYTES:
        why = f"key {id!r} has {len(found)} bytes, must be {KEY_BYTES}"
        raise ConfigError(field=field, why=why)
    return found


# -- keys elsewhere --------------------------------------------------------------------------------


class Wrapper(Protocol):
    """A key management service: the master key never leaves it. Both may be coroutines."""

    def wrap(self, secret: bytes, tenant: str) -> Any: ...

    def unwrap(self, wrapped: bytes, tenant: str) -> Any: ...


class WrapperKeys:
    """Masters whose key is in a key management service. `id` names its master key."""

    def __init__(self, wrapper: Wrapper) -> None:
        self._wrapper = wrapper
        self.newest = check_key_id("keys", getattr(wrapper, "id", "kms"))

    async def wrap(self, tenant: str, key_id: str, secret: bytes) -> Wrapped:
        body = await asked(self._wrapper.wrap, secret, tenant)
        if not isinstance(body, bytes) or not 0 < len(body) <= KEYS_BYTES_MAX // KEYS_MAX:
            raise KeyUnavailable(store="keys", why="the key service returned no wrapped key")
        return Wrapped(self.newest, body)

    async def unwrap(self, tenant: str, key_id: str, wrapped: Wrapped) -> bytes:
        secret = await asked(self._wrapper.unwrap, wrapped.body, tenant)
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise KeyUnavailable(store="keys", why="the key service returned no key")
        return secret


async def asked(call: Any, *given: Any) -> Any:
    """What a provider answers: a coroutine here, anything else in a thread. What it raises, and a
    call that takes too long, become KeyUnavailable. Its text is told, so it must hold no key.
    """
    try:
        async with asyncio.timeout(KEY_CALL_S):
            if inspect.iscoroutinefunction(call):
                return await call(*given)
            found = await asyncio.to_thread(call, *given)
            return await found if inspect.isawaitable(found) else found
    except TimeoutError:
        why = f"the provider of keys did not answer within {KEY_CALL_S:g} s"
        raise KeyUnavailable(store="keys", why=why) from None
    except KeyUnavailable:
        raise
    except Exception as error:
        why = f"the provider of keys raised {type(error).__name__}: {error}"
        raise KeyUnavailable(store="keys", why=why) from error
