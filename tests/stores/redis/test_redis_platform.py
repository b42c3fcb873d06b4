"""What limits of the platform cost on Redis, and what they leave behind."""

from __future__ import annotations

import asyncio

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.test_redis_commands import _commands
from tests.stores.redis.test_redis_flat import FEW, MANY, filled

from holdfast.core.job import Completed
from holdfast.core.lifecycle import completion
from holdfast.core.scope import PLATFORM, Scope
from holdfast.store import Watch
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import MAIL, job, over_all, type_of

AT_LIMITS = ("aside", "typed", "ready", "kept", "running")
"""How the names of keys begin in which something waits or is counted."""


async def fill(bench: Bench, tenants: int, queues: int) -> None:
    jobs = [
        job(f"{queue}-{n}", tenant=f"t{tenant}", queue=f"q{queue}" if queue else MAIL)
        for tenant in range(tenants)
        for queue in range(queues)
        for n in range(3)
    ]
    for start in range(0, len(jobs), 900):
        await bench.add(*jobs[start : start + 900])


@pytest.mark.parametrize(
    ("scope", "tenants", "queues"),
    [(over_all(MAIL), MANY, 1), (type_of("send"), MANY, 1), (type_of("send"), 1, MANY)],
    ids=str,
)
async def test_a_place_that_comes_free_costs_the_same_however_many_wait(
    node: RedisNode, scope: Scope, tenants: int, queues: int
) -> None:
    """P19: of many tenants at a limit of the platform, or many queues of one."""
    found = []
    for few in (FEW, FEW, MANY):  # The first has the server learn the scripts.
        async with filled(node, 0, 0, None) as bench:
            await bench.configure(scope, max_running=5)
            await fill(bench, min(tenants, few), min(queues, few))
            leases = await bench.claim(5)
            for _ in range(6):
                assert await bench.claim(1000) == []
            node.ask("CONFIG", "RESETSTAT")
            await bench.end(leases[0], Completed())
            assert len(await bench.claim(10)) == 1
            found.append(_commands(node))

    assert found[2] <= found[1] + 10


async def test_limits_that_are_gone_leave_nothing_behind(bench: Bench, node: RedisNode) -> None:
    """P19: a store that had limits of the platform costs as much as one that never had any."""

    async def cost() -> int:
        node.ask("CONFIG", "RESETSTAT")
        await bench.put(f"{bench.clock.now()}", tenant="other")
        await bench.claim(10)
        bench.clock.advance(1)
        return _commands(node)

    await cost()
    before = await cost()
    await fill(bench, 10, 2)
    seen: set[str] = set()
    for scope in (type_of("send"), over_all(MAIL), PLATFORM):
        await bench.configure(scope, max_running=1)
        await bench.claim(100)
    for scope in (PLATFORM, type_of("send"), over_all(MAIL)):
        await bench.configure(scope)
        await bench.claim(5)
        seen |= at_limits(bench, node)
    while await bench.claim(5):
        pass

    assert seen == set(AT_LIMITS)
    assert at_limits(bench, node) == set()
    assert await cost() == before


def at_limits(bench: Bench, node: RedisNode) -> set[str]:
    """Which of these keys there are."""
    assert isinstance(bench.store, RedisStore)
    found = node.ask("KEYS", f"{{{bench.store.options.prefix}*")
    names = [key.decode().partition("}:")[2] for key in found]
    return {each for each in AT_LIMITS if any(name.startswith(each) for name in names)}


async def test_a_store_of_several_shards_has_limits_of_the_platform(node: RedisNode) -> None:
    """P13: on one server too, also for who does not name the shards of the store."""
    url = node.fresh()
    for options in ("&shards=4", ""):
        store = RedisStore.from_url(url + options)
        await store.open()
        assert (store.shards, store.capabilities.platform) == (4, True)
        await store.close()


async def test_who_waits_for_room_claims_right_after_its_own_ack(bench: Bench) -> None:
    """Without waiting for the answer of the ack, nor for its hint; the claim sees its room."""
    await bench.configure(PLATFORM, max_running=1)
    await bench.end(await bench.held("warm"), Completed())  # The server learns the scripts.
    await bench.store.wait(Watch(), 0)
    await bench.put("a", "b")
    [lease] = await bench.claim(2)
    waiting = asyncio.ensure_future(bench.store.wait(Watch(), 60))
    for _ in range(10):  # It has asked, and sleeps: answers come in the order of the calls.
        assert await bench.claim(1) == []
    assert not waiting.done()

    done = completion(lease.job.tenant, lease.job.id, lease.token)
    acking = asyncio.ensure_future(bench.store.ack([done]))
    for _ in range(3):
        await asyncio.sleep(0)

    assert waiting.done()
    assert [each.job.id for each in await bench.claim(2)] == ["b"]
    assert (await acking)[0].error is None


async def test_an_ack_wakes_nobody_where_all_may_run(bench: Bench) -> None:
    """Its own worker would ask in vain after each job."""
    await bench.configure(PLATFORM, max_running=5)
    await bench.put("a", "b")
    leases = await bench.claim(5)
    waiting = asyncio.ensure_future(bench.store.wait(Watch(), 60))
    for _ in range(10):
        assert await bench.claim(1) == []

    for lease in leases:
        await bench.end(lease, Completed())
    assert await bench.claim(1) == []

    assert not waiting.done()
    waiting.cancel()
