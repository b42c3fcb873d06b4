"""Tiers of a store with shards, changed by several processes, of which some are killed."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.copies import (
    applied,
    assert_settled,
    delete_tier,
    listed,
    opened,
    sharded,
    tier_of,
)
from tests.stores.redis.copies_process import tenants_of

from holdfast.core.errors import InvalidInput
from holdfast.core.tiers import name_of

ROUNDS = 200
KILLS = {"a": 0, "b": 2, "c": 2}
"""How many processes of each family of tenants are killed."""
BOUND_S = 60.0


async def _start(url: str, family: str, seed: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.stores.redis.copies_process"),
        *(url, family, str(seed), str(ROUNDS)),
        stdout=asyncio.subprocess.PIPE,
    )


async def _said(child: asyncio.subprocess.Process, most: int) -> Counter[str]:
    """Up to so many of its lines, or all until it ends."""
    assert child.stdout is not None
    found: Counter[str] = Counter()
    while found.total() < most and (line := await child.stdout.readline()):
        found[line.decode().strip()] += 1
    return found


async def _live(url: str, family: str, kills: int) -> Counter[str]:
    """One process after the other; the last one ends by itself."""
    chance, said = random.Random(family), Counter[str]()
    for number in range(kills):
        child = await _start(url, family, number)
        said += await _said(child, chance.randint(20, 120))
        child.kill()
        await child.wait()
    child = await _start(url, family, kills)
    said += await _said(child, ROUNDS)
    assert await child.wait() == 0
    return said


async def test_processes_that_change_tiers_and_are_killed_leave_all_shards_agreed(
    node: RedisNode,
) -> None:
    """P13, P15: after one turn of upkeep, and no tenant is in a tier that is gone."""
    url = sharded(node.fresh())
    async with opened(url) as store, asyncio.timeout(BOUND_S):
        said = await asyncio.gather(*(_live(url, *each) for each in KILLS.items()))
        await store.prune(10, 0)

        assert not any(each["broken"] for each in said)
        assert all(each["done"] > ROUNDS // 4 for each in said)
        await assert_settled(store)
        tiers = [await tier_of(store, tenant) for family in KILLS for tenant in tenants_of(family)]
        known = await listed(store)
        assert {name_of(tier) for tier in tiers if tier} <= known.keys()
        for name in known:
            tier = name.removeprefix(name_of(""))
            if tier in tiers:
                with pytest.raises(InvalidInput, match=rf"^tier: {tiers.count(tier)} tenant"):
                    await delete_tier(store, tier)
            else:
                await delete_tier(store, tier)
        left = {name_of(tier) for tier in tiers if tier}
        assert [(await applied(store, n)).keys() for n in range(store.shards)] == (
            [left] * store.shards
        )
