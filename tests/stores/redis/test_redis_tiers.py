"""Tiers on Redis: what a change of one costs, and that it reaches all that it may have opened."""

from __future__ import annotations

from typing import Any

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.test_redis_commands import _commands
from tests.stores.redis.test_redis_flat import filled

from holdfast.core.bounds import CLAIM_MAX, REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Lease
from holdfast.core.rate import Rate, rate
from holdfast.core.tiers import LimitRules
from holdfast.store import Watch
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import AUDIO, MAIL, ids, job, tenant_of
from holdfast.testing.contract.platform import shares
from holdfast.testing.contract.tiers import FREE, PRO, layer
from holdfast.testing.contract.wait import asleep

FEW, MANY = REPAIR_MAX + 50, 4 * REPAIR_MAX
"""A claim looks at REPAIR_MAX tenants first: it has a full portion to look at in both cases."""
CLAIMS_MAX = 10


async def add(bench: Bench, names: list[str], jobs: int = 2, **options: Any) -> None:
    new = [job(f"j{n}", tenant=name, **options) for name in names for n in range(jobs)]
    for start in range(0, len(new), 900):
        await bench.add(*new[start : start + 900])


async def at_limit(bench: Bench, tier: str, number: int) -> list[str]:
    """So many tenants of a tier with one job each running, which is all that it lets them."""
    await layer(bench, tier, max_running=1)
    names = [f"{tier}{n}" for n in range(number)]
    for name in names:
        await bench.configure(tenant_of(name), tier=tier)
    await add(bench, names)
    while await bench.claim(CLAIM_MAX):
        pass
    return names


async def all_of(bench: Bench, **options: Any) -> list[Lease]:
    """What claims give, one after the other, until callers would wait."""
    found: list[Lease] = []
    for _ in range(20):
        found += await bench.claim(CLAIM_MAX, **options)
    return found


# -- what it costs ---------------------------------------------------------------------------------


async def test_a_change_of_a_tier_and_the_next_claim_cost_the_same_for_many_tenants(
    node: RedisNode,
) -> None:
    """P19: one write, and a claim that finds enough in the first portion."""
    found = []
    for number in (FEW, FEW, MANY):  # The first has the server learn the scripts.
        async with filled(node, 0, 0, None) as bench:
            await at_limit(bench, PRO, number)
            node.ask("CONFIG", "RESETSTAT")
            await layer(bench, PRO, max_running=2)
            changed = _commands(node)
            assert len(await bench.claim(10)) == 10
            found.append((changed, _commands(node) - changed))

    assert found[1][0] == found[2][0]
    assert abs(found[1][1] - found[2][1]) <= 10


async def test_a_raised_tier_does_not_wade_through_the_others(bench: Bench) -> None:
    """P19: the next claim gives the work of five tenants, beside hundreds that rest."""
    await at_limit(bench, FREE, 300)
    few = await at_limit(bench, PRO, 5)

    await layer(bench, PRO, max_running=2)

    assert sorted(shares(await bench.claim(10))) == sorted(few)


@pytest.mark.parametrize("claims", [{"tenants": ("pro790",)}, {"queues": (AUDIO,)}], ids=str)
async def test_a_claim_that_names_what_it_wants_finds_it_under_a_raised_tier(
    bench: Bench, claims: dict[str, Any]
) -> None:
    """P13: at once, also if it comes after hundreds of others."""
    await at_limit(bench, PRO, MANY)
    await bench.put("there", tenant="pro790", queue=AUDIO)

    await layer(bench, PRO, max_running=2)

    assert "pro790" in shares(await bench.claim(1, **claims))


async def test_a_claim_for_one_tenant_looks_at_no_other_for_it(
    bench: Bench, node: RedisNode
) -> None:
    """P19: more than the one portion that each claim looks at would be of no use to it."""
    await at_limit(bench, PRO, MANY)
    await layer(bench, PRO, max_running=2)
    await bench.claim(1, tenants=("pro7",))

    node.ask("CONFIG", "RESETSTAT")
    assert await bench.claim(10, tenants=("nobody",)) == []
    assert _commands(node) < 25 * REPAIR_MAX


@pytest.mark.parametrize("fields", [{"weight": 3, "max_running": 1}, {"max_queued": 9}], ids=str)
async def test_what_opens_nothing_is_not_looked_for(
    bench: Bench, node: RedisNode, fields: dict[str, Any]
) -> None:
    """P19: neither by claims nor by those who wait, if only a weight or a cap changes."""
    await layer(bench, "", max_running=1)
    await at_limit(bench, PRO, 20)

    await layer(bench, PRO, **fields)

    assert await looks(bench, node) == []


async def looks(bench: Bench, node: RedisNode) -> list[bytes]:
    """The tiers whose tenants claims look at again."""
    assert isinstance(bench.store, RedisStore)
    found: list[bytes] = node.ask("ZRANGE", f"{{{bench.store.options.prefix}0}}:looks", 0, -1)
    return found


# -- what it reaches -------------------------------------------------------------------------------


async def test_all_groups_of_a_tenant_come_under_its_new_tier(bench: Bench) -> None:
    """P13: in portions, since there may be thousands."""
    number = 2 * REPAIR_MAX + 7
    await layer(bench, FREE, group=LimitRules(max_running=1))
    await layer(bench, PRO, group=LimitRules(max_running=2))
    await bench.configure(tenant_of(), tier=FREE)
    for group in range(number):
        await bench.put(*(f"{group}-{n}" for n in range(3)), group=f"g{group}")
    assert len(await all_of(bench)) == number

    await bench.configure(tenant_of(), tier=PRO)

    assert len(await all_of(bench)) == number


async def test_all_queues_of_a_tenant_come_under_a_raised_default(bench: Bench) -> None:
    """P13: as its groups do."""
    number = 2 * REPAIR_MAX + 7
    await layer(bench, "", queue=LimitRules(max_running=1))
    for queue in range(number):
        await bench.put(f"{queue}-a", f"{queue}-b", queue=f"q{queue}")
    assert len(await all_of(bench)) == number

    await layer(bench, "", queue=LimitRules(max_running=2))

    assert len(await all_of(bench)) == number


async def test_a_tenant_with_many_groups_does_not_delay_the_others(bench: Bench) -> None:
    """P19: it is looked at in portions, and the others of its tier between them."""
    await layer(bench, "", group=LimitRules(max_running=1))
    for group in range(3 * REPAIR_MAX):
        await bench.put(f"{group}-a", f"{group}-b", group=f"g{group}", queue=AUDIO)
    await bench.put("a", "b", tenant="zoe", group="g")
    while await bench.claim(CLAIM_MAX):
        pass

    await layer(bench, "", group=LimitRules(max_running=2))

    found = [await bench.claim(1, queues=(MAIL,)) for _ in range(2)]
    assert [shares(each) for each in found] == [{"zoe": 1}, {}]


async def test_what_a_default_kept_waiting_goes_on_in_order_when_it_is_gone(bench: Bench) -> None:
    """P13: thousands of jobs of one group, of which few enter their line at a time."""
    number = 2 * CLAIM_MAX + 500
    await layer(bench, "", group=LimitRules(max_running=1))
    for start in range(0, number, 500):
        await bench.put(*(f"{n:04}" for n in range(start, start + 500)), group="g")
    first = await bench.claim(10)
    await layer(bench, "")
    await bench.put("last", group="g")

    found = ids(first + await all_of(bench))

    assert found == [*(f"{n:04}" for n in range(number)), "last"]


async def test_a_lowered_default_for_groups_hides_no_other_job(
    bench: Bench, node: RedisNode
) -> None:
    """P19: thousands of jobs of a group that is full now leave the line in portions."""
    for start in range(0, 3000, 500):
        await bench.put(*(f"a{n:04}" for n in range(start, start + 500)), group="full")
    await bench.put("other", group="free")
    await layer(bench, "", group=LimitRules(max_running=1))

    found, most = [], 0
    for _ in range(CLAIMS_MAX):
        node.ask("CONFIG", "RESETSTAT")
        found += ids(await bench.claim(10))
        most = max(most, _commands(node))

    assert found == ["a0000", "other"]
    assert most < 10 * CLAIM_MAX


async def test_a_lowered_tier_hides_no_other_tenant(bench: Bench, node: RedisNode) -> None:
    """P19: thousands of tenants that are full now leave the turns in portions."""
    names = [f"t{n:04}" for n in range(2 * REPAIR_MAX * REPAIR_PASSES_MAX)]
    await layer(bench, "", max_running=1)
    await add(bench, names)
    while await bench.claim(CLAIM_MAX):
        pass
    await layer(bench, "", max_running=2)
    while await looks(bench, node):
        await bench.claim(1)
    await add(bench, ["other"], jobs=1)
    await layer(bench, "", max_running=1)

    found, most = [], 0
    for _ in range(CLAIMS_MAX):
        node.ask("CONFIG", "RESETSTAT")
        found += await bench.claim(1)
        most = max(most, _commands(node))

    assert shares(found) == {"other": 1}
    assert most < 25 * REPAIR_MAX * REPAIR_PASSES_MAX


async def test_lines_of_a_full_tenant_come_back_when_the_default_is_gone(bench: Bench) -> None:
    """P13: also for claims that name their queue."""
    await layer(bench, "", max_running=1)
    for queue in (MAIL, AUDIO):
        await bench.put(f"{queue}-a", f"{queue}-b", queue=queue)
    await bench.one()
    for queue in (MAIL, AUDIO):
        assert await bench.claim(5, queues=(queue,)) == []

    await layer(bench, "")
    await bench.put("new", queue="new")

    found = [
        each for queue in (MAIL, AUDIO, "new") for each in await bench.claim(5, queues=(queue,))
    ]
    assert len(found) == 4


async def test_what_is_seen_between_a_change_and_a_claim_is_found_after_the_next(
    bench: Bench,
) -> None:
    """P13: a line that an enqueue met without room is still listed for the next change."""
    await layer(bench, "", max_running=8, queue=LimitRules(max_running=1))
    await bench.put("a", "b", "c")
    assert len(await bench.claim(10)) == 1
    await layer(bench, "", max_running=9, queue=LimitRules(max_running=1))
    await bench.put("d")
    assert await bench.claim(10) == []

    await layer(bench, "", max_running=9, queue=LimitRules(max_running=2))

    assert len(await bench.claim(10)) == 1


async def test_a_bucket_counts_from_the_change_of_its_tier_not_of_others(bench: Bench) -> None:
    """P13: a bucket that filled under its new rate is not emptied by what happens elsewhere."""
    await layer(bench, FREE, queue=LimitRules(rate=rate("2/h")))
    await layer(bench, PRO, queue=LimitRules(rate=Rate(1, SECOND, 4)))
    await bench.configure(tenant_of(), tier=FREE)
    await bench.put(*(f"j{n}" for n in range(20)))
    assert len(await bench.claim(10)) == 2

    await bench.configure(tenant_of(), tier=PRO)
    assert await bench.claim(10) == []
    bench.clock.advance(3)
    await layer(bench, FREE, queue=LimitRules(rate=rate("1/h")))

    assert len(await bench.claim(10)) == 3


async def test_who_waits_looks_again_while_something_may_have_room(bench: Bench) -> None:
    """P10: a claim that stopped at its bound is followed by another."""
    await at_limit(bench, PRO, 3 * REPAIR_MAX)
    await layer(bench, PRO, max_running=2)
    await bench.claim(1)

    async with asleep(bench, Watch(queues=("nothing",))) as sleeper:
        pass

    assert sleeper.done()


# -- what is stored --------------------------------------------------------------------------------

LASTING = {"heads", "meta", "settings", "ruled", "events", "tails", "tiers"}


async def test_tiers_that_are_gone_leave_nothing_behind(bench: Bench, node: RedisNode) -> None:
    """P19: no list of what had no room, and nothing more to read for a claim."""

    async def cost(id: str) -> int:
        node.ask("CONFIG", "RESETSTAT")
        await bench.put(id, tenant="other")
        for lease in await bench.claim(10):
            await bench.end(lease, Completed())
        return _commands(node)

    await cost("first")
    before = await cost("second")
    await layer(bench, "", queue=LimitRules(max_running=1), group=LimitRules(max_running=1))
    await at_limit(bench, PRO, 5)
    await bench.put("a", "b", group="g")
    await bench.put("c", "d", queue=AUDIO)
    await all_of(bench)
    for name in [f"{PRO}{n}" for n in range(5)]:
        await bench.configure(tenant_of(name))
    await layer(bench, "")
    await layer(bench, PRO)
    await all_of(bench)
    after = await cost("third")
    bench.clock.advance(120)  # All leases expire.
    for lease in await all_of(bench):
        await bench.end(lease, Completed())
    bench.clock.advance(24 * 3600)
    for _ in range(2):
        await bench.store.prune(1000, 0)

    assert after == before
    assert isinstance(bench.store, RedisStore)
    left = node.ask("KEYS", f"{{{bench.store.options.prefix}*")
    names = {key.decode().partition("}:")[2] for key in left if node.ask("PTTL", key) < 0}
    assert names <= LASTING
