"""Keys of tenants: made once, rotated, wrapped anew, erased; of a callable, remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.core.edge_bounds import KEY_AGAIN_S, KEYS_FRESH_S, KEYS_MAX
from holdfast.core.errors import (
    DecodeError,
    InvalidInput,
    KeyErased,
    KeyUnavailable,
    StaleSetting,
)
from holdfast.encryption.given import GivenRing
from holdfast.encryption.masters import MasterKeys
from holdfast.encryption.ring import Remembered
from holdfast.encryption.sealed import Cipher
from holdfast.encryption.stored import StoredRing, name_of, tenant_of
from holdfast.store import Put, Store
from holdfast.stores import open_store
from holdfast.testing import Faults

OLD, NEW = b"o" * 32, b"n" * 32


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = open_store("memory://")
    await store.open()
    yield store
    await store.close()


def ring(store: Store, clock: Hand | None = None, **masters: bytes) -> StoredRing:
    return StoredRing(store, MasterKeys(masters or {"old": OLD}), clock=clock or Hand())


async def newest(ring: Any, tenant: str = "acme") -> Any:
    return (await ring.newest([tenant]))[tenant]


async def named(ring: Any, id: str, tenant: str = "acme") -> Any:
    return (await ring.named([(tenant, id)]))[tenant, id]


# -- stored keys -----------------------------------------------------------------------------------


async def test_the_first_value_of_a_tenant_makes_its_key(store: Store) -> None:
    """Another process finds it; another tenant has another one."""
    first, second = ring(store), ring(store)
    key = await newest(first)
    assert isinstance(key, Cipher)
    assert (await newest(second)).id == key.id
    assert (await newest(first, "globex")).id != key.id


async def test_processes_that_make_the_first_key_at_once_have_one(store: Store) -> None:
    """The change is a compare-and-set; whoever loses takes the other's."""
    rings = [ring(store) for _ in range(20)]
    keys = await asyncio.gather(*map(newest, rings))
    assert len({key.id for key in keys}) == 1
    [state] = [state async for state in rings[0].states()]
    assert len(state.keys) == 1


async def test_a_key_that_cannot_be_stored_is_tried_again(store: Store) -> None:
    """Whoever always loses says that it may succeed later."""
    faults = Faults(store)
    stale = StaleSetting(field="version", name="n", version=1, expected=0)
    faults.fail_if("settings", bool, stale)
    assert isinstance(await newest(ring(faults.store)), KeyUnavailable)


async def test_known_keys_are_not_read_again_for_a_while(store: Store) -> None:
    """A busy worker does not ask the store for each claim."""
    faults, clock = Faults(store), Hand()
    own = ring(faults.store, clock)
    key = await newest(own)
    calls = faults.count("settings")
    for _ in range(10):
        await newest(own)
        await named(own, key.id)
    assert faults.count("settings") == calls
    clock.now += KEYS_FRESH_S
    await newest(own)
    assert faults.count("settings") == calls + 1


async def test_a_rotated_key_is_used_at_once_here_and_soon_elsewhere(store: Store) -> None:
    """What is written with it can be read everywhere at once."""
    clock = Hand()
    here, there = ring(store), ring(store, clock)
    old = await newest(there)
    new_id = await here.rotate("acme")
    assert (await newest(here)).id == new_id
    assert (await named(here, old.id)).id == old.id
    assert (await newest(there)).id == old.id
    assert (await named(there, new_id)).id == new_id
    assert (await newest(there)).id == new_id


async def test_keys_that_were_replaced_long_ago_can_be_dropped(store: Store) -> None:
    """Those of the last while stay."""
    own = ring(store)
    first = (await newest(own)).id
    second = await own.rotate("acme", drop_after=3600.0)
    third = await own.rotate("acme", drop_after=0.0)
    [state] = [state async for state in own.states()]
    assert [id for id, _, _ in state.keys] == [third, second]
    found = await named(own, first)
    assert isinstance(found, DecodeError)


async def test_a_tenant_has_so_many_keys(store: Store) -> None:
    """A setting has a limit; the error says what to do."""
    own = ring(store)
    for _ in range(KEYS_MAX):
        await own.rotate("acme")
    with pytest.raises(InvalidInput, match="drop old ones with drop_after"):
        await own.rotate("acme")
    await own.rotate("acme", drop_after=0.0)


async def test_an_unknown_key_is_refused_for_good(store: Store) -> None:
    """Also the key of another tenant, which its id does not open."""
    own = ring(store)
    other = await newest(own, "globex")
    await newest(own)
    for id in ("nonsense", other.id):
        found = await named(own, id)
        assert isinstance(found, DecodeError)
        assert "is the key of another tenant" in str(found)


async def test_erased_keys_are_gone_everywhere(store: Store) -> None:
    """Here at once, elsewhere after a while; a new value makes no new key."""
    clock = Hand()
    here, there = ring(store), ring(store, clock)
    key = await newest(there)
    assert await here.erase("acme")
    assert not await here.erase("acme")
    assert isinstance(await newest(here), KeyErased)
    assert isinstance(await named(here, key.id), KeyErased)
    clock.now += KEYS_FRESH_S
    assert isinstance(await newest(there), KeyErased)
    assert isinstance(await named(there, key.id), KeyErased)
    assert isinstance(await newest(here, "globex"), Cipher)
    raw = await store.settings(under=name_of("acme"))
    assert b"wrapped" not in raw[0].value


async def test_an_erased_tenant_can_be_revived(store: Store) -> None:
    """Only if it is asked for; what was before stays gone."""
    own = ring(store)
    key = await newest(own)
    await own.erase("acme")
    with pytest.raises(KeyErased):
        await own.rotate("acme")
    new_id = await own.rotate("acme", revive=True)
    assert (await newest(own)).id == new_id
    assert isinstance(await named(own, key.id), DecodeError)


async def test_a_new_master_key_takes_over(store: Store) -> None:
    """After `rewrap` the old one is needed no more."""
    before = ring(store)
    key = await newest(before)
    await newest(before, "globex")
    between = ring(store, None, new=NEW, old=OLD)
    assert sorted([tenant async for tenant in between.rewrap()]) == ["acme", "globex"]
    assert [tenant async for tenant in between.rewrap()] == []
    after = ring(store, None, new=NEW)
    assert (await newest(after)).id == key.id
    assert (await newest(before)).id == key.id  # It has unwrapped it already.


async def test_a_rewrap_keeps_a_key_that_is_made_meanwhile(store: Store) -> None:
    """Its change is a compare-and-set too."""
    own = ring(store, None, new=NEW, old=OLD)
    await newest(ring(store))
    rewrapping = own.rewrap()
    new_id = await ring(store).rotate("acme")
    async for _ in rewrapping:
        pass
    assert (await newest(ring(store, None, new=NEW, old=OLD))).id == new_id


async def test_a_wrong_master_key_makes_values_wait(store: Store) -> None:
    """It is a mistake of a process, not of the data; it is read again at once."""
    await newest(ring(store))
    wrong = ring(store, None, old=NEW)
    assert isinstance(await newest(wrong), KeyUnavailable)
    assert isinstance(await newest(ring(store, None, other=OLD)), KeyUnavailable)


async def test_a_damaged_setting_makes_values_wait(store: Store) -> None:
    """Somebody can put it right from a backup; nothing overwrites it."""
    await store.settings([Put(name_of("acme"), b"nonsense", 0)])
    assert isinstance(await newest(ring(store)), KeyUnavailable)
    [setting] = await store.settings(under=name_of("acme"))
    assert setting.value == b"nonsense"


@pytest.mark.parametrize("tenant", ["a", "acme/eu", "1:a", "a/", "ü" * 20])
def test_names_of_settings_are_distinct(tenant: str) -> None:
    """Whatever is in the name of a tenant."""
    assert tenant_of(name_of(tenant)) == tenant
    assert tenant_of(f"{name_of(tenant)}x") is None
    assert tenant_of("holdfast.keys/x") is None


# -- keys of a callable ----------------------------------------------------------------------------


class Provider:
    """A key management service with a key for each tenant."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, bytes]] = {"acme": ("k1", b"a" * 32)}
        self.calls: list[tuple[str, str | None]] = []
        self.error: Exception | None = None

    async def __call__(self, tenant: str, key_id: str | None) -> Any:
        self.calls.append((tenant, key_id))
        if self.error is not None:
            raise self.error
        return self.keys.get(tenant)


async def test_answers_of_a_callable_are_remembered_for_a_while() -> None:
    """It is asked once for each key."""
    provider, clock = Provider(), Hand()
    own = GivenRing(provider, clock)
    for _ in range(5):
        assert (await newest(own)).id == "k1"
        assert (await named(own, "k1")).id == "k1"
    assert provider.calls == [("acme", None), ("acme", "k1")]
    clock.now += KEYS_FRESH_S
    await newest(own)
    assert len(provider.calls) == 3


def test_a_bounded_number_of_keys_is_remembered() -> None:
    """A fleet of tenants does not fill the memory: the oldest are read again."""
    found: Remembered[int, int] = Remembered(10)
    for number in range(50):
        found.keep(number, number)
    found.keep(45, 0)
    assert (len(found), found.get(39), found.get(40), found.get(45)) == (10, None, 40, 0)


async def test_a_callable_erases_by_returning_nothing() -> None:
    """New values are refused, and old ones are gone."""
    own = GivenRing(Provider(), Hand())
    assert isinstance(await newest(own, "gone"), KeyErased)
    assert isinstance(await named(own, "k1", "gone"), DecodeError)


async def test_a_callable_that_fails_makes_values_wait() -> None:
    """It is not asked again at once."""
    provider, clock = Provider(), Hand()
    provider.error = OSError("away")
    own = GivenRing(provider, clock)
    assert isinstance(await newest(own), KeyUnavailable)
    assert isinstance(await newest(own), KeyUnavailable)
    assert len(provider.calls) == 1
    provider.error = None
    clock.now += KEY_AGAIN_S
    assert isinstance(await newest(own), Cipher)


@pytest.mark.parametrize("answer", ["k1", ("k1",), ("k1", b"short"), (7, b"a" * 32), ("a:b", b"")])
async def test_a_callable_that_answers_nonsense_makes_values_wait(answer: Any) -> None:
    """The error says what it must return, and shows nothing of the answer."""
    own = GivenRing(lambda tenant, key_id: answer, Hand())
    found = await newest(own)
    assert isinstance(found, KeyUnavailable)
    assert "must return an id and 32 bytes" in str(found)


async def test_a_callable_must_return_the_key_that_was_asked_for() -> None:
    """Otherwise a value would be said to have been changed."""
    found = await named(GivenRing(Provider(), Hand()), "k2")
    assert isinstance(found, KeyUnavailable)
