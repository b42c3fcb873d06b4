"""Tiers on FoundationDB together with others: rates, who else changes them, what cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, Faults
from tests.stores.foundationdb.tier_bench import KEYS, PREFIX, all_of, kept, put_into

from holdfast.core.errors import InvalidInput
from holdfast.core.rate import rate
from holdfast.core.scope import ScopeSettings, encode
from holdfast.core.tiers import Defaults, LimitRules, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.store import Claim, Put
from holdfast.stores.foundationdb.layout import Space, after
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.overlay import count_of
from holdfast.stores.foundationdb.rows import pack, setting_key
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, LEASE, ids, job, tenant_of
from holdfast.testing.contract.tiers import FREE, PRO, layer

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
