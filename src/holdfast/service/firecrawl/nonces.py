"""Derives the token of a claim again for a release or a cleanup, without storing the token.

A release names a job, not its lease, and may reach another process than the pop. So the nonce of a
pop is derived from a random salt and a secret of the store, and the hold of the claim stores the
salt. A caller that may list holds sees only salts. The secret is a setting that only admins of
every tenant may read, and they can claim and ack every job anyway.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from holdfast.core.clock import SECOND, Micros
from holdfast.core.errors import StaleSetting
from holdfast.store import Put, Store

SECRET = "firecrawl/secret"
"""The name of the setting."""
SALT_BYTES = 16
SALT_CHARS = 2 * SALT_BYTES
KEPT_US: Micros = 3600 * SECOND
"""How long the hold of a claim is kept after the claim has ended, so that a cleanup can find it: as
long as the record of an ended job.
"""


class Nonces:
    """The nonces of the pops of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secret: bytes | None = None

    async def new(self) -> tuple[str, str]:
        """A fresh salt, and the nonce for it."""
        salt = secrets.token_hex(SALT_BYTES)
        return salt, await self._nonce(salt)

    async def token(self, note: str) -> str:
        """The token of the lease whose claim has this note; see `note_of`."""
        return await self._nonce(note[:SALT_CHARS]) + note[SALT_CHARS:]

    async def _nonce(self, salt: str) -> str:
        if self._secret is None:
            self._secret = await _secret(self._store)
        return hmac.new(self._secret, salt.encode(), hashlib.sha256).hexdigest()[:SALT_CHARS]


def note_of(salt: str, nonce: str, token: str) -> str:
    """The note of a claim's hold: the salt, and what the store added to the nonce."""
    return salt + token.removeprefix(nonce)


async def _secret(store: Store) -> bytes:
    """The secret of the store, created when it is first needed."""
    for made in (secrets.token_hex(32).encode(), None):
        for setting in await store.settings(under=SECRET):
            if setting.name == SECRET:
                return setting.value
        if made is not None:
            try:
                await store.settings([Put(SECRET, made, 0)])
            except StaleSetting:
                continue  # Another process was faster; use its secret.
            return made
    raise AssertionError("a setting that is in the way can be read")
