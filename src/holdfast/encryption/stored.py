"""Keys of tenants in the settings of a store: each wrapped by a master key, one setting per tenant.

    holdfast.keys/LENGTH:TENANT/    the tenant's keys, the newest first; or that they were erased

The first value of a tenant makes its first key. A change is a compare-and-set, so of two processes
that make the first key at once one finds the other's. Every process reads the keys of a tenant
again after KEYS_FRESH_S, and when a value names a key that it does not know.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection
from itertools import pairwise

import msgspec

from holdfast.core.bounds import PAGE_MAX, TENANT_MAX
from holdfast.core.check import check_name, check_seconds
from holdfast.core.clock import Micros, SystemClock, micros
from holdfast.core.edge_bounds import KEYS_AT_ONCE, KEYS_FRESH_S, KEYS_MAX
from holdfast.core.errors import (
    HoldfastError,
    InvalidInput,
    KeyErased,
    KeyUnavailable,
    StaleSetting,
)
from holdfast.encryption.given import missing_key
from holdfast.encryption.masters import Masters, Wrapped
from holdfast.encryption.ring import Found, Named, Remembered
from holdfast.encryption.sealed import KEY_BYTES, Cipher
from holdfast.store import Put, Setting, Store

PREFIX = "holdfast.keys/"
TRIES = 10
"""Changes of one setting that may lose against others before the call gives up."""


class StoredKey(msgspec.Struct, frozen=True):
    """A data key as it is stored."""

    id: str
    at: Micros
    """When it was made, by the clock of the process that made it."""
    wrapped: Wrapped


class TenantKeys(msgspec.Struct, frozen=True):
    """The setting of a tenant."""

    keys: tuple[StoredKey, ...] = ()
    erased_at: Micros | None = None


class KeyState(msgspec.Struct, frozen=True):
    """The keys of a tenant, for people: their ids, when they were made, and their master keys."""

    tenant: str
    keys: tuple[tuple[str, Micros, str], ...]
    erased_at: Micros | None = None


class _Known(msgspec.Struct, frozen=True):
    """What this process has read of a tenant."""

    until_s: float
    stored: TenantKeys
    ciphers: dict[str, Found]


class StoredRing:
    """The keys of the tenants of a store. Any thread that runs an event loop may call."""

    def __init__(
        self,
        store: Store,
        masters: Masters,
        *,
        own: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.masters = masters
        self._own = own
        """Whether the store is for the keys alone, so that it is opened and closed here."""
        self._clock = clock
        self._known: Remembered[str, _Known] = Remembered()

    async def open(self) -> None:
        if self._own:
            await self.store.open()

    async def close(self) -> None:
        if self._own:
            await self.store.close()

    # -- for the mapper --------------------------------------------------------------------------

    async def newest(self, tenants: Collection[str]) -> dict[str, Found]:
        known = await self._fresh(tenants)
        found: dict[str, Found] = {}
        for tenant in tenants:
            if isinstance(one := known[tenant], HoldfastError):
                found[tenant] = one
            elif one.stored.erased_at is not None:
                found[tenant] = KeyErased(tenant=tenant)
            elif not one.stored.keys:
                found[tenant] = await self._first(tenant)
            else:
                found[tenant] = one.ciphers[one.stored.keys[0].id]
        return found

    async def named(self, wanted: Collection[Named]) -> dict[Named, Found]:
        known = await self._fresh({tenant for tenant, _ in wanted})
        unknown = {
            tenant
            for tenant, id in wanted
            if not isinstance(one := known[tenant], HoldfastError) and id not in one.ciphers
        }
        if unknown:  # A key that was made after they were read.
            known |= await self._read(unknown)
        return {(tenant, id): _named(tenant, id, known[tenant]) for tenant, id in wanted}

    async def _first(self, tenant: str) -> Found:
        """The first key of a tenant: the one made here, or by another process meanwhile."""
        try:
            await self._change(tenant, _with_first)
        except StaleSetting as error:
            return KeyUnavailable(store="keys", why=str(error))
        except KeyUnavailable as error:
            return error
        return (await self.newest([tenant]))[tenant]

    async def _fresh(self, tenants: Collection[str]) -> dict[str, _Known | HoldfastError]:
        now = self._clock()
        known: dict[str, _Known | HoldfastError] = {}
        for tenant in tenants:
            one = self._known.get(tenant)
            if one is not None and one.until_s > now:
                known[tenant] = one
        if len(known) < len(tenants):
            known |= await self._read([tenant for tenant in tenants if tenant not in known])
        return known

    async def _read(self, tenants: Collection[str]) -> dict[str, _Known | HoldfastError]:
        """What is stored now. An error of the store fails the call: nothing else works either."""
        room = asyncio.Semaphore(KEYS_AT_ONCE)

        async def one(tenant: str) -> _Known | HoldfastError:
            async with room:
                stored = _decoded(tenant, await self._setting(tenant))
                return (
                    stored if isinstance(stored, HoldfastError) else await self._use(tenant, stored)
                )

        return dict(zip(tenants, await asyncio.gather(*map(one, tenants)), strict=True))

    async def _use(self, tenant: str, stored: TenantKeys) -> _Known:
        """Unwraps what is new. A key that cannot be unwrapped now is tried again soon."""
        before = self._known.get(tenant)
        ciphers: dict[str, Found] = {}
        whole = True
        for key in stored.keys:
            old = None if before is None else before.ciphers.get(key.id)
            if isinstance(old, Cipher):
                ciphers[key.id] = old
                continue
            try:
                secret = await self.masters.unwrap(tenant, key.id, key.wrapped)
                ciphers[key.id] = Cipher(key.id, secret)
            except KeyUnavailable as error:
                ciphers[key.id], whole = error, False
        length_s = KEYS_FRESH_S if whole and stored.keys else 0.0
        if stored.erased_at is not None:
            length_s = KEYS_FRESH_S
        known = _Known(self._clock() + length_s, stored, ciphers)
        self._known.keep(tenant, known)
        return known

    # -- settings --------------------------------------------------------------------------------

    async def _setting(self, tenant: str) -> Setting | None:
        name = name_of(tenant)
        found = await self.store.settings((), under=name, limit=1)
        return next((one for one in found if one.name == name), None)

    async def _change(
        self, tenant: str, kept: Callable[[TenantKeys], TenantKeys | None]
    ) -> TenantKeys:
        """Changes what is stored of a tenant. `kept` returns it with the change, or None to have a
        new key put in front. Raises StaleSetting if others change it all the time.
        """
        for turn in range(TRIES):
            setting = await self._setting(tenant)
            stored = _decoded(tenant, setting)
            if isinstance(stored, HoldfastError):
                raise stored
            after = kept(stored) or TenantKeys((await self._new_key(tenant), *stored.keys))
            if after == stored:
                break
            put = Put(name_of(tenant), _encode(after), 0 if setting is None else setting.version)
            try:
                await self.store.settings([put])
            except StaleSetting:
                if turn + 1 == TRIES:
                    raise
                continue
            break
        await self._use(tenant, after)
        return after

    async def _new_key(self, tenant: str) -> StoredKey:
        id, secret = secrets.token_hex(8), os.urandom(KEY_BYTES)
        wrapped = await self.masters.wrap(tenant, id, secret)
        return StoredKey(id, SystemClock().now(), wrapped)

    # -- for operators ---------------------------------------------------------------------------

    async def states(self) -> AsyncIterator[KeyState]:
        """The keys of every tenant that has some, or had some that were erased; by name."""
        after = ""
        while True:
            page = await self.store.settings(under=PREFIX, after=after, limit=PAGE_MAX)
            for setting in page:
                tenant = tenant_of(setting.name)
                stored = None if tenant is None else _decoded(tenant, setting)
                if tenant is not None and isinstance(stored, TenantKeys):
                    keys = tuple((key.id, key.at, key.wrapped.master) for key in stored.keys)
                    yield KeyState(tenant, keys, stored.erased_at)
            if len(page) < PAGE_MAX:
                return
            after = page[-1].name

    async def rotate(
        self, tenant: str, *, drop_after: float | None = None, revive: bool = False
    ) -> str:
        """Gives the tenant a new key for new values; returns its id. Old values stay readable.

        `drop_after` also drops the keys that were replaced more than so many seconds ago: what is
        still encrypted with them cannot be read any more. `revive` is needed for a tenant whose
        keys were erased; what was encrypted before stays unreadable.
        """
        check_name("tenant", tenant, TENANT_MAX)
        before = None
        if drop_after is not None:
            length_s = check_seconds("drop_after", drop_after)
            before = SystemClock().now() - micros(length_s)
        key = await self._new_key(tenant)

        def kept(stored: TenantKeys) -> TenantKeys:
            if stored.erased_at is not None and not revive:
                raise KeyErased(tenant=tenant)
            keys = (key, *_not_replaced(stored.keys, before))
            if len(keys) > KEYS_MAX:
                why = f"tenant {tenant!r} has {KEYS_MAX} keys: drop old ones with drop_after"
                raise InvalidInput(field="tenant", why=why)
            return TenantKeys(keys)

        await self._change(tenant, kept)
        return key.id

    async def rewrap(self) -> AsyncIterator[str]:
        """Wraps every key anew that an older master key wraps. Yields the tenants changed. When it
        has ended no key needs an older master key.
        """
        async for state in self.states():
            newest = self.masters.newest
            if all(master == newest for _, _, master in state.keys):
                continue
            fresh: dict[str, StoredKey] = {}
            stored = _decoded(state.tenant, await self._setting(state.tenant))
            for key in stored.keys if isinstance(stored, TenantKeys) else ():
                if key.wrapped.master != newest:
                    secret = await self.masters.unwrap(state.tenant, key.id, key.wrapped)
                    wrapped = await self.masters.wrap(state.tenant, key.id, secret)
                    fresh[key.id] = StoredKey(key.id, key.at, wrapped)

            def kept(now: TenantKeys, fresh: dict[str, StoredKey] = fresh) -> TenantKeys:
                keys = tuple(fresh.get(key.id, key) for key in now.keys)
                return TenantKeys(keys, now.erased_at)

            await self._change(state.tenant, kept)
            yield state.tenant

    async def erase(self, tenant: str) -> bool:
        """Deletes the keys of a tenant: nothing that is encrypted with them can be read again.
        False if they were erased before.
        """
        check_name("tenant", tenant, TENANT_MAX)
        erased = False
        now = SystemClock().now()

        def kept(stored: TenantKeys) -> TenantKeys:
            nonlocal erased
            erased = stored.erased_at is None
            return TenantKeys((), now) if erased else stored

        await self._change(tenant, kept)
        return erased


def _with_first(stored: TenantKeys) -> TenantKeys | None:
    """None, for a new key, unless the tenant has one, or had some that were erased."""
    return stored if stored.keys or stored.erased_at is not None else None


def _named(tenant: str, id: str, known: _Known | HoldfastError) -> Found:
    if isinstance(known, HoldfastError):
        return known
    found = known.ciphers.get(id)
    if found is not None:
        return found
    return (
        KeyErased(tenant=tenant) if known.stored.erased_at is not None else missing_key(tenant, id)
    )


def _not_replaced(keys: tuple[StoredKey, ...], before: Micros | None) -> tuple[StoredKey, ...]:
    """The keys without those that were replaced before an instant. A key is replaced when the one
    in front of it was made.
    """
    if before is None or not keys:
        return keys
    return (keys[0], *(key for made, key in pairwise(keys) if made.at >= before))


# -- names and values ------------------------------------------------------------------------------


def name_of(tenant: str) -> str:
    """The name of the tenant's setting. The length keeps it from being the prefix of another."""
    return f"{PREFIX}{len(tenant)}:{tenant}/"


def tenant_of(name: str) -> str | None:
    """The tenant whose setting this is; None if it is none."""
    length, _, rest = name.removeprefix(PREFIX).partition(":")
    tenant = rest.removesuffix("/")
    return tenant if name == name_of(tenant) and length.isascii() else None


_decoder = msgspec.json.Decoder(TenantKeys)
_encode = msgspec.json.Encoder().encode


def _decoded(tenant: str, setting: Setting | None) -> TenantKeys | HoldfastError:
    if setting is None:
        return TenantKeys()
    try:
        return _decoder.decode(setting.value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        why = f"the stored keys of tenant {tenant!r} cannot be read: {error}"
        return KeyUnavailable(store="keys", why=why)
