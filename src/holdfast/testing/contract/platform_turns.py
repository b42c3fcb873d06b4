"""Turns at limits of the platform: what is blocked hides nothing, and tenants share the room."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.job import State
from holdfast.core.rate import rate
from holdfast.core.scope import PLATFORM, Scope
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    MAIL,
    group_of,
    ids,
    over_all,
    queue_of,
    tenant_of,
    type_of,
)
from holdfast.testing.contract.inside import each_platform_scope
from holdfast.testing.contract.platform import INITECH, PAUSE, end, fill, shares

# -- what is blocked hides nothing -----------------------------------------------------------------


async def test_a_blocked_queue_hides_no_other(bench: Bench) -> None:
    """P9: neither of the same tenant nor of another one, however much of it waits."""
    await bench.configure(over_all(MAIL), paused=PAUSE)
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 50)
    await bench.put("song", queue=AUDIO)

    assert ids(await bench.claim(1)) == ["song"]
    assert await bench.claim(10) == []


async def test_a_blocked_type_hides_no_other_in_its_queue(bench: Bench) -> None:
    """P9: jobs of other types behind it are eligible."""
    await bench.configure(type_of("send"), paused=PAUSE)
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 50)
    await bench.put("other", type="read")

    assert ids(await bench.claim(1)) == ["other"]
    assert await bench.claim(10) == []


async def test_a_blocked_type_hides_no_other_of_its_group(bench: Bench) -> None:
    """P9: its jobs take no place of the group while they wait."""
    await bench.configure(group_of("g"), max_running=1)
    await bench.configure(type_of("send"), paused=PAUSE)
    await bench.put("blocked", group="g")
    await bench.put("other", group="g", type="read")

    assert ids(await bench.claim(10)) == ["other"]


@pytest.mark.parametrize("scope", [queue_of(MAIL), group_of("g")], ids=lambda scope: scope.kind)
async def test_a_type_that_a_claim_fills_hides_no_other(bench: Bench, scope: Scope) -> None:
    """P9: another tenant takes its last place, and what the own limits let through first must wait;
    the same claim takes what is behind that.
    """
    await bench.configure(scope, max_running=1)
    await bench.configure(type_of("send"), max_running=1)
    await bench.put("first", tenant=GLOBEX)
    await bench.put("blocked", group="g")
    await bench.put("other", group="g", type="read")

    assert set(ids(await bench.claim(10))) == {"first", "other"}


async def test_a_job_whose_group_fills_does_not_let_another_type_pass(bench: Bench) -> None:
    """P9: the job behind it comes next, whatever its type."""
    await bench.configure(PLATFORM, max_running=2)
    await bench.configure(type_of("send"), max_running=2)
    await bench.configure(group_of("g"), max_running=1)
    await bench.put("song", queue=AUDIO, group="g", type="read")
    await bench.put("full", group="g", type="read", priority=2)
    await bench.put("next")
    await bench.put("last", type="read", priority=-1)

    taken = set(ids(await bench.claim(10)))

    assert "last" not in taken
    assert "next" in taken


async def test_a_type_keeps_its_place_in_the_queue(bench: Bench) -> None:
    """P9: by priority, then by sequence, once it has room again."""
    await bench.put("a")
    await bench.put("b", type="read")
    await bench.put("c", priority=5)
    await bench.put("d")
    await bench.configure(type_of("send"), paused=PAUSE)
    assert ids(await bench.claim(1)) == ["b"]
    await bench.put("e", priority=1)
    await bench.put("f", type="read")

    await bench.configure(type_of("send"))

    assert ids(await bench.claim(10)) == ["c", "e", "a", "d", "f"]


async def test_a_type_with_room_stays_in_order_with_others(bench: Bench) -> None:
    """P9: what waits for its type comes before what came later."""
    await bench.configure(type_of("send"), max_running=1)
    await bench.put("a", "b", "c")
    first = await bench.one()
    assert await bench.claim(10) == []
    await bench.put("d", type="read")
    await end(bench, first)

    assert ids(await bench.claim(1)) == ["b"]
    assert ids(await bench.claim(10)) == ["d"]


async def test_a_type_with_room_stays_in_order_where_others_wait_longer(bench: Bench) -> None:
    """P9: also where the tenants whose turn it is use none of its room."""
    await bench.configure(type_of("send"), paused=PAUSE)
    for tenant in (ACME, GLOBEX):
        await bench.put("a", tenant=tenant, group="g")
        await bench.configure(group_of("g", tenant), paused=PAUSE)
    await bench.put("a", tenant=INITECH)
    assert await bench.claim(10) == []
    await bench.configure(type_of("send"), max_running=2)
    await bench.put("b", tenant=INITECH, type="read")

    assert ids(await bench.claim(2)) == ["a", "b"]


async def test_jobs_of_excluded_groups_hide_no_other_of_their_type(bench: Bench) -> None:
    """P9: also if they come first when their type has room again."""
    await bench.configure(type_of("send"), max_running=1)
    await bench.configure(queue_of(), max_running=5)
    first = await bench.held("first", queue=AUDIO)
    for number in range(3):
        await bench.put(f"{number}", group="g", priority=1)
    await bench.put("last")
    assert await bench.claim(10) == []
    await bench.put("other", type="read", priority=-1)
    await end(bench, first)

    assert ids(await bench.claim(10, exclude_groups=("g",))) == ["last", "other"]


async def test_a_weight_leaves_a_type_with_room_in_order(bench: Bench) -> None:
    """P9: also where the room is shared by weight, no later job of a line goes first."""
    await bench.configure(tenant_of(ACME), weight=2)
    await bench.configure(type_of("send"), paused=PAUSE)
    await bench.put("a1", "a2")
    await fill(bench, GLOBEX, 2)
    assert await bench.claim(10) == []
    await bench.configure(type_of("send"), max_running=3)
    await bench.put("r", type="read")

    assert "r" not in ids(await bench.claim(3))


async def test_an_idle_limit_holds_nobody(bench: Bench) -> None:
    """P13: limits of queues and types without jobs do nothing."""
    for n in range(20):
        await bench.configure(over_all(f"q{n}"), max_running=1, rate=rate("1/d"))
        await bench.configure(type_of(f"t{n}"), paused=PAUSE)
    await fill(bench, ACME, 3)

    assert len(await bench.claim(10)) == 3


@each_platform_scope
async def test_a_canceled_job_that_waits_at_a_limit_is_gone(bench: Bench, scope: Scope) -> None:
    """P5: the next one goes first."""
    await bench.configure(scope, max_running=1)
    await bench.put("a", "b", "c")
    first = await bench.one()
    assert await bench.claim(10) == []
    await bench.cancel("b")

    await end(bench, first)

    assert ids(await bench.claim(10)) == ["c"]


@each_platform_scope
async def test_a_job_outlives_its_time_while_it_waits_at_a_limit(
    bench: Bench, scope: Scope
) -> None:
    """P10: it is not started late, and it is told as expired."""
    await bench.configure(scope, max_running=1)
    await bench.put("a")
    first = await bench.one()
    await bench.put("late", ttl_us=5 * SECOND)
    await bench.put("next")
    assert await bench.claim(10) == []
    bench.clock.advance(5)

    await end(bench, first)

    assert ids(await bench.claim(10)) == ["next"]
    await bench.upkeep()
    assert await bench.state("late") is State.FAILED


# -- fair under the limit --------------------------------------------------------------------------


@each_platform_scope
async def test_tenants_take_turns_at_a_limit_of_the_platform(bench: Bench, scope: Scope) -> None:
    """P19: a tenant with many jobs leaves the others their share of the places."""
    await bench.configure(scope, max_running=2)
    await fill(bench, ACME, 100)
    held = await bench.claim(10)
    await fill(bench, GLOBEX, 20)
    await fill(bench, INITECH, 20)

    got: Counter[str] = Counter()
    for _ in range(30):
        await end(bench, held.pop(0))
        came = await bench.claim(10)
        got += shares(came)
        held += came

    assert max(got.values()) - min(got.values()) <= 2
    assert len(got) == 3


@each_platform_scope
async def test_turns_at_a_limit_of_the_platform_go_by_weight(bench: Bench, scope: Scope) -> None:
    """P19: a weight of 3 gets three times the places of 1."""
    await bench.configure(tenant_of(GLOBEX), weight=3)
    await bench.configure(scope, max_running=2)
    await fill(bench, ACME, 100)
    await fill(bench, GLOBEX, 100)
    held = await bench.claim(10)

    got: Counter[str] = Counter()
    for _ in range(80):
        await end(bench, held.pop(0))
        came = await bench.claim(10)
        got += shares(came)
        held += came

    assert abs(got[GLOBEX] - 60) <= 6
    assert sum(got.values()) == 80


@each_platform_scope
async def test_a_first_claim_shares_the_room_of_the_platform(bench: Bench, scope: Scope) -> None:
    """P19: the first tenant does not take all places."""
    await bench.configure(scope, max_running=10)
    await fill(bench, ACME, 100)
    await fill(bench, GLOBEX, 100)

    got = shares(await bench.claim(100))

    assert got == {ACME: 5, GLOBEX: 5}


@each_platform_scope
async def test_a_claim_for_one_tenant_uses_the_room_of_the_platform(
    bench: Bench, scope: Scope
) -> None:
    """P13: also what waits at the limit is found by claims for some tenants and queues."""
    await bench.configure(scope, max_running=1)
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 3)
    first = await bench.one(tenants=(ACME,))
    assert await bench.claim(10) == []
    await end(bench, first)

    assert await bench.claim(10, tenants=(GLOBEX,), queues=(AUDIO,)) == []
    [lease] = await bench.claim(10, tenants=(GLOBEX,), queues=(MAIL,))
    assert lease.job.tenant == GLOBEX
