"""Tiers and defaults: what tenants, queues and groups have unless their own settings say it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.errors import InvalidInput, QueueFull
from holdfast.core.job import Completed, EventKind, Lease
from holdfast.core.rate import rate
from holdfast.core.scope import BlockerKind, Ceiling, GroupRules, ScopeSettings
from holdfast.core.scope import encode as encode_settings
from holdfast.core.tiers import Defaults, LimitRules, encode, name_of
from holdfast.store import Put, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    group_of,
    job,
    queue_of,
    tenant_of,
)
from holdfast.testing.contract.platform import fill, shares
from holdfast.testing.contract.wait import asleep

FREE, PRO = "free", "pro"


async def layer(bench: Bench, tier: str, **fields: Any) -> None:
    """Replaces the defaults of a tier, "" for the platform's; without arguments deletes them."""
    bench.needs("tiers")
    name = name_of(tier)
    found = [each for each in await bench.store.settings(under=name) if each.name == name]
    value = encode(Defaults(**fields)) if fields else None
    await bench.store.settings([Put(name, value, found[0].version if found else 0)])


async def share(bench: Bench) -> dict[str, int]:
    """How many jobs of each tenant one large claim gives."""
    return dict(shares(await bench.claim(1000)))


async def complete(bench: Bench, leases: list[Lease]) -> None:
    for lease in leases:
        assert (await bench.end(lease, Completed())).error is None


# -- which layer counts ----------------------------------------------------------------------------


async def test_a_default_counts_for_every_tenant(bench: Bench) -> None:
    """P13: also for one that never had a setting."""
    await layer(bench, "", max_running=2)
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 5)

    assert await share(bench) == {ACME: 2, GLOBEX: 2}
    assert await bench.claim(10) == []


async def test_a_tier_counts_for_the_tenants_in_it(bench: Bench) -> None:
    """P13: instead of the default."""
    await layer(bench, "", max_running=2)
    await layer(bench, PRO, max_running=4)
    await bench.configure(tenant_of(GLOBEX), tier=PRO)
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 6)

    assert await share(bench) == {ACME: 2, GLOBEX: 4}


async def test_own_settings_count_before_the_tier(bench: Bench) -> None:
    """P13: each value by itself."""
    await layer(bench, FREE, max_running=1, max_queued=3)
    await bench.configure(tenant_of(ACME), tier=FREE, max_running=2)

    await fill(bench, ACME, 3)
    [refused] = await bench.add(job("more", tenant=ACME))

    assert isinstance(refused.error, QueueFull)
    assert await share(bench) == {ACME: 2}


async def test_a_value_that_a_tier_leaves_open_is_the_default(bench: Bench) -> None:
    """P13: layers are looked through one by one."""
    await layer(bench, "", max_running=2, max_queued=3)
    await layer(bench, PRO, max_queued=9)
    await bench.configure(tenant_of(ACME), tier=PRO)

    await fill(bench, ACME, 9)

    assert await share(bench) == {ACME: 2}


async def test_a_tier_limits_each_queue_of_a_tenant(bench: Bench) -> None:
    """P13: a queue's own setting counts before it."""
    await layer(bench, "", queue=LimitRules(max_running=2))
    await bench.configure(queue_of(AUDIO), max_running=3)
    await fill(bench, ACME, 5)
    await bench.put(*(f"song-{n}" for n in range(5)), queue=AUDIO)

    leases = await bench.claim(100)

    assert sum(lease.job.queue == AUDIO for lease in leases) == 3
    assert len(leases) == 5


async def test_a_tier_limits_each_group_of_a_tenant(bench: Bench) -> None:
    """P13: the queue's rules for groups count before it, and the group's own before these."""
    await layer(bench, "", group=LimitRules(max_running=1))
    await bench.configure(queue_of(AUDIO), groups=GroupRules(max_running=2))
    await bench.configure(group_of("own"), max_running=3)
    for group, options in (("g1", {}), ("g2", {"queue": AUDIO}), ("own", {})):
        await bench.put(*(f"{group}-{n}" for n in range(5)), group=group, **options)

    leases = await bench.claim(100)

    groups = [lease.job.group for lease in leases]
    assert [groups.count(group) for group in ("g1", "g2", "own")] == [1, 2, 3]


async def test_a_tier_sets_the_weight(bench: Bench) -> None:
    """P19: of two tenants with enough work the heavier gets three times as much."""
    await layer(bench, PRO, weight=3)
    await bench.configure(tenant_of(GLOBEX), tier=PRO)
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 100)

    got = shares([lease for _ in range(10) for lease in await bench.claim(4)])

    assert got == {ACME: 10, GLOBEX: 30}


async def test_a_tier_sets_the_rate(bench: Bench) -> None:
    """P13: each tenant in it has its own bucket."""
    await layer(bench, FREE, rate=rate("2/s"))
    for tenant in (ACME, GLOBEX):
        await bench.configure(tenant_of(tenant), tier=FREE)
        await fill(bench, tenant, 10)

    assert await share(bench) == {ACME: 2, GLOBEX: 2}
    assert await bench.claim(10) == []
    bench.clock.advance(1)
    assert await share(bench) == {ACME: 2, GLOBEX: 2}


async def test_a_ceiling_of_a_tier_bounds_its_tenants(bench: Bench) -> None:
    """P13: what a tenant sets above it does not count."""
    await layer(bench, FREE, ceiling=Ceiling(max_running=2))
    await bench.configure(tenant_of(ACME), tier=FREE, max_running=5)
    await bench.configure(tenant_of(GLOBEX), tier=FREE)
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 9)

    assert await share(bench) == {ACME: 2, GLOBEX: 2}


async def test_explain_tells_a_limit_of_a_tier(bench: Bench) -> None:
    """P13: as the tenant's limit, with the value that counts."""
    await layer(bench, "", max_running=1)
    await bench.put("a", "b")
    await bench.one()

    gate = (await bench.gates("b"))[BlockerKind.LIMIT]

    assert gate.scope == tenant_of()
    assert gate.holders == ("a",)


# -- live ------------------------------------------------------------------------------------------


async def test_a_raised_tier_counts_for_the_next_claim(bench: Bench) -> None:
    """P13: of all tenants that it kept waiting, however many."""
    many = [f"t{n:03}" for n in range(300)]
    await layer(bench, FREE, max_running=1)
    for tenant in many:
        await bench.configure(tenant_of(tenant), tier=FREE)
    await bench.add(*(job(f"j{n}", tenant=tenant) for tenant in many for n in range(3)))
    assert len(await bench.claim(1000)) == 300
    assert await bench.claim(1000) == []

    await layer(bench, FREE, max_running=2)

    assert len(await bench.claim(1000)) == 300
    assert await bench.claim(1000) == []


async def test_a_raised_tier_is_found_among_many_others(bench: Bench) -> None:
    """P13: tenants of another tier that are at their limit do not come first."""
    tiers = {FREE: [f"a{n:03}" for n in range(300)], PRO: [f"b{n}" for n in range(5)]}
    for tier, tenants in tiers.items():
        await layer(bench, tier, max_running=1)
        for tenant in tenants:
            await bench.configure(tenant_of(tenant), tier=tier)
    many = [*tiers[FREE], *tiers[PRO]]
    await bench.add(*(job(f"j{n}", tenant=tenant) for tenant in many for n in range(2)))
    assert len(await bench.claim(1000)) == len(many)
    assert await bench.claim(10) == []

    await layer(bench, PRO, max_running=2)

    assert shares(await bench.claim(10)) == dict.fromkeys(tiers[PRO], 1)


async def test_a_lowered_tier_counts_for_the_next_claim(bench: Bench) -> None:
    """P13: nothing starts until enough has ended."""
    await layer(bench, "", max_running=3)
    await fill(bench, ACME, 9)
    held = await bench.claim(10)
    await layer(bench, "", max_running=1)

    await complete(bench, held[:2])
    assert await bench.claim(10) == []
    await complete(bench, held[2:])
    assert await share(bench) == {ACME: 1}


async def test_a_tenant_may_be_put_into_another_tier(bench: Bench) -> None:
    """P13: which counts at once."""
    await layer(bench, FREE, max_running=1, group=LimitRules(max_running=1))
    await layer(bench, PRO, max_running=9, group=LimitRules(max_running=3))
    await bench.configure(tenant_of(), tier=FREE)
    await bench.put(*(f"j{n}" for n in range(9)), group="g")
    assert await share(bench) == {ACME: 1}

    await bench.configure(tenant_of(), tier=PRO)

    assert await share(bench) == {ACME: 2}


async def test_a_default_for_groups_that_is_raised_lets_their_jobs_go(bench: Bench) -> None:
    """P13: those that wait before their line."""
    await layer(bench, "", group=LimitRules(max_running=1))
    await bench.put(*(f"j{n}" for n in range(5)), group="g")
    assert len(await bench.claim(10)) == 1

    await layer(bench, "", group=LimitRules(max_running=3))
    assert len(await bench.claim(10)) == 2

    await layer(bench, "")
    assert len(await bench.claim(10)) == 2


async def test_a_changed_rate_of_a_tier_counts_from_now(bench: Bench) -> None:
    """P13: a bucket is at most empty then, and never gives more than its rate."""
    await layer(bench, "", rate=rate("1/h"))
    await fill(bench, ACME, 9)
    assert len(await bench.claim(10)) == 1

    await layer(bench, "", rate=rate("1/s"))
    assert await bench.claim(10) == []
    bench.clock.advance(1)
    assert len(await bench.claim(10)) == 1
    assert await bench.claim(10) == []


async def test_a_default_that_is_gone_holds_nobody(bench: Bench) -> None:
    """P13: what is built in has no limit."""
    await layer(bench, "", max_running=1)
    await fill(bench, ACME, 5)
    assert len(await bench.claim(10)) == 1

    await layer(bench, "")

    assert len(await bench.claim(10)) == 4


async def test_a_raised_tier_wakes_who_waits(bench: Bench) -> None:
    """P10: nobody polls for room."""
    await layer(bench, "", max_running=1)
    await fill(bench, ACME, 2)
    await bench.one()
    assert await bench.claim(10) == []

    async with asleep(bench, Watch(tenants=(ACME,))) as sleeper:
        assert not sleeper.done()
        await layer(bench, "", max_running=2)

    assert len(await bench.claim(10)) == 1


# -- told, and refused -----------------------------------------------------------------------------


async def test_a_change_of_a_tier_is_an_event_of_no_tenant(bench: Bench) -> None:
    """P7, P14: an operator reads it, a tenant does not."""
    bench.needs("event_log")
    await layer(bench, PRO, max_running=3)

    page = await bench.store.events(None, 0, PAGE_MAX)
    [event] = [each for each in page.events if each.kind is EventKind.CONFIGURED]

    assert (event.tenant, event.job_id) == ("", name_of(PRO))
    assert list((await bench.store.events(ACME, 0, PAGE_MAX)).events) == []


async def test_an_unknown_tier_is_refused(bench: Bench) -> None:
    """P15: with the name that was meant, and nothing is changed."""
    await layer(bench, PRO, max_running=3)
    put = Put(tenant_of().name, encode_settings(ScopeSettings(tier="prp", max_running=1)), 0)

    with pytest.raises(InvalidInput, match="no tier") as caught:
        await bench.store.settings([put])

    assert caught.value.facts["field"] == "tier"
    await fill(bench, ACME, 3)
    assert len(await bench.claim(10)) == 3


async def test_a_tier_that_is_in_use_is_not_deleted(bench: Bench) -> None:
    """P15: until the last tenant has left it."""
    await layer(bench, PRO, max_running=1)
    await bench.configure(tenant_of(), tier=PRO)

    with pytest.raises(InvalidInput, match="in 'pro'") as caught:
        await layer(bench, PRO)
    assert caught.value.facts["field"] == "tier"
    await fill(bench, ACME, 3)
    assert len(await bench.claim(10)) == 1

    await bench.configure(tenant_of())
    await layer(bench, PRO)
    assert len(await bench.claim(10)) == 2


BAD: list[tuple[str, Defaults]] = [
    ("max_running", Defaults(max_running=0)),
    ("weight", Defaults(weight=0)),
    ("max_queued", Defaults(max_queued=-1)),
    ("queue.max_running", Defaults(queue=LimitRules(max_running=0))),
    ("group.max_running", Defaults(group=LimitRules(max_running=10**9))),
    ("ceiling.max_running", Defaults(ceiling=Ceiling(max_running=0))),
    ("max_running", Defaults(max_running=5, ceiling=Ceiling(max_running=4))),
    ("rate", Defaults(rate=rate("5/s"), ceiling=Ceiling(rate=rate("4/s")))),
]


@pytest.mark.parametrize(("field", "defaults"), BAD, ids=lambda each: str(each)[:20])
async def test_bad_defaults_are_refused(bench: Bench, field: str, defaults: Defaults) -> None:
    """P15: InvalidInput names the field, and nothing is changed."""
    bench.needs("tiers")
    with pytest.raises(InvalidInput) as caught:
        await bench.store.settings([Put(name_of(""), encode(defaults), 0)])

    assert caught.value.facts["field"] == field
    assert await bench.store.settings(under=name_of("")) == []


@pytest.mark.parametrize("value", [b"", b"[]", b'{"max_runing": 1}', b'{"rate": "1/s"}'])
async def test_what_is_no_tier_is_refused(bench: Bench, value: bytes) -> None:
    """P15: the error names the setting; a misspelt name is not ignored."""
    bench.needs("tiers")
    with pytest.raises(InvalidInput):
        await bench.store.settings([Put(name_of(PRO), value, 0)])
    assert await bench.store.settings(under=name_of("")) == []
