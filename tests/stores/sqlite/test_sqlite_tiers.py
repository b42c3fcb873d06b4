"""Tiers: a change costs the same with many tenants, and what it opens goes on bit by bit."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.stores.sqlite.cost import FILL, Cost
from tests.stores.sqlite.tables import rows

from holdfast.core.bounds import CLAIM_MAX
from holdfast.core.job import Lease
from holdfast.core.rate import rate
from holdfast.core.scope import Scope, ScopeSettings, encode
from holdfast.core.tiers import Defaults, LimitRules, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.store import Claim, Put
from holdfast.stores.sqlite.claim import FULL_MAX
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, LEASE, job

FREE, PRO = "free", "pro"
FEW, MANY = 50, 2000
CLAIMS_MAX = 20
NUMBERS = count()


async def layer(store: SqliteStore, tier: str, **fields: Any) -> None:
    """Replaces the defaults of a tier, "" for the platform's; without arguments deletes them."""
    name = name_of(tier)
    found = [each for each in await store.settings(under=name) if each.name == name]
    value = encode_tier(Defaults(**fields)) if fields else None
    await store.settings([Put(name, value, found[0].version if found else 0)])


async def put_into(store: SqliteStore, tier: str, *tenants: str) -> None:
    """Puts tenants into a tier with one call."""
    puts = []
    for tenant in tenants:
        name = Scope(tenant).name
        found = [each for each in await store.settings(under=name) if each.name == name]
        version = found[0].version if found else 0
        puts.append(Put(name, encode(ScopeSettings(tier=tier)), version))
    await store.settings(puts)


class Claims:
    """Claims under a new nonce each."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def __call__(self, limit: int = 10, **options: Any) -> list[Lease]:
        nonce = f"n{next(NUMBERS)}"
        asked = Claim(worker="w", nonce=nonce, limit=limit, lease_us=LEASE, **options)
        return await self._store.claim(asked)

    async def all(self) -> list[Lease]:
        """The leases of CLAIMS_MAX large claims."""
        return [lease for _ in range(CLAIMS_MAX) for lease in await self(CLAIM_MAX)]


@pytest.fixture
def claims(store: SqliteStore) -> Claims:
    return Claims(store)


# -- flat ------------------------------------------------------------------------------------------


def at_limit(one: Cost, tenants: int) -> None:
    """So many tenants of `free`, and ten of `pro`, run one job each and may run no more."""
    one.fill(FILL.format(tenant=f"'t' || (n % {tenants})", queue="'mail'"), 2 * tenants)
    for tier, names in (
        (FREE, [f"t{n}" for n in range(tenants - 10)]),
        (PRO, [f"t{n}" for n in range(tenants - 10, tenants)]),
    ):
        one.set_tier(tier, 0, max_running=1)
        one.configure([Scope(name) for name in names], ScopeSettings(tier=tier))
    for _ in range(tenants):
        if not taken(one):
            break
    assert not taken(one)


def taken(one: Cost) -> list[Lease]:
    with one.transaction() as transaction:
        return one.take(transaction)


@pytest.mark.parametrize("tier", [FREE, PRO])
def test_a_change_of_a_tier_costs_the_same_with_many_tenants(
    cost: Callable[[], Cost], tier: str
) -> None:
    """P9: the change itself, and the next claim, which gets work of that tier."""
    changes, claims = [], []
    for tenants in (FEW, MANY):
        one = cost()
        at_limit(one, tenants)
        changes.append(one.count(partial(one.put_tier, tier=tier, version=1, max_running=2)))
        claims.append(one.claim_steps())

    assert changes[1] <= 1.5 * changes[0]
    assert claims[1] <= 1.5 * claims[0]


def test_a_lowered_tier_does_not_make_one_claim_close_everybody(
    cost: Callable[[], Cost],
) -> None:
    """P15: a claim closes FULL_MAX tenants at most, and the next one goes on."""
    one = cost()
    one.fill(FILL.format(tenant="'t' || (n % 3000)", queue="'mail'"), 6000)
    one.connection.execute("UPDATE jobs SET state = 'processing' WHERE seq <= 3000")
    one.fill("SELECT ?", 6000)
    one.set_tier("", 0, max_running=1)

    closed = []
    for _ in range(2):
        assert taken(one) == []
        query = "SELECT count(*) FROM counts WHERE kind = 'tenant' AND open = 0"
        closed += one.connection.execute(query).fetchone()

    assert closed == [FULL_MAX, 3000]


# -- bit by bit ------------------------------------------------------------------------------------


async def test_a_claim_that_names_a_tenant_looks_at_it_first(
    store: SqliteStore, claims: Claims
) -> None:
    """P13: however many others of its tier wait."""
    many = [f"t{n:03}" for n in range(400)]
    await layer(store, "", max_running=1)
    await store.enqueue([job(f"j{n}", tenant=tenant) for tenant in many for n in range(2)])
    assert len(await claims.all()) == 400

    await layer(store, "", max_running=2)

    assert [one.job.tenant for one in await claims(1, tenants=(many[-1],))] == [many[-1]]


async def test_defaults_do_not_concern_a_tier_that_sets_the_value(
    store: SqliteStore, path: Path, claims: Claims
) -> None:
    """P13: its tenants are not looked at, and nothing is left of the change when all is done."""
    await layer(store, "", max_running=1)
    await layer(store, PRO, max_running=1)
    await put_into(store, PRO, GLOBEX)
    for tenant in (ACME, GLOBEX):
        await store.enqueue([job(f"j{n}", tenant=tenant) for n in range(3)])
    assert len(await claims.all()) == 2

    await layer(store, "", max_running=2)

    assert rows(path, "reopen") == 1
    assert [one.job.tenant for one in await claims.all()] == [ACME]
    assert rows(path, "reopen") == 0


async def test_tenants_that_change_their_tier_together_go_on(
    store: SqliteStore, path: Path, claims: Claims
) -> None:
    """P13: their groups and queues too, and nothing is left to look at."""
    many = [f"t{n}" for n in range(300)]
    one = LimitRules(max_running=1)
    await layer(store, FREE, max_running=4, queue=one, group=one)
    await layer(store, PRO, max_running=4)
    await put_into(store, FREE, *many)
    for tenant in many:
        await store.enqueue([job(f"m{n}", tenant=tenant) for n in range(2)])
        await store.enqueue([job(f"g{n}", tenant=tenant, queue=AUDIO, group="g") for n in range(3)])
    assert len(await claims.all()) == 600

    await put_into(store, PRO, *many)

    assert set(Counter(each.job.tenant for each in await claims.all()).values()) == {2}
    assert rows(path, "reopen") == 0


async def test_a_large_group_is_opened_in_portions(store: SqliteStore, claims: Claims) -> None:
    """P13, P15: none of its jobs stays behind when the limit of groups is gone."""
    await layer(store, "", group=LimitRules(max_running=1))
    for start in range(0, 2 * CLAIM_MAX, 500):
        await store.enqueue([job(f"j{start + n}", group="g") for n in range(500)])
    assert len(await claims.all()) == 1

    await layer(store, "")

    assert len(await claims.all()) == 2 * CLAIM_MAX - 1


async def test_jobs_of_a_group_that_is_limited_later_stop_no_others(
    store: SqliteStore, claims: Claims
) -> None:
    """P9, P13: they leave the line bit by bit, and what is behind them is reached."""
    for start in range(0, FULL_MAX + 500, 500):
        await store.enqueue([job(f"j{start + n}", group="g") for n in range(500)])
    await store.enqueue([job("behind")])

    await layer(store, "", group=LimitRules(max_running=1))
    got = [[one.job.id for one in await claims()] for _ in range(3)]

    assert got == [["j0"], ["behind"], []]


async def test_a_recount_keeps_what_rests(store: SqliteStore, claims: Claims) -> None:
    """P13: a tier that is changed after it is found to have opened them."""
    one = LimitRules(max_running=1)
    await layer(store, "", max_running=2, queue=one, group=one)
    await store.enqueue([job(f"m{n}") for n in range(3)])
    await store.enqueue([job(f"g{n}", group="g", tenant=GLOBEX) for n in range(3)])
    assert len(await claims.all()) == 2

    await store.count(None, recount=True)
    assert await claims.all() == []
    await layer(store, "", max_running=2)

    assert len(await claims.all()) == 2


# -- rates -----------------------------------------------------------------------------------------


async def test_rates_count_from_the_instant_of_the_change(path: Path) -> None:
    """P13: of queues and groups too when their tenant changes its tier, and a change of something
    else delays no token.
    """
    clock = ManualClock()
    store = SqliteStore.from_url(f"sqlite:///{path}", clock)
    await store.open()
    claims = Claims(store)
    slow, fast = LimitRules(rate=rate("1/h")), LimitRules(rate=rate("1/s"))
    await layer(store, FREE, queue=slow, group=slow)
    await layer(store, PRO, queue=fast, group=fast)
    await put_into(store, FREE, ACME)
    await store.enqueue([job(f"m{n}") for n in range(9)])
    await store.enqueue([job(f"g{n}", queue=AUDIO, group="g") for n in range(9)])
    assert len(await claims()) == 2

    await put_into(store, PRO, ACME)
    assert await claims() == []
    clock.advance(0.9)
    await layer(store, PRO, queue=fast, group=fast, weight=5)
    assert await claims() == []
    clock.advance(0.1)

    assert len(await claims()) == 2
    assert await claims() == []
    await store.close()


# -- kept by others --------------------------------------------------------------------------------


async def test_another_process_sees_a_changed_tier_at_once(
    store: SqliteStore, path: Path, claims: Claims
) -> None:
    """P13: whoever has put it, and also a process that starts later."""
    await layer(store, PRO, max_running=1)
    await put_into(store, PRO, ACME)
    await store.enqueue([job(f"j{n}") for n in range(9)])
    assert len(await claims()) == 1
    other = SqliteStore.from_url(f"sqlite:///{path}")
    await other.open()
    try:
        assert await Claims(other)() == []
        await layer(other, PRO, max_running=3)
    finally:
        await other.close()

    assert len(await claims()) == 2


async def test_a_tier_that_cannot_be_read_stops_its_tenants_alone(
    store: SqliteStore, path: Path
) -> None:
    """P19: until it is put again."""
    await layer(store, PRO, max_running=5)
    await put_into(store, PRO, ACME)
    await store.enqueue([job("a"), job("b", tenant=GLOBEX)])
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE settings SET value = x'7b' WHERE name = ?", (name_of(PRO),))
    other = SqliteStore.from_url(f"sqlite:///{path}")
    await other.open()
    claims = Claims(other)
    try:
        assert [one.job.id for one in await claims()] == ["b"]
        await layer(other, PRO, max_running=4)
        assert [one.job.id for one in await claims()] == ["a"]
    finally:
        await other.close()
