"""Tiers of a store with shards: processes that die and meet between any two of their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.copies import (
    STEPS_MAX,
    Kill,
    Killed,
    Steps,
    applied,
    assert_settled,
    assign,
    delete_tier,
    listed,
    one_of_each,
    opened,
    pending,
    quiet,
    set_tier,
    sharded,
    tier_of,
    version_of,
)
from tests.stores.redis.test_redis_commands import _commands

from holdfast.core.errors import InvalidInput, StaleSetting, StoreUnavailable
from holdfast.core.tiers import name_of
from holdfast.store import Claim, Put
from holdfast.stores.redis.store import RedisStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import LEASE, job, tenant_of
from holdfast.testing.contract.platform import shares

PRO, FREE = "pro", "free"

Act = Callable[[RedisStore], Awaitable[None]]
"""An ordinary call of another process, after which all shards agree."""


async def prune(store: RedisStore) -> None:
    await store.prune(10, 0)


async def reconcile(store: RedisStore) -> None:
    await store.count(None, recount=True)


async def change_another(store: RedisStore) -> None:
    await set_tier(store, "other", weight=2)


async def reopen(store: RedisStore) -> None:
    async with opened(f"redis://127.0.0.1:{store.options.nodes[0][1]}/0{_query(store)}"):
        pass


def _query(store: RedisStore) -> str:
    return f"?prefix={store.options.prefix}"


_nonces = 0


async def claimed(store: RedisStore, limit: int = 100) -> dict[str, int]:
    """How many jobs of each tenant a claim gives."""
    global _nonces
    _nonces += 1
    one = Claim(worker="w", nonce=f"n{_nonces}", limit=limit, lease_us=LEASE)
    return dict(shares(await store.claim(one)))


# -- one process -----------------------------------------------------------------------------------


async def test_a_put_that_returned_holds_in_every_shard(node: RedisNode) -> None:
    """P13: for the next claim; the setting is listed once, and its change is one event."""
    async with opened(sharded(node.fresh())) as store:
        await set_tier(store, PRO, max_running=1)
        tenants = one_of_each(store)
        for tenant in tenants:
            await assign(store, tenant, PRO)
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
        await set_tier(store, PRO, max_running=1)
        tenants = one_of_each(store)
        for tenant in tenants:
            await assign(store, tenant, PRO)
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


# -- a process that dies ---------------------------------------------------------------------------


@pytest.mark.parametrize("act", [prune, reconcile, change_another, reopen])
async def test_a_change_cut_off_anywhere_is_in_all_shards_or_none(
    node: RedisNode, act: Act
) -> None:
    """P13: after the next ordinary call of anybody."""
    for at in range(STEPS_MAX):
        url = sharded(node.fresh())
        async with opened(url) as dying, opened(url) as other:
            await set_tier(other, PRO, max_running=1)
            tenants = one_of_each(other)
            for tenant in tenants:
                await assign(other, tenant, PRO)
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


async def interleaved(
    node: RedisNode, one: Act, other: Act, check: Callable[[RedisStore, Any, Any], Awaitable[None]]
) -> None:
    """Does one act whole before each call of the other, and checks what came of both."""
    for at in range(STEPS_MAX):
        url = sharded(node.fresh())
        async with opened(url) as first, opened(url) as second, opened(url) as third:
            await set_tier(third, PRO, max_running=1)
            told: list[Any] = [None, None]

            async def act(place: int, what: Act, store: RedisStore) -> None:
                try:
                    await what(store)
                except (InvalidInput, StaleSetting) as error:
                    told[place] = error  # noqa: B023

            steps = Steps(first, at, lambda: act(1, other, second))  # noqa: B023
            await act(0, one, first)
            if steps.number <= at:
                return
            await check(third, *told)
            await assert_settled(third)
    raise AssertionError("it does not end")


def putting(most: int) -> Act:
    async def put(store: RedisStore) -> None:
        await set_tier(store, PRO, max_running=most)

    return put


def assigning(shard: int) -> Act:
    async def put(store: RedisStore) -> None:
        await assign(store, one_of_each(store)[shard], PRO)

    return put


async def deleting(store: RedisStore) -> None:
    await delete_tier(store, PRO)


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

    acts = (putting(2), deleting)
    await interleaved(node, *(reversed(acts) if turned else acts), check)


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

    acts = (deleting, assigning(shard))
    await interleaved(node, *(reversed(acts) if turned else acts), check)


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
    """P13: by the reconcile turn. What home has counts; a new put counts even before."""
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


async def test_a_shard_that_is_away_leaves_the_change_pending(node: RedisNode) -> None:
    """P13: the put fails, and is done everywhere when the shard is back."""
    url = sharded(node.fresh())
    async with opened(url) as store, opened(url) as other:
        await set_tier(store, PRO, max_running=1)
        away = store._mine().tag(3)
        real = store.links.script

        async def script(name: str, tag: str, *args: Any) -> Any:
            if tag == away:
                raise StoreUnavailable(store="shard 3", why="told to fail")
            return await real(name, tag, *args)

        store.links.script = script  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await set_tier(store, PRO, max_running=2)
        assert await pending(other) == [PRO.encode()]
        assert (await applied(other, 2))[name_of(PRO)] == {"max_running": 2}
        await assign(store, one_of_each(store)[1], PRO)

        await prune(other)

        await assert_settled(other)
