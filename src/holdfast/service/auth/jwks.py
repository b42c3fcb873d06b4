"""The keys that verify tokens: one key from a file, or the key set of the issuer.

Each key has one fixed algorithm. The header of a token never selects it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

import jwt
import msgspec
from jwt.algorithms import get_default_algorithms

from holdfast.core.errors import ConfigError
from holdfast.service.auth.settings import ALGORITHMS, SYMMETRIC
from holdfast.service.problems import Overloaded
from holdfast.service.rights import Unauthenticated

logger = logging.getLogger("holdfast")

SECRET_BYTES_MIN = 32
RSA_BITS_MIN = 2048
FETCH_S = 5.0
FRESH_S = 300.0
"""How long a key set is used before it is fetched again."""
STALE_S = 3600.0
"""How long it is used if it cannot be fetched: a withdrawn key must stop working."""
COOL_S = 10.0
"""Minimum time between fetches, so that a stranger cannot make us flood the issuer."""
RETRY_S = 1.0
"""Minimum time between fetches while there is no key."""
KEYS_MAX = 1000


class Key(msgspec.Struct, frozen=True):
    kid: str | None
    algorithm: str
    material: Any


class KeySource(Protocol):
    """Returns the key that a token names. Raises Unauthenticated if there is none."""

    async def key(self, kid: str | None) -> Key: ...


class KeysUnavailable(Overloaded):
    """No token can be verified: the keys of the issuer cannot be fetched."""

    code = "AUTH_UNAVAILABLE"


# -- one key ---------------------------------------------------------------------------------------


class OneKey:
    """The same key for every token, whatever key it names."""

    def __init__(self, key: Key) -> None:
        self._key = key

    async def key(self, kid: str | None) -> Key:
        return self._key


def read_key(path: str, algorithm: str) -> Key:
    """A secret or a public key in PEM. Raises ConfigError if it does not fit the algorithm."""
    try:
        body = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(field="jwt_key", why=f"cannot read {path}: {error.strerror}") from None
    if algorithm != SYMMETRIC and b"PRIVATE KEY" in body:
        why = f"{path} is a private key; give the public key"
        raise ConfigError(field="jwt_key", why=why)
    kind = get_default_algorithms()[algorithm]
    try:
        material = kind.prepare_key(body)
    except (jwt.PyJWTError, ValueError, TypeError):
        why = f"{path} is not a key for {algorithm}"
        raise ConfigError(field="jwt_key", why=why) from None
    if weak := weakness(algorithm, material):
        raise ConfigError(field="jwt_key", why=f"{path}: {weak}")
    return Key(None, algorithm, material)


def weakness(algorithm: str, material: Any) -> str | None:
    """Why a key is too weak; None if it is strong enough."""
    if algorithm == SYMMETRIC and len(material) < SECRET_BYTES_MIN:
        return f"the secret is shorter than {SECRET_BYTES_MIN} bytes"
    if algorithm == "RS256" and material.key_size < RSA_BITS_MIN:
        return f"the key is shorter than {RSA_BITS_MIN} bits"
    return None


# -- a set -----------------------------------------------------------------------------------------

Fetch = Callable[[], Any]
"""Returns the decoded key set; called in a thread."""


class KeySet:
    """The keys of a set by their ids, fetched when needed and refreshed regularly."""

    def __init__(
        self,
        fetch: Fetch,
        where: str,
        algorithms: tuple[str, ...],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._where = where
        self._algorithms = algorithms
        self._clock = clock
        self._keys: dict[str | None, Key] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def key(self, kid: str | None) -> Key:
        age = self._clock() - self._fetched_at
        if age > STALE_S:
            self._keys = {}
        if self._keys and age > FRESH_S:
            self._refresh()  # Do not wait: a slow issuer must not delay this request.
        found = self._find(kid)
        if found is None and (fetching := self._refresh()):
            await asyncio.shield(fetching)
            found = self._find(kid)
        if found is not None:
            return found
        if not self._keys:
            why = "the keys of the token issuer cannot be fetched"
            raise KeysUnavailable(why=why, retry_after_s=RETRY_S)
        raise Unauthenticated(why="the token is signed with an unknown key")

    def _find(self, kid: str | None) -> Key | None:
        """The key with this id. A token without an id matches if there is only one key."""
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _refresh(self) -> asyncio.Task[None] | None:
        """The current fetch, or a new one; None if it is too early for a new one."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        if self._clock() - self._tried_at < (COOL_S if self._keys else RETRY_S):
            return None
        self._tried_at = self._clock()
        self._fetching = asyncio.create_task(self._fetch_now())
        return self._fetching

    async def _fetch_now(self) -> None:
        try:
            async with asyncio.timeout(2 * FETCH_S):
                told = await asyncio.to_thread(self._fetch)
            self._keys = usable(told, self._algorithms)
            self._fetched_at = self._clock()
        except (jwt.PyJWTError, OSError, ValueError, RecursionError, ConfigError) as error:
            logger.error("cannot read keys from %s: %s", self._where, error)


def usable(told: Any, algorithms: tuple[str, ...]) -> dict[str | None, Key]:
    """The usable keys of a set, each with its algorithm."""
    if not isinstance(told, dict) or not isinstance(told.get("keys"), list):
        raise ConfigError(field="jwks", why="is not a key set")
    parsed = (_key(one, algorithms) for one in told["keys"][:KEYS_MAX])
    found = {one.kid: one for one in parsed if one is not None}
    if not found:
        raise ConfigError(field="jwks", why=f"has no key for {', '.join(algorithms)}")
    return found


def _key(told: Any, algorithms: tuple[str, ...]) -> Key | None:
    """One key of a set; None if it is not usable or not a key."""
    if not isinstance(told, dict) or told.get("use", "sig") != "sig" or "d" in told:
        return None  # A key with "d" is a published private key, which anyone can sign with.
    kid = told.get("kid")
    if told.get("alg", algorithms[0]) not in algorithms or not isinstance(kid, str | None):
        return None
    try:
        key = jwt.PyJWK(told)
    except Exception:  # One invalid key does not affect the others.
        return None
    if key.algorithm_name not in algorithms or weakness(key.algorithm_name, key.key):
        return None
    return Key(kid, key.algorithm_name, key.key)


def key_set(url: str, algorithm: str | None) -> KeySet:
    """The key set at a URL. Only a file may contain secrets; what an issuer publishes is not
    secret.
    """
    parts = urlsplit(url)
    chosen: tuple[str, ...]
    if parts.scheme == "file":
        path = Path(url2pathname(parts.path))
        chosen = (algorithm,) if algorithm else ALGORITHMS
        _check_file(path, chosen)
        return KeySet(lambda: json.loads(path.read_bytes()), url, chosen)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(field="jwks", why="must be a URL with http, https or file")
    if algorithm == SYMMETRIC:
        raise ConfigError(field="jwt_alg", why=f"{SYMMETRIC} needs a secret, not a public key set")
    client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=FETCH_S)
    chosen = (algorithm,) if algorithm else tuple(a for a in ALGORITHMS if a != SYMMETRIC)
    where = f"{parts.scheme}://{parts.hostname}{parts.path}"  # Without parts that may be secret.
    return KeySet(client.fetch_data, where, chosen)


def _check_file(path: Path, algorithms: tuple[str, ...]) -> None:
    try:
        usable(json.loads(path.read_bytes()), algorithms)
    except OSError as error:
        raise ConfigError(field="jwks", why=f"cannot read {path}: {error.strerror}") from None
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise ConfigError(field="jwks", why=f"{path}: {error}") from None
