"""Tiers of a store with shards: what every shard has of them, and what that costs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.copies import (
    FREE,
    PRO,
    Act,
    Kill,
    Killed,
    Steps,
    applied,
    assert_settled,
    assign,
    calls_of,
    claimed,
    delete_tier,
    deleting,
    in_pro,
    listed,
    one_of_each,
    opened,
    pending,
    prune,
    putting,
    quiet,
    reconcile,
    set_tier,
    sharded,
    version_of,
)
from tests.stores.redis.test_redis_commands import _commands

from holdfast.core.bounds import COPIES_MAX
from holdfast.core.errors import InvalidInput, StaleSetting, StoreUnavailable
from holdfast.core.tiers import name_of
from holdfast.store import Put
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import job, tenant_of

# -- one process -----------------------------------------------------------------------------------


async def test_a_put_that_returned_holds_in_every_shard(node: RedisNode) -> None:
    """P13: for the next claim; the setting is listed once, and its change is one event."""
    async with opened(sharded(node.fresh())) as store:
        tenants = await in_pro(store)
        await store.enqueue([job(f"j{n}", tenant=each) for each in tenants for n in range(5)])
        assert await claimed(store) == dict.fromkeys(tenants, 1)

        await set_tier(store, PRO, max_running=3)

        assert await claimed(store) == dict.fromkeys(tenants, 2)
        assert await claimed(store) == {}
        assert [each.name for each in await store.settings(under="")].count(name_of(PRO)) == 1
        events = (await store.events(None, 0, 100)).events
        assert [each.job_id for each in events].count(name_of(PRO)) == 2
        await assert_settled(store)


async def test_what_a_change_of_a_tier_costs_does_not_grow(node: RedisNode) -> None:
    """P19: three calls of home and one of each other shard, and the same commands."""
    costs = []
    for number in (8, 8, 400):  # The first has the server learn the scripts.
        async with opened(sharded(node.fresh()), ManualClock()) as store:
            await set_tier(store, PRO, max_running=1)
            names = [f"t{n}" for n in range(number)]
            for name in names:
                await assign(store, name, PRO)
            jobs = [job(f"j{n}", tenant=name) for name in names for n in range(2)]
            await store.enqueue(jobs)
            while await claimed(store, 1000):
                pass
            version = await version_of(store, name_of(PRO))
            calls = Steps(store, -1, quiet)
            node.ask("CONFIG", "RESETSTAT")
            await store.settings([Put(name_of(PRO), b'{"max_running":2}', version)])
            costs.append((calls.number, _commands(node)))

    assert costs[1] == costs[2]
    assert costs[1][0] == 3 + 3


async def test_refusals_are_those_of_one_shard(
    node: RedisNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: too many tiers, a stale version, an unknown tier, settings of two homes."""
    monkeypatch.setattr("holdfast.core.bounds.TIERS_MAX", 2)
    async with opened(sharded(node.fresh())) as store:
        await set_tier(store, "", max_running=3)
        await set_tier(store, PRO, max_running=3)
        tenants = one_of_each(store)

        with pytest.raises(InvalidInput, match="no more may be"):
            await set_tier(store, FREE, max_running=3)
        with pytest.raises(StaleSetting):
            await store.settings([Put(name_of(PRO), b"{}", 7)])
        with pytest.raises(StaleSetting):
            await store.settings([Put(name_of(PRO), None, 7)])
        for tenant in tenants:
            with pytest.raises(InvalidInput, match="Did you mean 'pro'"):
                await assign(store, tenant, "prp")
            mixed = [Put(name_of(PRO), b"{}", 1), Put(tenant_of(tenant).name, b"{}", 0)]
            with pytest.raises(InvalidInput):
                await store.settings(mixed)
        await assert_settled(store)


async def test_a_tier_in_use_is_kept_wherever_its_tenants_are(node: RedisNode) -> None:
    """P15: the error tells their number in all shards; without them it is deleted."""
    async with opened(sharded(node.fresh())) as store:
        tenants = await in_pro(store)
        with pytest.raises(InvalidInput, match="4 tenants are in 'pro'"):
            await delete_tier(store, PRO)
        await assert_settled(store)
        for tenant in tenants:
            with pytest.raises(InvalidInput, match="in 'pro'"):
                await delete_tier(store, PRO)
            await assign(store, tenant, None)

        await delete_tier(store, PRO)

        assert await listed(store) == {}
        await assert_settled(store)
        await set_tier(store, PRO, max_running=2)
        await assign(store, tenants[0], PRO)
        await assert_settled(store)


async def test_many_tiers_of_one_put_are_told_in_portions(node: RedisNode) -> None:
    """P15: also by who finds them pending, and when they are deleted together."""
    names = [name_of(f"tier{n:03}") for n in range(2 * COPIES_MAX + 50)]
    url = sharded(node.fresh())
    async with opened(url) as dying, opened(url) as store:
        kill = Kill(dying, 1)
        with pytest.raises(Killed):
            await dying.settings([Put(name, b"{}", 0) for name in names])
        assert kill.done
        assert len(await pending(store)) == len(names)
        await prune(store)
        assert len(await listed(store)) == len(names)
        await assert_settled(store)
        await assign(store, "a", "tier249")
        deletions = [Put(name, None, 1) for name in names]

        with pytest.raises(InvalidInput, match="1 tenant is in 'tier249'"):
            await store.settings(deletions)

        assert len(await listed(store)) == len(names)
        await assert_settled(store)
        await store.settings(deletions[:-1])
        assert await listed(store) == {names[-1]: {}}
        await assert_settled(store)


# -- a server that is lost -------------------------------------------------------------------------

REPLICATED = ("tiers", "closing", "copying", "settings", "setting_names", "heads")


class Backup:
    """What a replica of a shard had: a server that takes over goes on from there."""

    def __init__(self, node: RedisNode, tag: str) -> None:
        self._node = node
        self._kept = {f"{tag}:{name}": node.ask("DUMP", f"{tag}:{name}") for name in REPLICATED}

    def take_over(self) -> None:
        for key, value in self._kept.items():
            self._node.ask("DEL", key)
            if value is not None:
                self._node.ask("RESTORE", key, 0, value)


@pytest.mark.parametrize("shard", [0, 2])
@pytest.mark.parametrize("change", [putting(5), deleting])
async def test_shards_agree_again_after_one_lost_what_it_had_confirmed(
    node: RedisNode, shard: int, change: Act
) -> None:
    """P13: by the reconcile turn. What home has counts."""
    async with opened(sharded(node.fresh())) as store:
        await set_tier(store, PRO, max_running=1)
        backup = Backup(node, store._mine().tag(shard))
        await change(store)
        await set_tier(store, FREE, max_running=7)
        backup.take_over()
        before = await listed(store)

        await reconcile(store)

        assert await listed(store) == before
        await assert_settled(store)
        await set_tier(store, FREE, max_running=8)
        await assert_settled(store)


@pytest.mark.parametrize("shard", [0, 2])
async def test_a_put_counts_in_all_shards_although_one_lost_the_one_before(
    node: RedisNode, shard: int
) -> None:
    """P13: its stamp is later, also if home has forgotten what it gave."""
    async with opened(sharded(node.fresh())) as store:
        await set_tier(store, PRO, max_running=1)
        backup = Backup(node, store._mine().tag(shard))
        await set_tier(store, PRO, max_running=5)
        backup.take_over()

        await set_tier(store, PRO, max_running=9)

        await assert_settled(store)


async def test_a_shard_that_is_away_leaves_the_change_pending(node: RedisNode) -> None:
    """P13: the put fails, and is done everywhere when the shard is back."""
    url = sharded(node.fresh())
    async with opened(url) as store, opened(url) as other:
        await set_tier(store, PRO, max_running=1)
        away = store._mine().tag(3)

        async def script(name: str, tag: str, *args: Any, **options: Any) -> Any:
            if tag == away:
                raise StoreUnavailable(store="shard 3", why="told to fail")
            return await real(name, tag, *args, **options)

        real = calls_of(store, script)
        with pytest.raises(StoreUnavailable):
            await set_tier(store, PRO, max_running=2)
        assert await pending(other) == [PRO.encode()]
        assert (await applied(other, 2))[name_of(PRO)] == {"max_running": 2}
        await assign(store, one_of_each(store)[1], PRO)

        await prune(other)

        await assert_settled(other)
