"""What limits of the platform cost on Redis, and what they leave behind."""

from __future__ import annotations

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.test_redis_commands import _commands
from tests.stores.redis.test_redis_flat import FEW, MANY, filled

from holdfast.core.job import Completed
from holdfast.core.scope import PLATFORM, Scope
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
