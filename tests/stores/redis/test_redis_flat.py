"""What a claim and an ack cost does not grow with what waits, of others or of the tenant itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.test_redis_commands import _commands

from holdfast.core.bounds import ASIDE_MAX
from holdfast.core.job import Completed
from holdfast.core.lifecycle import decide
from holdfast.core.scope import Pause
from holdfast.stores.redis.store import RedisStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    AUDIO,
    MAIL,
    job,
    over_all,
    tenant_of,
    type_of,
)

FEW, MANY = 30, 900
PAUSE = Pause("the mail provider is down", "ann")


async def fill(bench: Bench, tenants: int, queues: int) -> None:
    jobs = [
        job(f"j{tenant}-{queue}-{n}", tenant=f"t{tenant}", queue=f"q{queue}")
        for tenant in range(tenants)
        for queue in range(queues)
        for n in range(2)
    ]
    for start in range(0, len(jobs), 900):
        await bench.add(*jobs[start : start + 900])


async def cost(bench: Bench, node: RedisNode, queues: tuple[str, ...] | None) -> tuple[int, int]:
    """Commands of a claim of ten, and of the ack of what it gave."""
    node.ask("CONFIG", "RESETSTAT")
    leases = await bench.claim(10, queues=queues)
    claim = _commands(node)
    assert len(leases) == 10
    node.ask("CONFIG", "RESETSTAT")
    await bench.store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])
    return claim, _commands(node)


@asynccontextmanager
async def filled(
    node: RedisNode, tenants: int, queues: int, most: int | None
) -> AsyncIterator[Bench]:
    """A store of its own, in which one tenant may have so many running."""
    url, clock = node.fresh(), ManualClock()
    bench = Bench(lambda: RedisStore.from_url(url, clock), clock)
    await bench.open()
    if most is not None:
        await bench.configure(tenant_of("t0"), max_running=most)
    await fill(bench, tenants, queues)
    yield bench
    await bench.close()


@pytest.mark.parametrize("most", [None, 1000])
@pytest.mark.parametrize(
    ("tenants", "queues", "listed"), [(1, MANY, None), (MANY, 1, None), (MANY, 1, ("q0", "q1"))]
)
async def test_a_claim_costs_the_same_however_many_wait(
    node: RedisNode, tenants: int, queues: int, listed: tuple[str, ...] | None, most: int | None
) -> None:
    """P19: many tenants, or many queues of one, also where a limit of it is looked at."""
    found = []
    for few in (1 + FEW, FEW, MANY):  # The first has the server learn the scripts.
        async with filled(node, min(tenants, few), min(queues, few), most) as bench:
            found.append(await cost(bench, node, listed))

    assert found[1] == found[2]


async def test_a_tenant_at_its_limit_rests_in_one_step(node: RedisNode) -> None:
    """P13, P19: however many queues it has, each place that is freed is a few commands."""
    found = []
    for queues in (FEW, MANY):
        async with filled(node, 1, queues, 1) as bench:
            lease = await bench.one()
            assert await bench.claim(1) == []
            node.ask("CONFIG", "RESETSTAT")
            await bench.end(lease, Completed())
            await bench.one()
            found.append(_commands(node))

    assert max(found) <= min(found) + 5


async def test_a_ring_is_put_right_only_where_it_is_met(bench: Bench, node: RedisNode) -> None:
    """P19: turns taken elsewhere are not written to every queue of a tenant."""
    await fill(bench, 3, FEW)
    for _ in range(5):
        await bench.claim(3)

    node.ask("CONFIG", "RESETSTAT")
    tenants = [one.job.tenant for one in await bench.claim(3, queues=("q9", "q8"))]

    assert sorted(tenants) == ["t0", "t1", "t2"]
    assert _commands(node) < 80


async def wait_at_limits(bench: Bench, waiting: int) -> None:
    """So many jobs of a paused queue and of a paused type wait, and claims have met them."""
    await bench.configure(over_all(AUDIO), paused=PAUSE)
    await bench.configure(type_of("send"), paused=PAUSE)
    jobs = [job(f"a{n}", tenant=f"t{n % 50}", queue=AUDIO, type="read") for n in range(waiting)]
    jobs += [job(f"s{n}", tenant=f"t{n % 50}", group=f"g{n % 3}") for n in range(waiting)]
    for start in range(0, len(jobs), 900):
        await bench.add(*jobs[start : start + 900])
    for _ in range(2 + len(jobs) // ASIDE_MAX):
        assert await bench.claim(10) == []


@pytest.mark.parametrize("claims", [{}, {"queues": (MAIL,)}, {"tenants": ("t7",)}], ids=str)
async def test_what_waits_at_limits_of_the_platform_costs_a_claim_nothing(
    node: RedisNode, claims: dict[str, Any]
) -> None:
    """P9, P19: thousands of jobs of a paused queue and a paused type are not met again."""
    found = []
    for waiting in (100, 100, 3000):  # The first has the server learn the scripts.
        async with filled(node, 0, 0, None) as bench:
            await wait_at_limits(bench, waiting)
            await bench.put("other", tenant="t7", type="read")
            node.ask("CONFIG", "RESETSTAT")
            assert [lease.job.id for lease in await bench.claim(10, **claims)] == ["other"]
            found.append(_commands(node))

    assert found[1] == found[2]
    assert found[2] < 50


async def test_a_resumed_type_is_one_step_that_changes_no_job(node: RedisNode) -> None:
    """P19: neither the change nor the next claim walks all that waits."""
    found = []
    for waiting in (100, 3000):
        async with filled(node, 0, 0, None) as bench:
            await wait_at_limits(bench, waiting)
            node.ask("CONFIG", "RESETSTAT")
            await bench.configure(type_of("send"))
            changed = _commands(node)
            assert len(await bench.claim(1)) == 1
            found.append((changed, _commands(node) - changed))

    assert found[0][0] == found[1][0]
    assert max(each[1] for each in found) <= min(each[1] for each in found) + 10
