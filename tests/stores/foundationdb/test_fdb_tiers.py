"""Tiers on FoundationDB: what a change of one costs, and that it reaches all that it may have
opened.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, Faults

from holdfast.core.bounds import CLAIM_MAX, REPAIR_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed, Lease
from holdfast.core.rate import rate
from holdfast.core.scope import Ceiling, ScopeSettings, encode
from holdfast.core.tiers import Defaults, LimitRules, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.store import Claim, Put, Watch
from holdfast.stores.foundationdb import claim_sharing, limits_groups
from holdfast.stores.foundationdb.fairness_lines import LINES_MAX
from holdfast.stores.foundationdb.layout import Keys, Space, after
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.overlay import Overlay, count_of
from holdfast.stores.foundationdb.rows import pack, setting_key
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, LEASE, ids, job, tenant_of
from holdfast.testing.contract.platform import shares
from holdfast.testing.contract.tiers import FREE, PRO, layer
from holdfast.testing.contract.wait import asleep

FEW, MANY = REPAIR_MAX + 50, 3 * REPAIR_MAX
"""A claim looks at REPAIR_MAX tenants first: it has a full portion to look at in both cases."""
CLAIMS_MAX = 30
PREFIX = "c"
KEYS = Keys(PREFIX.encode() + b"\0")
OF_TIERS = (Space.TIER_USERS, Space.TIER_RESTS, Space.TIER_LOOKS, Space.TIER_RATES)


class Cost:
    """Counts the keys and ranges that steps ask for, the rows they read, and what they write."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[bytes] = []
        self.rows = self.writes = 0
        ask, ask_range, range_ = Overlay.ask, Overlay.ask_range, Overlay.range
        hand_over = Overlay.hand_over

        def asked(step: Overlay, keys: Any) -> None:
            new = list(keys)
            self.asked += [key for key in new if key not in step._asked]
            ask(step, new)

        def asked_range(step: Overlay, begin: bytes, *args: Any, **options: Any) -> None:
            self.asked.append(begin)
            ask_range(step, begin, *args, **options)

        async def read(step: Overlay, *args: Any, **options: Any) -> Any:
            self.asked.append(args[0])
            found = await range_(step, *args, **options)
            self.rows += len(found)
            return found

        def handed_over(step: Overlay) -> None:
            self.writes += len(step._writes) + len(step._adds)
            hand_over(step)

        patch.setattr(Overlay, "ask", asked)
        patch.setattr(Overlay, "ask_range", asked_range)
        patch.setattr(Overlay, "range", read)
        patch.setattr(Overlay, "hand_over", handed_over)

    async def of(self, call: Any) -> tuple[tuple[int, int, int], Any]:
        """How much a call asked for, read and wrote; and what it gave."""
        self.asked, self.rows, self.writes = [], 0, 0
        result = await call
        return (len(self.asked), self.rows, self.writes), result


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Cost:
    return Cost(monkeypatch)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines rest as soon as a claim finds them without room."""
    monkeypatch.setattr(claim_sharing, "FULL_MAX", 1)


def kept(engine: Engine, *spaces: Space) -> int:
    """How many keys there are in these spaces."""
    database = engine.database()
    return sum(len(database.get_range(KEYS.all(s), after(KEYS.all(s)))) for s in spaces)


async def put_into(bench: Bench, tier: str, tenants: list[str]) -> None:
    """Puts tenants that have no settings into a tier, or replaces their settings."""
    for start in range(0, len(tenants), 100):
        puts = []
        for tenant in tenants[start : start + 100]:
            name = tenant_of(tenant).name
            found = await bench.store.settings(under=name, limit=1)
            version = found[0].version if found else 0
            puts.append(Put(name, encode(ScopeSettings(tier=tier)), version))
        await bench.store.settings(puts)


async def add(bench: Bench, names: list[str], jobs: int = 2, **options: Any) -> None:
    new = [job(f"j{n}", tenant=name, **options) for name in names for n in range(jobs)]
    for start in range(0, len(new), 500):
        await bench.add(*new[start : start + 500])


async def all_of(bench: Bench, **options: Any) -> list[Lease]:
    """What claims give, one after the other, until one gives nothing."""
    found: list[Lease] = []
    for _ in range(CLAIMS_MAX):
        some = await bench.claim(CLAIM_MAX, **options)
        found += some
        if not some:
            break
    return found


async def at_limit(bench: Bench, tier: str, number: int) -> list[str]:
    """So many tenants of a tier with one job each running, which is all that it lets them."""
    await layer(bench, tier, max_running=1)
    names = [f"{tier}{n:03}" for n in range(number)]
    await put_into(bench, tier, names)
    await add(bench, names)
    assert len(await all_of(bench)) == number
    return names


async def at_rest(bench: Bench, engine: Engine, tier: str, number: int) -> list[str]:
    """The same, and all lines that there are rest."""
    names = await at_limit(bench, tier, number)
    while kept(engine, Space.LINES):
        assert await bench.claim(10) == []
    return names


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


# -- rates -----------------------------------------------------------------------------------------


async def test_rates_count_from_the_instant_of_the_change(bench: Bench) -> None:
    """P13: of queues and groups too when their tenant changes its tier, and a change of something
    else delays no token.
    """
    slow, fast = LimitRules(rate=rate("1/h")), LimitRules(rate=rate("1/s"))
    await layer(bench, FREE, queue=slow, group=slow)
    await layer(bench, PRO, queue=fast, group=fast)
    await put_into(bench, FREE, [ACME])
    await bench.put(*(f"m{n}" for n in range(9)))
    await bench.put(*(f"g{n}" for n in range(9)), queue=AUDIO, group="g")
    assert len(await bench.claim(10)) == 2

    await put_into(bench, PRO, [ACME])
    assert await bench.claim(10) == []
    bench.clock.advance(0.9)
    await layer(bench, PRO, queue=fast, group=fast, weight=5)
    assert await bench.claim(10) == []
    bench.clock.advance(0.1)

    assert len(await bench.claim(10)) == 2
    assert await bench.claim(10) == []


@pytest.mark.usefixtures("at_once")
async def test_a_resting_line_opens_by_the_new_rate(bench: Bench, engine: Engine) -> None:
    """P13: also if its next token was an hour away."""
    await layer(bench, "", rate=rate("1/h"))
    await bench.put("a", "b", "c")
    assert len(await all_of(bench)) == 1
    assert kept(engine, Space.RESTING) == 1

    await layer(bench, "", rate=rate("1/s"))
    assert await all_of(bench) == []
    bench.clock.advance(1)

    assert len(await bench.claim(10)) == 1


# -- together with others --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
async def test_a_tier_is_deleted_or_joined_but_not_both(seed: int) -> None:
    """P13, P15: one of two at once fails, whichever comes second; also if commits are in doubt."""
    engine = Engine(faults=Faults(seed, delay=0.8, unknown=0.2))
    stores = [
        FoundationStore(Options(prefix=PREFIX, retry_s=600), None, engine.database())
        for _ in range(2)
    ]
    for store in stores:
        await store.open()
    await stores[0].settings([Put(name_of(PRO), encode_tier(Defaults(max_running=1)), 0)])
    calls = [
        stores[0].settings([Put(tenant_of().name, encode(ScopeSettings(tier=PRO)), 0)]),
        stores[1].settings([Put(name_of(PRO), None, 1)]),
    ]

    answers = await asyncio.gather(*calls, return_exceptions=True)

    engine.faults.heal()
    assert sorted(isinstance(each, InvalidInput) for each in answers) == [False, True]
    there = bool(await stores[0].settings(under=name_of(PRO)))
    [users] = [
        count_of(row.value)
        for row in engine.database().get_range(
            KEYS.all(Space.TIER_USERS), after(KEYS.all(Space.TIER_USERS))
        )
    ] or [0]
    assert there == bool(users)
    for store in stores:
        await store.close()


async def test_claims_of_different_tenants_do_not_conflict_under_tiers() -> None:
    """P19: the tier they share is read, and written by none."""
    engine = Engine(faults=Faults(3, delay=0.8))
    stores = [
        FoundationStore(Options(prefix=PREFIX, retry_s=600), None, engine.database())
        for _ in range(6)
    ]
    for store in stores:
        await store.open()
    await stores[0].settings([Put(name_of(""), encode_tier(Defaults(max_running=50)), 0)])
    for n in range(len(stores)):
        await stores[0].enqueue([job(f"j{i}", tenant=f"t{n}") for i in range(40)])
    before = engine.counts.conflicts

    async def work(n: int, store: FoundationStore) -> int:
        taken = 0
        for call in range(8):
            options: dict[str, Any] = {"nonce": f"{n}-{call}", "lease_us": LEASE}
            claim = Claim(worker="w", limit=5, tenants=(f"t{n}",), **options)
            taken += len(await store.claim(claim))
        return taken

    taken = await asyncio.gather(*(work(n, store) for n, store in enumerate(stores)))

    assert taken == [40] * len(stores)
    assert engine.counts.conflicts == before
    for store in stores:
        await store.close()


async def test_a_tier_that_cannot_be_read_stops_its_tenants_alone(bench: Bench) -> None:
    """P19: until it is put again."""
    await layer(bench, PRO, max_running=5)
    await put_into(bench, PRO, [ACME])
    await bench.put("a")
    await bench.put("b", tenant=GLOBEX)
    store = bench.store
    assert isinstance(store, FoundationStore)

    async def damage(step: Any) -> None:
        step.put(setting_key(step.keys, name_of(PRO)), pack((b"{", 2)))
        await step.settings.change("")

    await store._write(damage)

    assert ids(await bench.claim(10)) == ["b"]
    await store.settings([Put(name_of(PRO), encode_tier(Defaults(max_running=4)), 2)])
    assert ids(await bench.claim(10)) == ["a"]
