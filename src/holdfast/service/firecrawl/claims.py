"""How a release or a cleanup finds the token of a claim again, without the store ever showing it.

A release names a job, not its lease, and may come to another process than the pop. So the nonce of
a pop is made from a random salt and a secret of the store, and the claim's hold keeps the salt. Who
may list holds sees salts; the secret is a setting that admins of every tenant may read, who could
claim and settle every job anyway.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from holdfast.clock import SECOND, Micros
from holdfast.errors import StaleSetting
from holdfast.store import Put, Store

SECRET = "firecrawl/secret"
"""The name of the setting."""
SALT_BYTES = 16
SALT_CHARS = 2 * SALT_BYTES
KEPT_US: Micros = 3600 * SECOND
"""How long the hold of a claim stays past the claim's time, so that a cleanup can end the claim; as
long as the wire keeps the record of a job that has ended.
"""


class Nonces:
    """Those of one store's pops."""

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
    """What the hold of a claim keeps: the salt, and what the store added to the nonce."""
    return salt + token.removeprefix(nonce)


async def _secret(store: Store) -> bytes:
    """The store's, made by whoever needs it first."""
    for made in (secrets.token_hex(32).encode(), None):
        for setting in await store.settings(under=SECRET):
            if setting.name == SECRET:
                return setting.value
        if made is not None:
            try:
                await store.settings([Put(SECRET, made, 0)])
            except StaleSetting:
                continue  # Another was faster: its secret is the store's.
            return made
    raise AssertionError("a setting that is in the way can be read")
