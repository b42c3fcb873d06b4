"""Tiers on PostgreSQL: what a change of one reaches, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.postgres.row_jobs import step

from holdfast.core.bounds import CLAIM_MAX, REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput, StaleSetting
from holdfast.core.job import Completed, Lease
from holdfast.core.rate import Rate, rate
from holdfast.core.scope import ScopeSettings, encode
from holdfast.core.tiers import Defaults, LimitRules, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.store import Put, Watch
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    AUDIO,
    GLOBEX,
    MAIL,
    ids,
    job,
    over_all,
    queue_of,
    tenant_of,
)
from holdfast.testing.contract.platform import shares
from holdfast.testing.contract.tiers import FREE, PRO, layer
from holdfast.testing.contract.wait import asleep

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

LOOKS_MAX = REPAIR_MAX * REPAIR_PASSES_MAX
ONE, TWO = LimitRules(max_running=1), LimitRules(max_running=2)
ROUNDS = 10


@pytest.fixture
async def bench(store: PostgresStore, url: str) -> AsyncIterator[Bench]:
    """Of the store that `connect` works beside."""
    clock = store._clock
    assert isinstance(clock, ManualClock)
    bench = Bench(lambda: PostgresStore.from_url(url, clock), clock)
    await bench.open()
    yield bench
    await bench.close()


async def all_of(bench: Bench, **options: Any) -> list[Lease]:
    """What claims give until callers would wait."""
    return [lease for _ in range(20) for lease in await bench.claim(CLAIM_MAX, **options)]


async def at_limit(bench: Bench, tier: str, number: int) -> list[str]:
    """So many tenants of a tier with one job each running, which is all that it lets them."""
    await layer(bench, tier, max_running=1)
    names = [f"{tier}{n:03}" for n in range(number)]
    settings = encode(ScopeSettings(tier=tier))
    await bench.store.settings([Put(tenant_of(name).name, settings, 0) for name in names])
    await bench.add(*(job(f"j{n}", tenant=name) for name in names for n in range(2)))
    assert len(await all_of(bench)) == number
    return names


async def left(connect: Connect, table: str) -> int:
    found: int = await (await connect()).fetchval(f"SELECT count(*) FROM {table}")
    return found


# -- what a change reaches -------------------------------------------------------------------------


@pytest.mark.parametrize("claims", [{"tenants": ("pro450",)}, {"queues": (AUDIO,)}], ids=str)
async def test_a_claim_that_names_what_it_wants_finds_it_under_a_raised_tier(
    bench: Bench, claims: dict[str, Any]
) -> None:
    """P13: at once, also if it comes after hundreds of others."""
    await at_limit(bench, PRO, 460)
    await bench.put("there", tenant="pro450", queue=AUDIO)

    await layer(bench, PRO, max_running=2)

    assert shares(await bench.claim(1, **claims)) == {"pro450": 1}


async def test_a_claim_for_others_looks_at_one_portion(bench: Bench, connect: Connect) -> None:
    """P19: more would be of no use to it."""
    await at_limit(bench, PRO, 3 * REPAIR_MAX)
    await layer(bench, PRO, max_running=2)

    assert await bench.claim(CLAIM_MAX, tenants=("nobody",)) == []

    assert await left(connect, "resting") == 2 * REPAIR_MAX


@pytest.mark.parametrize("fields", [{"weight": 3, "max_running": 1}, {"max_queued": 9}], ids=str)
async def test_what_opens_nothing_is_not_looked_for(
    bench: Bench, connect: Connect, fields: dict[str, Any]
) -> None:
    """P19: neither by claims nor by those who wait, if only a weight or a cap changes."""
    await at_limit(bench, PRO, 3)

    await layer(bench, PRO, **{"max_running": 1, **fields})

    assert await left(connect, "looks") == 0


async def test_all_that_rests_of_a_tenant_comes_under_its_new_tier(bench: Bench) -> None:
    """P13: its queues and groups in portions, since there may be thousands."""
    number = REPAIR_MAX + 7
    await layer(bench, FREE, queue=LimitRules(max_running=number), group=ONE)
    await layer(bench, PRO, group=TWO)
    await bench.configure(tenant_of(), tier=FREE)
    for group in range(number):
        await bench.put(*(f"{group}-{n}" for n in range(3)), group=f"g{group}")
    assert len(await all_of(bench)) == number

    await bench.configure(tenant_of(), tier=PRO)

    assert len(await all_of(bench)) == number


async def test_all_queues_of_a_tenant_come_under_a_raised_default(bench: Bench) -> None:
    """P13: as its groups do; also when counts were added up anew in between."""
    number = 2 * REPAIR_MAX + 7
    await layer(bench, "", queue=ONE)
    for queue in range(number):
        await bench.put(f"{queue}-a", f"{queue}-b", queue=f"q{queue}")
    assert len(await all_of(bench)) == number
    await bench.store.count(None, recount=True)
    await bench.store.prune(1000, 0)

    await layer(bench, "", queue=TWO)

    assert len(await all_of(bench)) == number


async def test_a_tenant_with_many_groups_does_not_delay_the_others(bench: Bench) -> None:
    """P19: it is looked at in portions, and the others of its tier by the claims that name them."""
    await layer(bench, "", group=ONE)
    for group in range(REPAIR_MAX):
        await bench.put(f"{group}-a", f"{group}-b", group=f"g{group}", queue=AUDIO)
    await bench.put("a", "b", tenant="zoe", group="g")
    await all_of(bench)

    await layer(bench, "", group=TWO)

    assert shares(await bench.claim(1, queues=(MAIL,))) == {"zoe": 1}


async def test_a_large_group_goes_on_in_order_when_its_limit_is_gone(bench: Bench) -> None:
    """P9, P15: in portions, and before what is enqueued later."""
    number = 2 * CLAIM_MAX + 500
    await layer(bench, "", group=ONE)
    for start in range(0, number, 500):
        await bench.put(*(f"{n:04}" for n in range(start, start + 500)), group="g")
    first = await bench.claim(10)
    await layer(bench, "")
    await bench.put("last", group="g")

    found = ids(first + await all_of(bench))

    assert found == [*(f"{n:04}" for n in range(number)), "last"]


async def test_jobs_of_a_group_that_is_limited_later_stop_no_others(bench: Bench) -> None:
    """P9, P15: they leave the line in portions, and what is behind them is reached."""
    for start in range(0, LOOKS_MAX + 500, 500):
        await bench.put(*(f"j{n}" for n in range(start, start + 500)), group="g")
    await bench.put("behind")

    await layer(bench, "", group=ONE)

    assert [ids(await bench.claim(10)) for _ in range(3)] == [["j0"], ["behind"], []]


@pytest.mark.parametrize("limited", [False, True], ids=["plain", "by_platform"])
async def test_a_lowered_default_hides_no_other_tenant(
    bench: Bench, connect: Connect, limited: bool
) -> None:
    """P15, P19: a claim meets so many tenants without room at most, and the next goes on."""
    number = LOOKS_MAX + 500
    names = [f"t{n:04}" for n in range(number)]
    await layer(bench, "", max_running=1)
    for start in range(0, number, 500):
        some = names[start : start + 500]
        await bench.add(*(job(f"j{n}", tenant=name) for name in some for n in range(2)))
    assert len(await all_of(bench)) == number
    if limited:
        await bench.configure(over_all(MAIL), max_running=number + 7)
    await layer(bench, "", max_running=2)
    while await left(connect, "looks"):
        assert await bench.claim(1, queues=("nothing",)) == []
    await bench.put("j", tenant="zoe")
    await layer(bench, "", max_running=1)

    found: list[Lease] = []
    for claims in range(1, 5):
        found += await bench.claim(10)
        # The next claim closes what this one has met.
        assert await left(connect, "resting") <= (claims - 1) * LOOKS_MAX

    assert shares(found) == {"zoe": 1}


async def test_what_came_in_under_a_default_that_is_gone_is_let_in(
    bench: Bench, connect: Connect
) -> None:
    """P10: an enqueue that was not committed when the default for groups went."""
    await layer(bench, "", group=ONE)
    connection = await connect()
    async with connection.transaction():
        assert isinstance(bench.store, PostgresStore)
        await enqueue_jobs(step(bench.store, connection), [job(n, group="g") for n in "abc"])
        await layer(bench, "")
        assert await all_of(bench) == []
        await bench.store.prune(1000, 0)

    assert ids(await bench.claim(10)) == ["a", "b", "c"]


async def test_a_line_is_checked_when_its_own_settings_are_gone(bench: Bench) -> None:
    """P13: its queue has no settings by then, and no tier limits it."""
    queue = queue_of(MAIL, GLOBEX)
    await bench.configure(queue, max_running=1)
    await bench.put("a", "b", tenant=GLOBEX)
    assert len(await bench.claim(10)) == 1
    assert await bench.claim(10) == []
    [setting] = await bench.store.settings(under=queue.name)

    await bench.store.settings([Put(queue.name, None, setting.version)])

    assert ids(await bench.claim(10)) == ["b"]


async def test_a_line_without_settings_waits_for_the_rate_of_its_tier(bench: Bench) -> None:
    """P10, P13: time alone opens it."""
    await layer(bench, "", queue=LimitRules(rate=rate("1/s")))
    await bench.put("a", "b", "c")
    assert ids(await bench.claim(10)) == ["a"]
    assert await bench.claim(10) == []
    await bench.store.count(None, recount=True)

    for id in "bc":
        bench.clock.advance(1)
        assert ids(await bench.claim(10)) == [id]
        assert await bench.claim(10) == []


async def test_a_bucket_counts_from_the_change_of_its_tier_not_of_others(bench: Bench) -> None:
    """P13: a bucket that filled under its new rate is not emptied by what happens elsewhere."""
    await layer(bench, FREE, queue=LimitRules(rate=rate("2/h")))
    await layer(bench, PRO, queue=LimitRules(rate=Rate(1, SECOND, 4)))
    await bench.configure(tenant_of(), tier=FREE)
    await bench.put(*(f"j{n}" for n in range(20)))
    assert len(await bench.claim(10)) == 2

    await bench.configure(tenant_of(), tier=PRO)
    assert await bench.claim(10) == []
    bench.clock.advance(3)
    await layer(bench, FREE, queue=LimitRules(rate=rate("1/h")))

    assert len(await bench.claim(10)) == 3


async def test_who_waits_looks_again_while_something_may_have_room(bench: Bench) -> None:
    """P10: a claim that stopped at its bound is followed by another."""
    await at_limit(bench, PRO, 2 * REPAIR_MAX)
    await layer(bench, PRO, max_running=2)
    await bench.claim(1)

    async with asleep(bench, Watch(queues=("nothing",))) as sleeper:
        pass

    assert sleeper.done()


async def test_what_many_calls_have_named_is_checked_in_portions(
    bench: Bench, connect: Connect
) -> None:
    """P15: claims give what was checked, and the next ones go on until nothing is left."""
    number = LOOKS_MAX + 500
    await layer(bench, "", group=ONE)
    for start in range(0, number, 250):
        groups = range(start, start + 250)
        await bench.add(*(job(f"{n}-{g}", group=f"g{g}") for g in groups for n in range(2)))

    assert await bench.claim(1, queues=("nothing",)) == []
    assert await left(connect, "unchecked") == number - LOOKS_MAX

    assert len(await all_of(bench)) == number
    assert await left(connect, "unchecked") == 0


# -- races, and what is stored ---------------------------------------------------------------------


async def test_a_tier_is_not_deleted_while_somebody_enters_it(bench: Bench) -> None:
    """P15: of both calls at once one is refused, whichever comes first."""
    for n in range(ROUNDS):
        tier, tenant = f"tier{n}", tenant_of(f"t{n}").name
        await layer(bench, tier, max_running=1)
        [setting] = await bench.store.settings(under=name_of(tier))
        enters = Put(tenant, encode(ScopeSettings(tier=tier)), 0)
        goes = Put(name_of(tier), None, setting.version)

        done = await asyncio.gather(
            *(bench.store.settings([put]) for put in ((enters, goes), (goes, enters))[n % 2]),
            return_exceptions=True,
        )

        assert [type(each) for each in done if isinstance(each, Exception)] == [InvalidInput]


async def test_changes_of_defaults_and_tiers_at_once_all_count(bench: Bench) -> None:
    """P15: nobody waits for each other in a circle, and the last version of each is what counts."""

    async def change(name: str, most: int) -> None:
        found = [one for one in await bench.store.settings(under=name) if one.name == name]
        value = encode_tier(Defaults(max_running=most))
        try:
            await bench.store.settings([Put(name, value, found[0].version if found else 0)])
        except StaleSetting:
            return

    names = (name_of(""), name_of(FREE), name_of(PRO))
    await asyncio.gather(*(change(name, n) for n in range(1, 9) for name in names))
    await asyncio.gather(*(bench.claim(10) for _ in range(4)), *(change(name, 3) for name in names))
    await bench.configure(tenant_of(), tier=PRO)
    await bench.put(*"abcdefghijk")

    found = {one.name: one.value for one in await bench.store.settings(under=name_of(""))}
    assert len(found) == 3
    assert found[name_of(PRO)] == encode_tier(Defaults(max_running=len(await all_of(bench))))


async def test_tiers_that_are_gone_leave_nothing_behind(bench: Bench, connect: Connect) -> None:
    """P19: no list of what had no room, and nothing to look for."""
    await layer(bench, "", queue=ONE, group=ONE)
    names = await at_limit(bench, PRO, 5)
    await bench.put("a", "b", group="g")
    await bench.put("c", "d", queue=AUDIO)
    await all_of(bench)
    assert await left(connect, "resting") > 0

    for name in names:
        await bench.configure(tenant_of(name))
    await layer(bench, "")
    await layer(bench, PRO)
    for lease in await all_of(bench):
        await bench.end(lease, Completed())
    assert await bench.claim(1) == []

    assert [await left(connect, table) for table in ("resting", "looks", "tiers")] == [0, 0, 1]
