"""A claim that left the whole store full tells its sleeper so; room that comes is heard of.

On the engines' own clocks, since a store asks again before it sleeps where a test has the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from tests.stores.test_limit_races import Make

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Failed, Lease
from holdfast.core.lifecycle import decide
from holdfast.core.scope import PLATFORM, ScopeSettings, encode
from holdfast.dispatch import name_of
from holdfast.store import Claim, Put, Ref, Store, Watch
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, job

BOUND_S = 20.0
LONG_S = 60.0
"""No sleeper sleeps to its end."""

Way = Callable[[Store, Lease], Awaitable[object]]


async def claim(store: Store, lease_us: int = LEASE) -> list[Lease]:
    wish = Claim(worker="w", nonce=uuid4().hex, limit=5, lease_us=lease_us)
    return await store.claim(wish)


async def next_lease(store: Store) -> Lease:
    """Claims as a worker does: after a wait, whenever there was nothing."""
    async with asyncio.timeout(BOUND_S):
        while True:
            leases = await claim(store)
            if leases:
                return leases[0]
            await store.wait(Watch(), LONG_S)


async def full(store: Store, lease_us: int = LEASE) -> Lease:
    """Two jobs and room for one, which is taken, by a process that listens."""
    if not store.capabilities.platform:
        pytest.skip(f"{name_of(store)} keeps no limits of the platform")
    await store.settings([Put(PLATFORM.name, encode(ScopeSettings(max_running=1)), 0)])
    await store.enqueue([job("a"), job("b", tenant=GLOBEX)])
    await store.wait(Watch(), LONG_S)
    [lease] = await claim(store, lease_us)
    return lease


async def completes(store: Store, lease: Lease) -> None:
    [acked] = await store.ack([decide(Completed(), lease.job, lease.token, 0.0)])
    assert acked.error is None


async def fails(store: Store, lease: Lease) -> None:
    [acked] = await store.ack([decide(Failed("no", retryable=False), lease.job, lease.token, 0.0)])
    assert acked.error is None


async def cancels(store: Store, lease: Lease) -> None:
    [answer] = await store.cancel([Ref(lease.job.tenant, lease.job.id)])
    assert answer.canceled


async def widens(store: Store, lease: Lease) -> None:
    await store.settings([Put(PLATFORM.name, encode(ScopeSettings(max_running=2)), 1)])


each_way = pytest.mark.parametrize("way", [completes, fails, cancels, widens])


@each_way
async def test_room_that_another_process_makes_wakes_the_sleeper(make: Make, way: Way) -> None:
    """P10: who was told that the store is full does not sleep over the room that comes."""
    store, other = make("full", None), make("full", None)
    await store.open()
    await other.open()
    try:
        lease = await full(store)
        if not store.capabilities.shared:
            other = store
        sleeper = asyncio.create_task(next_lease(store))
        await asyncio.wait([sleeper], timeout=0.1)
        assert not sleeper.done()
        await way(other, lease)

        assert (await sleeper).job.id != lease.job.id
    finally:
        await store.close()
        await other.close()


@each_way
async def test_room_made_before_the_wait_is_not_slept_over(make: Make, way: Way) -> None:
    """P10: what was told is old by then, and the store is asked again."""
    store = make("full", None)
    await store.open()
    try:
        lease = await full(store)
        await way(store, lease)
        async with asyncio.timeout(BOUND_S):
            await store.wait(Watch(), LONG_S)

        assert (await next_lease(store)).job.id != lease.job.id
    finally:
        await store.close()


async def test_a_full_store_wakes_its_sleeper_when_a_lease_lapses(make: Make) -> None:
    """P10: a claim tells until when the store is full if no job ends."""
    store = make("full", None)
    await store.open()
    try:
        lost = await full(store, lease_us=SECOND // 5)

        found = await next_lease(store)
        assert found.job.tenant in (ACME, GLOBEX)
        assert found.token != lost.token
    finally:
        await store.close()
