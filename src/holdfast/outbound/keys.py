"""Idempotency keys: by which a service recognises a call that it has done already."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from holdfast.core.bounds import KEY_MAX, TYPE_MAX
from holdfast.core.check import check_name
from holdfast.core.codec import to_plain
from holdfast.core.edge_bounds import OUTBOUND_KEYS_MAX
from holdfast.core.errors import InvalidInput

KEY_CHARS_MAX = 255
"""Of a header: services store keys in columns of about this length."""


class IdempotencyKey(str):
    """A key that is sent as it is. Any other text is a name, which is hashed with the job's key."""

    __slots__ = ()


def content_key(type: str, data: Any) -> IdempotencyKey:
    """The SHA-256 of a type and its data, for calls that are one call if their content is equal.

    Both are encoded as one canonical JSON array: keys are sorted, so their order does not matter,
    and no two contents run together. Equal contents of two jobs have one key.
    """
    check_name("type", type, TYPE_MAX)
    try:
        text = msgspec.json.encode([type, data], enc_hook=to_plain, order="sorted")
    except Exception as error:
        raise InvalidInput(field="data", why=f"cannot be written as JSON: {error}") from None
    return IdempotencyKey(hashlib.sha256(text).hexdigest())


def key_of(effect_key: str, given: str | None) -> str:
    """The key of a call: the job's effect key, or with a name the hash of both."""
    if given is None:
        return effect_key
    if isinstance(given, IdempotencyKey):
        check_name("key", given, KEY_CHARS_MAX)
        if not given.isascii():
            raise InvalidInput(field="key", why="must be ASCII to be sent in a header")
        return str(given)
    name = check_name("key", given, KEY_MAX)
    return hashlib.sha256(f"{effect_key}:{name}".encode()).hexdigest()


class UsedKeys:
    """The keys that each run has used, and for which request: a service answers a second request
    with the same key by the first one's answer, so the second would be lost without a sign.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_runs: MutableMapping[object, dict[str, bytes]] = WeakKeyDictionary()

    def check(self, run: object, key: str, method: str, url: str, body: bytes | None) -> None:
        """Raises InvalidInput if the run has sent another request with this key."""
        whole = hashlib.sha256(f"{method} {url}\n".encode())
        whole.update(body or b"")
        digest = whole.digest()
        with self._lock:
            used = self._of_runs.setdefault(run, {})
            if used.setdefault(key, digest) != digest:
                why = (
                    "this run has sent another request with the same idempotency key; give each"
                    " call a name of its own, such as key='invoice'"
                )
                raise InvalidInput(field="key", why=why)
            if len(used) > OUTBOUND_KEYS_MAX:
                del used[next(iter(used))]
