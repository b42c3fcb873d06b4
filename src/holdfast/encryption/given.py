"""Keys of tenants that a callable gives, such as a client of a key management service.

    def keys(tenant: str, key_id: str | None) -> tuple[str, bytes] | None

Without an id it returns the id and the bytes of the key for new values; with one, that key. None:
the tenant has no such key, any more. It may be a coroutine function; what it raises can be tried
again. Answers are remembered for KEYS_FRESH_S.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

from holdfast.core.edge_bounds import KEY_AGAIN_S, KEYS_AT_ONCE, KEYS_FRESH_S
from holdfast.core.errors import ConfigError, DecodeError, KeyErased, KeyUnavailable
from holdfast.encryption.masters import asked, check_key_id, secret_of
from holdfast.encryption.ring import Found, Named, Remembered
from holdfast.encryption.sealed import Cipher

Provider = Callable[[str, str | None], Any]
_Asked = tuple[str, str | None]


class GivenRing:
    """The keys of a callable, remembered for a while and up to a number."""

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._clock = clock
        self._known: Remembered[_Asked, tuple[float, Found]] = Remembered()
        """Until when an answer is used, and the answer."""

    async def newest(self, tenants: Collection[str]) -> dict[str, Found]:
        found = await self._all([(tenant, None) for tenant in tenants])
        return {tenant: answer for (tenant, _), answer in found.items()}

    async def named(self, wanted: Collection[Named]) -> dict[Named, Found]:
        found = await self._all(list(wanted))
        return {(tenant, id): answer for (tenant, id), answer in found.items() if id is not None}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def _all(self, wanted: Collection[_Asked]) -> dict[_Asked, Found]:
        now = self._clock()
        found: dict[_Asked, Found] = {}
        missing: list[_Asked] = []
        for each in wanted:
            known = self._known.get(each)
            if known is not None and known[0] > now:
                found[each] = known[1]
            else:
                missing.append(each)
        if missing:
            room = asyncio.Semaphore(KEYS_AT_ONCE)
            answers = await asyncio.gather(*(self._ask(each, room) for each in missing))
            found.update(zip(missing, answers, strict=True))
        return found

    async def _ask(self, wanted: _Asked, room: asyncio.Semaphore) -> Found:
        tenant, key_id = wanted
        async with room:
            try:
                answer = _cipher(tenant, key_id, await asked(self._provider, tenant, key_id))
            except KeyUnavailable as error:
                self._keep(wanted, error, KEY_AGAIN_S)
                return error
        self._keep(wanted, answer, KEYS_FRESH_S if isinstance(answer, Cipher) else KEY_AGAIN_S)
        return answer

    def _keep(self, wanted: _Asked, answer: Found, length_s: float) -> None:
        self._known.keep(wanted, (self._clock() + length_s, answer))


def _cipher(tenant: str, key_id: str | None, answer: Any) -> Found:
    """The key of an answer. An answer of a wrong form is a mistake that can be mended."""
    if answer is None:
        if key_id is None:
            return KeyErased(tenant=tenant)
        return missing_key(tenant, key_id)
    try:
        id, secret = answer
        found = Cipher(check_key_id("keys", id), secret_of("keys", id, secret))
    except (TypeError, ValueError, ConfigError):
        why = "the provider of keys must return an id and 32 bytes, or None"
        raise KeyUnavailable(store="keys", why=why) from None
    if key_id not in (None, found.id):
        why = f"the provider of keys returned {found.id!r} where {key_id!r} was asked for"
        raise KeyUnavailable(store="keys", why=why)
    return found


def missing_key(tenant: str, key_id: str) -> DecodeError:
    """What reading a value by a key raises that the tenant does not have."""
    why = f"tenant {tenant!r} has no key {key_id!r}: it was erased, or is the key of another tenant"
    return DecodeError(codec="encrypted", type="value", why=why)
