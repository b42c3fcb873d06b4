"""The keys that tokens are signed with: one from a file, or a set that its issuer changes.

Each key has one algorithm, fixed here: a token's header never chooses.
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

from holdfast.errors import ConfigError
from holdfast.service.auth.settings import ALGORITHMS, SYMMETRIC
from holdfast.service.problems import Overloaded
from holdfast.service.rights import Unauthenticated

logger = logging.getLogger("holdfast")

SECRET_BYTES_MIN = 32
RSA_BITS_MIN = 2048
FETCH_S = 5.0
FRESH_S = 300.0
"""How long a set is used before it is fetched again."""
STALE_S = 3600.0
"""How long it is used when it cannot be fetched again: a key that was withdrawn must end."""
COOL_S = 10.0
"""Between fetches, whatever keys tokens ask for: a stranger cannot have us call the issuer."""
RETRY_S = 1.0
"""The same while there is no key at all."""
KEYS_MAX = 1000


class Key(msgspec.Struct, frozen=True):
    kid: str | None
    algorithm: str
    material: Any


class KeySource(Protocol):
    """Gives the key that a token names; Unauthenticated when there is none such."""

    async def key(self, kid: str | None) -> Key: ...


class KeysUnavailable(Overloaded):
    """Nobody can be told from anybody: the issuer's keys cannot be had."""

    code = "AUTH_UNAVAILABLE"


# -- one key ---------------------------------------------------------------------------------------


class OneKey:
    """The same for every token, whatever key it names."""

    def __init__(self, key: Key) -> None:
        self._key = key

    async def key(self, kid: str | None) -> Key:
        return self._key


def read_key(path: str, algorithm: str) -> Key:
    """A secret or a public key in PEM; ConfigError when it is not one for the algorithm."""
    try:
        body = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(field="jwt_key", why=f"cannot read {path}: {error.strerror}") from None
    if algorithm != SYMMETRIC and b"PRIVATE KEY" in body:
        why = f"{path} is a private key; give the public one, it is enough"
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
    """What makes a key too weak to be trusted; None if nothing does."""
    if algorithm == SYMMETRIC and len(material) < SECRET_BYTES_MIN:
        return f"the secret is shorter than {SECRET_BYTES_MIN} bytes"
    if algorithm == "RS256" and material.key_size < RSA_BITS_MIN:
        return f"the key is shorter than {RSA_BITS_MIN} bits"
    return None


# -- a set -----------------------------------------------------------------------------------------

Fetch = Callable[[], Any]
"""Gives the decoded set; called in a thread."""


class KeySet:
    """Keys by their ids, fetched when they are needed and now and then."""

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
            self._refresh()  # Not waited for: the issuer's slowness is not ours.
        found = self._find(kid)
        if found is None and (fetching := self._refresh()):
            await asyncio.shield(fetching)
            found = self._find(kid)
        if found is not None:
            return found
        if not self._keys:
            why = "the keys of the tokens' issuer cannot be had"
            raise KeysUnavailable(why=why, retry_after_s=RETRY_S)
        raise Unauthenticated(why="the token is signed with a key that is not known")

    def _find(self, kid: str | None) -> Key | None:
        """One without an id is meant by a token without one, if there is but one key."""
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _refresh(self) -> asyncio.Task[None] | None:
        """The fetch under way, or a new one; None when it is too early for that."""
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
    """The keys of a set that may sign for us, each with its one algorithm."""
    if not isinstance(told, dict) or not isinstance(told.get("keys"), list):
        raise ConfigError(field="jwks", why="is not a set of keys")
    parsed = (_key(one, algorithms) for one in told["keys"][:KEYS_MAX])
    found = {one.kid: one for one in parsed if one is not None}
    if not found:
        raise ConfigError(field="jwks", why=f"has no key for {', '.join(algorithms)}")
    return found


def _key(told: Any, algorithms: tuple[str, ...]) -> Key | None:
    """One key of a set; None if it is not for us, or not a key at all."""
    if not isinstance(told, dict) or told.get("use", "sig") != "sig" or "d" in told:
        return None  # What has a "d" is a private key that was published: it signs for anybody.
    kid = told.get("kid")
    if told.get("alg", algorithms[0]) not in algorithms or not isinstance(kid, str | None):
        return None
    try:
        key = jwt.PyJWK(told)
    except Exception:  # Whatever is wrong with one of them, the others are good.
        return None
    if key.algorithm_name not in algorithms or weakness(key.algorithm_name, key.key):
        return None
    return Key(kid, key.algorithm_name, key.key)


def key_set(url: str, algorithm: str | None) -> KeySet:
    """The set at a URL. Only a file may hold secrets: what an issuer publishes is no secret."""
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
        raise ConfigError(field="jwt_alg", why=f"{SYMMETRIC} needs a secret, not a public set")
    client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=FETCH_S)
    chosen = (algorithm,) if algorithm else tuple(a for a in ALGORITHMS if a != SYMMETRIC)
    where = f"{parts.scheme}://{parts.hostname}{parts.path}"  # Without what may be a secret in it.
    return KeySet(client.fetch_data, where, chosen)


def _check_file(path: Path, algorithms: tuple[str, ...]) -> None:
    try:
        usable(json.loads(path.read_bytes()), algorithms)
    except OSError as error:
        raise ConfigError(field="jwks", why=f"cannot read {path}: {error.strerror}") from None
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise ConfigError(field="jwks", why=f"{path}: {error}") from None
