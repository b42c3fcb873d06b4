"""Tiers of a store with shards: processes that die and meet between any two of their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.copies import (
    PRO,
    STEPS_MAX,
    Act,
    Kill,
    Killed,
    Steps,
    assert_settled,
    assign,
    assigning,
    change_another,
    claimed,
    deleting,
    in_pro,
    listed,
    one_of_each,
    opened,
    prune,
    putting,
    reconcile,
    reopen,
    set_tier,
    sharded,
    tier_of,
    version_of,
)

from holdfast.core.errors import InvalidInput, StaleSetting
from holdfast.core.tiers import name_of
from holdfast.store import Put
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.builders import job

# -- a process that dies ---------------------------------------------------------------------------


@pytest.mark.parametrize("act", [prune, reconcile, change_another, reopen])
async def test_a_change_cut_off_anywhere_is_in_all_shards_or_none(
    node: RedisNode, act: Act
) -> None:
    """P13: after the next ordinary call of anybody."""
    for at in range(STEPS_MAX):
        url = sharded(node.fresh())
        async with opened(url) as dying, opened(url) as other:
            tenants = await in_pro(other)
            await other.enqueue([job(f"j{n}", tenant=each) for each in tenants for n in range(5)])
            assert len(await claimed(other)) == len(tenants)
            name, version = name_of(PRO), await version_of(other, name_of(PRO))
            kill = Kill(dying, at)
            with suppress(Killed):
                await dying.settings([Put(name, b'{"max_running":3}', version)])

            await act(other)

            is_new = await version_of(other, name) > version
            assert await claimed(other) == (dict.fromkeys(tenants, 2) if is_new else {})
            assert is_new == (at > 0)
            await assert_settled(other)
        if not kill.done:
            assert at == 6
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("act", [prune, reopen])
@pytest.mark.parametrize("used", [None, 0, 3])
async def test_a_deletion_cut_off_anywhere_is_whole_or_undone(
    node: RedisNode, used: int | None, act: Act
) -> None:
    """P15: with a tenant in the tier, in home or elsewhere, it is undone."""
    for at in range(STEPS_MAX):
        url = sharded(node.fresh())
        async with opened(url) as dying, opened(url) as other:
            await set_tier(other, PRO, max_running=1)
            tenants = one_of_each(other)
            if used is not None:
                await assign(other, tenants[used], PRO)
            version = await version_of(other, name_of(PRO))
            kill = Kill(dying, at)
            with suppress(Killed, InvalidInput):
                await dying.settings([Put(name_of(PRO), None, version)])

            await act(other)

            await assert_settled(other)
            exists = bool(await listed(other))
            assert exists or used is None
            for tenant in tenants:
                if exists:
                    await assign(other, tenant, PRO)
                else:
                    with pytest.raises(InvalidInput, match="no tier"):
                        await assign(other, tenant, PRO)
        if not kill.done:
            assert exists == (used is not None)
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("shard", [0, 2])
async def test_a_tenant_is_put_into_a_tier_that_somebody_left_closed(
    node: RedisNode, shard: int
) -> None:
    """P15: without upkeep; what is listed can be used, what is not is unknown."""
    for at in range(STEPS_MAX):
        url = sharded(node.fresh())
        async with opened(url) as dying, opened(url) as other:
            tenant = one_of_each(other)[shard]
            await set_tier(other, PRO, max_running=1)
            version = await version_of(other, name_of(PRO))
            kill = Kill(dying, at)
            with suppress(Killed):
                await dying.settings([Put(name_of(PRO), None, version)])

            exists = bool(await listed(other))
            if exists:
                await assign(other, tenant, PRO)
            else:
                with pytest.raises(InvalidInput, match="no tier"):
                    await assign(other, tenant, PRO)
            assert bool(await listed(other)) == exists
        if not kill.done:
            return
    raise AssertionError("it does not end")


async def test_a_tier_that_is_listed_can_be_used_in_every_shard(node: RedisNode) -> None:
    """P15: also if who made it died before all shards knew."""
    for at in range(1, STEPS_MAX):
        url = sharded(node.fresh())
        async with opened(url) as dying, opened(url) as other:
            kill = Kill(dying, at)
            with suppress(Killed):
                await dying.settings([Put(name_of(PRO), b"{}", 0)])
            for tenant in reversed(one_of_each(other)):
                await assign(other, tenant, PRO)
            await prune(other)
            await assert_settled(other)
        if not kill.done:
            return
    raise AssertionError("it does not end")


# -- two processes ---------------------------------------------------------------------------------


async def tell(told: list[Any], place: int, act: Act, store: RedisStore) -> None:
    try:
        await act(store)
    except (InvalidInput, StaleSetting) as error:
        told[place] = error


async def interleaved(
    node: RedisNode, one: Act, other: Act, check: Callable[..., Awaitable[None]]
) -> None:
    """Does one act whole before each call of the other, and checks what came of both."""
    for at in range(STEPS_MAX):
        url = sharded(node.fresh())
        async with opened(url) as first, opened(url) as second, opened(url) as third:
            await set_tier(third, PRO, max_running=1)
            told: list[Any] = [None, None]
            steps = Steps(first, at, partial(tell, told, 1, other, second))
            await tell(told, 0, one, first)
            if steps.number <= at:
                return
            await check(third, *told)
            await assert_settled(third)
    raise AssertionError("it does not end")


async def test_of_two_puts_every_shard_keeps_the_last(node: RedisNode) -> None:
    """P13: a copy that comes late replaces no newer one."""

    async def check(store: RedisStore, first: Any, second: Any) -> None:
        assert first is None or isinstance(first, StaleSetting)
        assert second is None
        assert (await listed(store))[name_of(PRO)] in ({"max_running": 2}, {"max_running": 3})
        if first is not None:
            assert (await listed(store))[name_of(PRO)] == {"max_running": 3}

    await interleaved(node, putting(2), putting(3), check)


@pytest.mark.parametrize("turned", [False, True])
async def test_of_a_put_and_a_deletion_one_is_stale_or_both_are_done(
    node: RedisNode, turned: bool
) -> None:
    """P15: never half of each."""

    async def check(store: RedisStore, *told: Any) -> None:
        put, deletion = reversed(told) if turned else told
        assert not (put and deletion)
        exists = bool(await listed(store))
        if put:
            assert isinstance(put, StaleSetting)
            assert not exists
        if deletion:
            assert isinstance(deletion, StaleSetting)
            assert exists

    put = putting(2)
    first, second = (deleting, put) if turned else (put, deleting)
    await interleaved(node, first, second, check)


async def test_of_two_deletions_one_is_done(node: RedisNode) -> None:
    """P15: the other is stale, or meets a tier that is gone."""

    async def check(store: RedisStore, first: Any, second: Any) -> None:
        assert await listed(store) == {}
        assert second is None
        assert first is None or isinstance(first, StaleSetting)

    await interleaved(node, deleting, deleting, check)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shard", [0, 1, 3])
async def test_no_tenant_is_in_a_tier_that_is_deleted(
    node: RedisNode, shard: int, turned: bool
) -> None:
    """P15: one of both is refused, with the reason that holds."""

    async def check(store: RedisStore, *told: Any) -> None:
        deletion, put = reversed(told) if turned else told
        tier = await tier_of(store, one_of_each(store)[shard])
        assert (put is None) == (tier == PRO)
        assert (deletion is None) == (await listed(store) == {})
        assert (put is None) != (deletion is None)
        if put is not None:
            assert "no tier" in str(put)
        else:
            assert "in use" in str(deletion) or "1 tenant is in" in str(deletion)

    put = assigning(shard)
    first, second = (put, deleting) if turned else (deleting, put)
    await interleaved(node, first, second, check)


@pytest.mark.parametrize("dying", [putting(3), deleting])
async def test_what_a_dead_process_left_is_not_forgotten_by_another(
    node: RedisNode, dying: Act
) -> None:
    """P13: another change of the tier, at the same time, does not take it for its own."""

    async def killed(store: RedisStore) -> None:
        Kill(store, 2)  # After it has asked for the version and told home.
        with pytest.raises(Killed):
            await dying(store)

    async def check(store: RedisStore, *told: Any) -> None:
        await prune(store)

    await interleaved(node, putting(2), killed, check)
