"""Slots: capacity of a scope held from outside for a time; a setting counts it against limits."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed
from holdfast.core.scope import Scope, ScopeKind
from holdfast.store import Hold, Take, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    CRAWL,
    GLOBEX,
    HOUR,
    MAIL,
    SCOPES,
    group_of,
    ids,
    queue_of,
    tenant_of,
)
from holdfast.testing.contract.inside import crawl, each_tenant_scope
from holdfast.testing.contract.wait import BOUND_S, SLEEP_S, asleep

LENGTH = 10 * SECOND


async def push(bench: Bench, scope: Scope, *names: str, length: int = LENGTH) -> list[Hold]:
    bench.needs("scopes")
    return await bench.store.hold([Take(scope.slot(id), id, length) for id in names])


async def listed(bench: Bench, scope: Scope) -> list[str]:
    holds = await bench.store.hold(under=scope.slots)
    return [hold.name.removeprefix(scope.slots) for hold in holds]


@each_tenant_scope
async def test_slots_are_counted_and_listed(bench: Bench, scope: Scope) -> None:
    """P13: a scope without jobs is listed for its slots."""
    await push(bench, scope, "s2", "s1")

    [tally] = await bench.store.count(ACME, by=scope.kind)

    assert (tally.tenant, tally.queue, tally.slots) == (ACME, scope.part, 2)
    assert not any(tally.counts.values())
    assert await listed(bench, scope) == ["s1", "s2"]


@each_tenant_scope
async def test_pushing_again_renews_a_slot(bench: Bench, scope: Scope) -> None:
    """P8: it is one slot still, and lasts from now."""
    await push(bench, scope, "s1")
    bench.clock.advance(6)
    [again] = await push(bench, scope, "s1")

    assert again.until == bench.clock.now() + LENGTH
    assert (await bench.tally(scope)).slots == 1
    bench.clock.advance(6)
    assert (await bench.tally(scope)).slots == 1
    bench.clock.advance(4)
    assert (await bench.tally(scope)).slots == 0


@each_tenant_scope
async def test_removing_a_slot_may_be_repeated(bench: Bench, scope: Scope) -> None:
    """P15: what is not held is no error."""
    await push(bench, scope, "s1", "s2")

    for _ in range(3):
        await push(bench, scope, "s1", length=0)

    assert (await bench.tally(scope)).slots == 1
    assert await listed(bench, scope) == ["s2"]


@each_tenant_scope
async def test_a_slot_expires_at_its_very_instant(bench: Bench, scope: Scope) -> None:
    """P10: without upkeep; an expired one is in no list and no count."""
    await push(bench, scope, "short", length=5 * SECOND)
    [long] = await push(bench, scope, "long")

    bench.clock.advance(5)
    assert await listed(bench, scope) == ["long"]
    assert (await bench.tally(scope)).slots == 1

    bench.clock.set(long.until)
    assert await listed(bench, scope) == []
    assert await bench.store.count(ACME, by=scope.kind) == []


async def test_slots_belong_to_one_scope(bench: Bench) -> None:
    """P7: the same id under a tenant, a queue and a group, in two tenants, is six slots."""
    theirs = (tenant_of(GLOBEX), queue_of(MAIL, GLOBEX), group_of(CRAWL, GLOBEX))
    for scope in (*SCOPES, *theirs):
        await push(bench, scope, "same")

    for scope in (*SCOPES, *theirs):
        assert await listed(bench, scope) == ["same"]
        assert (await bench.tally(scope)).slots == 1
    await push(bench, SCOPES[0], "same", length=0)
    assert [(await bench.tally(scope)).slots for scope in SCOPES] == [0, 1, 1]


async def test_names_with_slashes_keep_slots_apart(bench: Bench) -> None:
    """P7: no name reaches into another scope's slots."""
    inner, outer = group_of("a/b"), group_of("a")
    await push(bench, inner, "c")
    await push(bench, outer, "b/c", "1:b/c")

    assert await listed(bench, inner) == ["c"]
    assert await listed(bench, outer) == ["1:b/c", "b/c"]
    assert (await bench.tally(inner)).slots == 1
    assert (await bench.tally(outer)).slots == 2


@each_tenant_scope
async def test_slots_take_places_when_the_setting_says_so(bench: Bench, scope: Scope) -> None:
    """P13: jobs and slots together stay within the limit."""
    await bench.configure(scope, max_running=3, slots_count=True)
    await push(bench, scope, "s1", "s2")
    await crawl(bench, "a", "b", "c")

    assert ids(await bench.claim(10)) == ["a"]
    await push(bench, scope, "s1", length=0)
    assert ids(await bench.claim(10)) == ["b"]
    assert await bench.claim(10) == []


@each_tenant_scope
async def test_slots_take_no_places_by_default(bench: Bench, scope: Scope) -> None:
    """P13: a marker is only counted unless the setting says more."""
    await bench.configure(scope, max_running=2)
    await push(bench, scope, "s1", "s2", "s3")
    await crawl(bench, "a", "b", "c")

    assert ids(await bench.claim(10)) == ["a", "b"]


@each_tenant_scope
async def test_slots_pushed_over_the_limit_stop_new_jobs(bench: Bench, scope: Scope) -> None:
    """P13: outsiders are not refused; jobs start again when it all fits."""
    await bench.configure(scope, max_running=2, slots_count=True)
    await crawl(bench, "a", "b", "c")
    lease = await bench.one()
    await push(bench, scope, "s1", "s2", "s3")

    assert await bench.claim(10) == []
    await bench.end(lease, Completed())
    await push(bench, scope, "s1", length=0)
    assert await bench.claim(10) == []
    await push(bench, scope, "s2", length=0)
    assert ids(await bench.claim(10)) == ["b"]


@each_tenant_scope
async def test_an_expired_slot_gives_its_place_to_a_job(bench: Bench, scope: Scope) -> None:
    """P10, P13: at that very instant, and who waits is not left asleep."""
    await bench.configure(scope, max_running=1, slots_count=True)
    [slot] = await push(bench, scope, "s1")
    await crawl(bench, "a")
    assert await bench.claim(1) == []

    bench.clock.set(slot.until - bench.store.capabilities.time_precision_us)
    assert await bench.claim(1) == []
    bench.clock.set(slot.until)
    async with asyncio.timeout(BOUND_S):
        await bench.store.wait(Watch(tenants=(ACME,), queues=(MAIL,)), SLEEP_S)

    assert ids(await bench.claim(1)) == ["a"]


@each_tenant_scope
async def test_a_renewed_slot_keeps_its_place(bench: Bench, scope: Scope) -> None:
    """P13: the first deadline frees nothing after a renewal."""
    await bench.configure(scope, max_running=1, slots_count=True)
    await push(bench, scope, "s1")
    await crawl(bench, "a")
    bench.clock.advance(5)
    await push(bench, scope, "s1")

    bench.clock.advance(5)
    assert await bench.claim(1) == []
    bench.clock.advance(5)
    assert ids(await bench.claim(1)) == ["a"]


@each_tenant_scope
async def test_a_removed_slot_wakes_who_waits_for_work(bench: Bench, scope: Scope) -> None:
    """P13: its place is handed on in the same step."""
    await bench.configure(scope, max_running=1, slots_count=True)
    await push(bench, scope, "s1", length=HOUR)
    await crawl(bench, "a")
    assert await bench.claim(1) == []

    async with asleep(bench, Watch(tenants=(ACME,), queues=(MAIL,))) as sleeper:
        await push(bench, scope, "s1", length=0)

    assert sleeper.done()
    assert ids(await bench.claim(1)) == ["a"]


@each_tenant_scope
async def test_counting_slots_may_be_switched_live(bench: Bench, scope: Scope) -> None:
    """P13: on and off, at once."""
    await push(bench, scope, "s1", "s2")
    await bench.configure(scope, max_running=2, slots_count=True)
    await crawl(bench, "a", "b", "c")
    assert await bench.claim(10) == []

    await bench.configure(scope, max_running=2)
    assert ids(await bench.claim(10)) == ["a", "b"]


async def test_slots_of_other_scopes_take_no_place(bench: Bench) -> None:
    """P7, P13: of other queues, groups and tenants."""
    await bench.configure(queue_of(), max_running=1, slots_count=True)
    await push(bench, queue_of(AUDIO), "s1")
    await push(bench, group_of(MAIL), "s1")
    await push(bench, tenant_of(), "s1")
    await push(bench, queue_of(MAIL, GLOBEX), "s1")
    await crawl(bench, "a", "b")

    assert ids(await bench.claim(10)) == ["a"]


@pytest.mark.parametrize(
    "name",
    ["slot/", "slot/world/4:acme/0:/s", "slot/tenant/4:acme/x", "slot/queue/4:acme/4:mail/"],
)
async def test_a_slot_of_no_scope_is_refused(bench: Bench, name: str) -> None:
    """P15: InvalidInput, and nothing of the batch is held."""
    bench.needs("scopes")
    with pytest.raises(InvalidInput) as caught:
        await bench.store.hold([Take(tenant_of().slot("s"), "s", LENGTH), Take(name, "s", LENGTH)])

    assert caught.value.facts["field"] in ("scope", "slot")
    assert await bench.store.hold(under="") == []
    assert await bench.store.count(ACME, by=ScopeKind.TENANT) == []


async def test_pruning_clears_expired_slots_away(bench: Bench) -> None:
    """P15: what has expired is gone, what has not is kept."""
    await push(bench, group_of(), *(f"s{n}" for n in range(50)), length=SECOND)
    await push(bench, group_of(), "stays", length=HOUR)
    bench.clock.advance(1)

    await bench.store.prune(100, HOUR)

    assert await listed(bench, group_of()) == ["stays"]
    assert (await bench.tally(group_of())).slots == 1
