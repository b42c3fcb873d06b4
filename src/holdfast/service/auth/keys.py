"""Static keys: a file lists the hashes of the keys with their rights. Changes of it are followed.

A key is long and random, so a plain SHA-256 is enough to hide it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.bounds import QUEUE_MAX, TENANT_MAX, TYPE_MAX, WORKER_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import ConfigError, InvalidInput
from holdfast.service.auth.bearer import api_key
from holdfast.service.rights import Caller, Right, Unauthenticated, rights

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger("holdfast")

PREFIX = "hf_"
"""The prefix identifies a leaked key as one of Holdfast."""
KEY_BYTES = 32
HASH_PREFIX = "sha256:"
EVERY_TENANT = "*"
NOT_A_TENANTS = "is a right over all tenants; a key of one tenant cannot have it"
LOOK_S = 1.0
"""Time between checks of the file."""
FILE_MAX = 16 * 1024 * 1024

_KEY = re.compile(r"hf_[A-Za-z0-9_-]{43,250}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(KEY_BYTES)


def hash_of(key: str) -> str:
    """The hash of a key, as stored in the file."""
    return HASH_PREFIX + hashlib.sha256(key.encode()).hexdigest()


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entry of a key: its name and its rights."""

    name: str
    hash: str
    tenant: str | None
    """Null or `*` means every tenant. Required, so that a forgotten field does not grant all
    tenants.
    """
    rights: tuple[Right, ...]
    queues: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None

    @property
    def whose(self) -> str | None:
        """The tenant; None: every tenant."""
        return None if self.tenant == EVERY_TENANT else self.tenant

    def caller(self) -> Caller:
        return Caller(
            name=self.name,
            tenant=self.whose,
            rights=rights(self.rights, self.whose),
            queues=self.queues,
            types=self.types,
        )


class KeyList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: tuple[KeyEntry, ...]


class Keys:
    """Mode `keys`."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = Path(path)
        self._clock = clock
        self._stamp = _stamp(self._path)
        self._known = _callers(self._path)
        self._look_at = clock() + LOOK_S

    async def caller(self, request: Request) -> Caller:
        key = api_key(request)
        if _KEY.fullmatch(key) is None:
            raise Unauthenticated(why="the token is not a key of this service")
        self._follow()
        hashed = hash_of(key)
        kept, caller = self._known.get(hashed, ("", None))
        if caller is None or not hmac.compare_digest(kept, hashed):
            raise Unauthenticated(why="the key is unknown")
        return caller

    def _follow(self) -> None:
        """Reads the file again if it has changed. An invalid file changes nothing."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # Set before reading, so that an invalid file is logged once.
        try:
            self._known = _callers(self._path)
        except ConfigError as error:
            logger.error("the key file is invalid, the keys are unchanged: %s", error)
        else:
            logger.info("%d keys read from %s", len(self._known), self._path)


def _stamp(path: Path) -> tuple[int, ...]:
    """A mark that changes when the file is written or replaced."""
    try:
        told = path.stat()
    except OSError:
        return ()
    return told.st_ino, told.st_size, told.st_mtime_ns


def _callers(path: Path) -> dict[str, tuple[str, Caller]]:
    return {hash: (hash, entry.caller()) for hash, entry in read_keys(path).items()}


def read_keys(path: Path) -> dict[str, KeyEntry]:
    """The entries by their hashes. Raises ConfigError, which names the entry and the error."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise ConfigError(field="keys", why=f"cannot read {path}: {error.strerror}") from None
    if len(body) > FILE_MAX:
        raise ConfigError(field="keys", why=f"{path} has more than {FILE_MAX} bytes")
    try:
        value = _decoded(path, body)
        found = msgspec.convert({"keys": value} if isinstance(value, list) else value, KeyList)
    except (
        ValueError,
        RecursionError,
    ) as error:  # The errors of msgspec and tomllib are ValueErrors.
        raise ConfigError(field="keys", why=f"{path}: {error}") from None
    known: dict[str, KeyEntry] = {}
    names: set[str] = set()
    for number, entry in enumerate(found.keys):
        where = f"keys[{number}]"
        _check(where, entry)
        if entry.hash in known or entry.name in names:
            what = "name" if entry.name in names else "hash"
            raise ConfigError(field=f"{where}.{what}", why="is the hash of another key too")
        known[entry.hash] = entry
        names.add(entry.name)
    return known


def _decoded(path: Path, body: bytes) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(body.decode())
    return msgspec.json.decode(body)


def _check(where: str, entry: KeyEntry) -> None:
    if _HASH.fullmatch(entry.hash) is None:
        why = (
            "must be sha256: and 64 lower-case hexadecimal digits, as `holdfast keys new` prints it"
        )
        raise ConfigError(field=f"{where}.hash", why=why)
    if not entry.rights:
        raise ConfigError(field=f"{where}.rights", why="must name at least one")
    if Right.PLATFORM in entry.rights and entry.whose is not None:
        raise ConfigError(field=f"{where}.rights", why=f"{Right.PLATFORM}: {NOT_A_TENANTS}")
    try:
        check_name(f"{where}.name", entry.name, WORKER_MAX)
        if entry.tenant is not None:
            check_name(f"{where}.tenant", entry.tenant, TENANT_MAX)
        for field, most in (("queues", QUEUE_MAX), ("types", TYPE_MAX)):
            named = getattr(entry, field)
            if named == ():
                why = "must name at least one, or be omitted for all"
                raise ConfigError(field=f"{where}.{field}", why=why)
            for name in named or ():
                check_name(f"{where}.{field}", name, most)
    except InvalidInput as error:
        raise ConfigError(field=error.field, why=error.why) from None
