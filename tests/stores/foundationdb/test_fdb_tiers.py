"""Tiers on FoundationDB: what a change of one costs, and that it reaches all that it may have
opened.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.foundationdb_engine import Engine
from tests.stores.foundationdb.tier_bench import (
    KEYS,
    PREFIX,
    Cost,
    all_of,
    at_limit,
    at_rest,
    kept,
    put_into,
)

from holdfast.core.bounds import REPAIR_MAX
from holdfast.core.job import Completed
from holdfast.core.scope import Ceiling
from holdfast.core.tiers import LimitRules
from holdfast.store import Put, Watch
from holdfast.stores.foundationdb import limits_groups
from holdfast.stores.foundationdb.fairness_lines import LINES_MAX
from holdfast.stores.foundationdb.layout import Space
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, ids, job, tenant_of
from holdfast.testing.contract.platform import shares
from holdfast.testing.contract.tiers import FREE, PRO, layer
from holdfast.testing.contract.wait import asleep

FEW, MANY = REPAIR_MAX + 50, 3 * REPAIR_MAX
"""A claim looks at REPAIR_MAX tenants first: it has a full portion to look at in both cases."""
OF_TIERS = (Space.TIER_USERS, Space.TIER_RESTS, Space.TIER_LOOKS, Space.TIER_RATES)


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Cost:
    return Cost(monkeypatch)


# -- what it costs ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
async def test_a_change_of_a_tier_and_the_next_claim_cost_the_same_for_many_tenants(
    bench: Bench, engine: Engine, cost: Cost
) -> None:
    """P19: a few writes, and a claim that finds enough in the first portion."""
    found = []
    for tier, number in (("few", FEW), ("many", MANY)):
        await at_rest(bench, engine, tier, number)
        changed, _ = await cost.of(layer(bench, tier, max_running=2))
        claimed, leases = await cost.of(bench.claim(10))
        assert len(leases) == 10
        found.append((changed, claimed))
        assert len(await all_of(bench)) == number - 10
        assert kept(engine, Space.TIER_LOOKS) == 0
        await layer(bench, tier, max_running=1)
        for name in [f"{tier}{n:03}" for n in range(number)]:
            await bench.store.settings([Put(tenant_of(name).name, None, 1)])

    (few, few_claim), (many, many_claim) = found
    assert many[2] == few[2] <= 8
    assert sum(many) <= sum(few) + 4
    assert sum(many_claim) <= 1.1 * sum(few_claim)


@pytest.mark.usefixtures("at_once")
async def test_a_raised_tier_does_not_walk_over_the_others(bench: Bench, engine: Engine) -> None:
    """P19: the next claim gives the work of five tenants, beside hundreds that rest."""
    await at_rest(bench, engine, FREE, 300)
    few = await at_rest(bench, engine, PRO, 5)
    assert kept(engine, Space.RESTING) == 305

    await layer(bench, PRO, max_running=2)

    assert sorted(shares(await bench.claim(10))) == few
    assert kept(engine, Space.RESTING) == 300


async def test_full_lines_that_hide_others_rest(bench: Bench, engine: Engine) -> None:
    """P19: where there are more than a claim reads all, without waiting to find them often."""
    await at_limit(bench, FREE, LINES_MAX + 100)
    for _ in range(10):
        assert await bench.claim(10) == []
        if kept(engine, Space.RESTING) == LINES_MAX + 100:
            break

    assert kept(engine, Space.RESTING) == LINES_MAX + 100
    assert kept(engine, Space.LINES, Space.TENANTS, Space.QUEUES) == 0


async def test_without_tiers_nothing_is_read_or_written_for_them(bench: Bench, cost: Cost) -> None:
    """And with one that limits nothing, exactly as much as without."""
    names = [f"t{n}" for n in range(20)]

    async def life(turn: int) -> None:
        new = [job(f"{turn}-{n}", tenant=name, group="g") for name in names for n in range(2)]
        await bench.store.enqueue(new)
        for lease in await bench.claim(100):
            await bench.end(lease, Completed())

    await life(0)
    without, _ = await cost.of(life(1))
    prefixes = tuple(KEYS.all(space) for space in OF_TIERS)
    assert not [key for key in cost.asked if key.startswith(prefixes)]

    await layer(bench, PRO, weight=2)
    await life(2)
    with_one, _ = await cost.of(life(3))

    assert with_one == without


@pytest.mark.parametrize("fields", [{"weight": 3, "max_running": 1}, {"max_queued": 9}], ids=str)
@pytest.mark.usefixtures("at_once")
async def test_what_opens_nothing_is_not_looked_for(
    bench: Bench, engine: Engine, fields: dict[str, Any]
) -> None:
    """P19: if only a weight or a cap changes, or nothing rests."""
    if "max_running" in fields:
        await at_limit(bench, PRO, 20)
    else:
        await layer(bench, PRO, max_queued=7)

    await layer(bench, PRO, **fields)

    assert kept(engine, Space.TIER_LOOKS) == 0


# -- what it reaches -------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
async def test_all_that_rests_is_opened_in_portions(bench: Bench, engine: Engine) -> None:
    """P13: a claim for one job opens no more than a portion, and others go on, also after a kill
    and under a change that comes between.
    """
    names = await at_rest(bench, engine, FREE, MANY)
    await layer(bench, FREE, max_running=2)

    got = [one.job.tenant for one in await bench.claim(1)]
    assert kept(engine, Space.RESTING) == MANY - REPAIR_MAX
    assert kept(engine, Space.TIER_LOOKS) == 1
    await layer(bench, FREE, max_running=2, weight=2)
    await layer(bench, FREE, max_running=3)
    bench.store = FoundationStore(Options(prefix=PREFIX), bench.clock, engine.database())
    await bench.store.open()

    got += [one.job.tenant for one in await all_of(bench)]
    assert Counter(got) == Counter(names)
    assert kept(engine, Space.RESTING, Space.TIER_LOOKS) == 0


@pytest.mark.usefixtures("at_once")
async def test_a_claim_that_names_a_tenant_looks_at_it_first(bench: Bench, engine: Engine) -> None:
    """P13: however many others of its tier rest, and it opens one portion of those."""
    names = await at_rest(bench, engine, FREE, MANY)
    await layer(bench, FREE, max_running=2)

    assert [one.job.tenant for one in await bench.claim(1, tenants=(names[-1],))] == [names[-1]]
    assert kept(engine, Space.RESTING) == MANY - REPAIR_MAX - 1


@pytest.mark.usefixtures("at_once")
async def test_tenants_that_change_their_tier_together_go_on(bench: Bench, engine: Engine) -> None:
    """P13: their groups and queues too, and nothing is left to look at."""
    many = [f"t{n}" for n in range(60)]
    one = LimitRules(max_running=1)
    await layer(bench, FREE, max_running=4, queue=one, group=one)
    await layer(bench, PRO, max_running=4)
    await put_into(bench, FREE, many)
    for tenant in many:
        await bench.add(*(job(f"m{n}", tenant=tenant) for n in range(2)))
        await bench.add(*(job(f"g{n}", tenant=tenant, queue=AUDIO, group="g") for n in range(3)))
    assert len(await all_of(bench)) == 2 * len(many)
    assert await bench.claim(10) == []

    await put_into(bench, PRO, many)

    assert set(Counter(each.job.tenant for each in await all_of(bench)).values()) == {2}
    assert kept(engine, Space.TIER_LOOKS, Space.REGROUPS) == 0


async def test_many_groups_are_opened_in_portions(bench: Bench, engine: Engine) -> None:
    """P13: of one tenant, and of many others beside it."""
    await layer(bench, "", group=LimitRules(max_running=1))
    groups = [(ACME, f"g{n:02}") for n in range(50)] + [(f"t{n}", "g") for n in range(30)]
    for tenant, group in groups:
        await bench.put(*(f"{group}-{n}" for n in range(3)), tenant=tenant, group=group)
    assert len(await all_of(bench)) == len(groups)

    await layer(bench, "", group=LimitRules(max_running=2))

    assert len(await bench.claim(1)) == 1
    assert kept(engine, Space.TIER_LOOKS) == 1
    assert len(await all_of(bench)) == len(groups) - 1
    assert kept(engine, Space.TIER_LOOKS) == 0


@pytest.mark.parametrize("named", [False, True])
async def test_a_tenant_with_many_groups_keeps_no_other_waiting(
    bench: Bench, engine: Engine, named: bool
) -> None:
    """P19: its groups are opened in rounds, and the first portion comes to the last tenant."""
    await layer(bench, "", group=LimitRules(max_running=1))
    for n in range(60):
        await bench.put(f"{n}-a", f"{n}-b", tenant="a", group=f"g{n:02}")
    await bench.put("a", "b", tenant="z", group="g")
    assert len(await all_of(bench)) == 61

    await layer(bench, "", group=LimitRules(max_running=2))
    [lease] = await bench.claim(1, **({"tenants": ("a",)} if named else {}))

    assert kept(engine, Space.TIER_LEFT) == 1
    assert "z" in shares([lease, *await bench.claim(1, tenants=("z",))])
    assert len(await all_of(bench)) == 59
    assert kept(engine, Space.TIER_LOOKS, Space.TIER_LEFT) == 0


@pytest.mark.usefixtures("at_once")
async def test_a_tenant_with_many_lines_is_opened_in_rounds(bench: Bench, engine: Engine) -> None:
    """P13: none of its lines is left, also under a change that comes between."""
    await layer(bench, "", queue=LimitRules(max_running=1))
    await bench.add(*(job(f"{q}-{n}", queue=f"q{q}") for q in range(250) for n in range(3)))
    assert len(await all_of(bench)) == 250
    assert kept(engine, Space.RESTING) == 250

    await layer(bench, "", queue=LimitRules(max_running=2))
    got = len(await bench.claim(1))
    assert kept(engine, Space.TIER_LEFT) == 1
    await layer(bench, "", queue=LimitRules(max_running=3))

    assert got + len(await all_of(bench)) == 500
    assert kept(engine, Space.TIER_LOOKS, Space.TIER_LEFT) == 0


async def test_a_tenant_that_leaves_a_raised_tier_is_not_forgotten(
    bench: Bench, engine: Engine
) -> None:
    """P13: for one with the same values, before claims have come to it."""
    for tier, most in ((FREE, 1), (PRO, 2)):
        await layer(bench, tier, group=LimitRules(max_running=most))
    await put_into(bench, FREE, [ACME])
    await bench.put("a", "b", "c", group="g")
    assert len(await all_of(bench)) == 1

    await layer(bench, FREE, group=LimitRules(max_running=2))
    await put_into(bench, PRO, [ACME])

    assert len(await all_of(bench)) == 1
    assert kept(engine, Space.TIER_LOOKS) == 0


async def test_a_record_that_is_no_record_stops_its_group_alone(bench: Bench) -> None:
    """P19: claims that look at what a raised tier opened go on without it."""
    await layer(bench, "", group=LimitRules(max_running=1))
    await bench.put("a", "bad", group="g")
    await bench.put("a", "b", group="g", tenant=GLOBEX)
    assert len(await all_of(bench)) == 2
    store = bench.store
    assert isinstance(store, FoundationStore)

    async def damage(step: Any) -> None:
        step.put(step.keys.row(ACME, "bad"), b"\xc1garbage")

    await store._write(damage)
    await layer(bench, "")

    assert [one.job.tenant for one in await all_of(bench)] == [GLOBEX]


async def test_a_large_group_is_opened_in_portions(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P13, P15: none of its jobs stays behind when the limit of groups is gone."""
    monkeypatch.setattr(limits_groups, "GRANTS_MAX", 20)
    await layer(bench, "", group=LimitRules(max_running=1))
    await bench.put(*(f"j{n}" for n in range(900)), group="g")
    assert len(await all_of(bench)) == 1

    await layer(bench, "")

    assert len(await bench.claim(1)) == 1
    assert kept(engine, Space.TIER_LOOKS) == 1
    assert len(await all_of(bench)) == 898
    assert kept(engine, Space.TIER_LOOKS) == 0


async def test_jobs_of_a_group_that_is_limited_later_stop_no_others(bench: Bench) -> None:
    """P9, P13: they leave the line, and what is behind them is reached."""
    await bench.put(*(f"j{n}" for n in range(900)), group="g")
    await bench.put("behind")

    await layer(bench, "", group=LimitRules(max_running=1))

    assert ids(await all_of(bench)) == ["j0", "behind"]


@pytest.mark.usefixtures("at_once")
async def test_a_line_that_rests_by_a_limit_of_its_own_opens_too(
    bench: Bench, engine: Engine
) -> None:
    """P13: a ceiling comes over it while it rests, and goes again."""
    await bench.configure(tenant_of(), max_running=2)
    await bench.put(*"abcde")
    held = await bench.claim(10)
    assert await bench.claim(10) == []
    assert kept(engine, Space.RESTING) == 1

    await layer(bench, "", ceiling=Ceiling(max_running=1))
    await bench.end(held[0], Completed())
    assert await all_of(bench) == []
    await layer(bench, "")

    assert len(await all_of(bench)) == 1


async def test_upkeep_forgets_tenants_of_which_nothing_rests(bench: Bench, engine: Engine) -> None:
    """P19: what a busy day left behind is not looked through at the next change."""
    await layer(bench, "", group=LimitRules(max_running=1))
    await bench.put("a", "b", group="g")
    await bench.put("a", "b", group="g", tenant=GLOBEX)
    leases = await all_of(bench)
    assert kept(engine, Space.TIER_RESTS) == 2
    for lease in leases:
        if lease.job.tenant == ACME:
            await bench.end(lease, Completed())
    assert len(await bench.claim(10)) == 1

    await bench.store.prune(100, 0)

    assert kept(engine, Space.TIER_RESTS) == 1
    await layer(bench, "")
    assert [one.job.tenant for one in await all_of(bench)] == [GLOBEX]


@pytest.mark.usefixtures("at_once")
async def test_a_raised_tier_wakes_sleepers_of_other_processes(
    bench: Bench, engine: Engine
) -> None:
    """P10: by the topic of the platform, which they watch where there are tiers."""
    await at_rest(bench, engine, FREE, 3)
    other = FoundationStore(Options(prefix=PREFIX), bench.clock, engine.database())
    await other.open()
    away = Bench(lambda: other, bench.clock)

    async with asleep(away, Watch(queues=("mail",))) as sleeper:
        assert not sleeper.done()
        await layer(bench, FREE, max_running=2)

    assert len(await bench.claim(10)) == 3
    await other.close()
