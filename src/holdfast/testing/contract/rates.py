"""Rates: the maximum rate of job starts of a scope, by a token bucket on the store's clock (P8)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Failed, Released
from holdfast.core.rate import rate
from holdfast.core.scope import GroupRules, Scope
from holdfast.store import Act, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    CRAWL,
    GLOBEX,
    MAIL,
    changing,
    group_of,
    ids,
    job,
    queue_of,
    tenant_of,
)
from holdfast.testing.contract.inside import crawl, each_scope, each_tenant_scope
from holdfast.testing.contract.wait import BOUND_S, SLEEP_S


async def many(bench: Bench, count: int, prefix: str = "j") -> None:
    await crawl(bench, *(f"{prefix}{n:03}" for n in range(count)))


async def test_a_rate_starts_as_many_as_its_burst(bench: Bench) -> None:
    """P13: a full bucket, then nothing until there is a token."""
    await bench.configure(queue_of(), rate=rate("10/s", burst=3))
    await many(bench, 10)

    assert ids(await bench.claim(10)) == ["j000", "j001", "j002"]
    assert await bench.claim(10) == []


@each_scope
async def test_a_token_is_there_at_its_very_instant(bench: Bench, scope: Scope) -> None:
    """P8, P13: not a microsecond early, and without upkeep."""
    await bench.configure(scope, rate=rate("1/s", burst=2))
    await many(bench, 10)
    start = bench.clock.now()
    assert len(await bench.claim(10)) == 2

    bench.clock.set(start + SECOND - bench.store.capabilities.time_precision_us)
    assert await bench.claim(10) == []

    bench.clock.set(start + SECOND)
    assert ids(await bench.claim(10)) == ["j002"]
    assert await bench.claim(10) == []


@each_scope
async def test_an_idle_bucket_never_holds_more_than_its_burst(bench: Bench, scope: Scope) -> None:
    """P13: a long idle time does not fill the bucket above its burst."""
    await bench.configure(scope, rate=rate("1/s", burst=3))
    await many(bench, 20)
    assert len(await bench.claim(20)) == 3

    bench.clock.advance(24 * 3600)
    await many(bench, 20, "k")

    assert len(await bench.claim(20)) == 3


@each_scope
@pytest.mark.parametrize("text", ["3/s", "7/m", "100/h"])
async def test_over_a_long_time_no_more_start_than_the_rate_allows(
    bench: Bench, scope: Scope, text: str
) -> None:
    """P13: burst and refill together are the bound, in every window that begins at the start."""
    wanted = rate(text, burst=2)
    await bench.configure(scope, rate=wanted)
    await many(bench, 60)
    start = bench.clock.now()
    started = 0
    for _ in range(40):
        leases = await bench.claim(5)
        for lease in leases:
            await bench.end(lease, Completed())
        started += len(leases)
        passed = bench.clock.now() - start
        assert started <= wanted.burst + passed * wanted.count // wanted.per_us
        bench.clock.set(bench.clock.now() + wanted.per_us // wanted.count // 2 + 1)
    assert started >= 20


@each_scope
async def test_the_end_of_a_job_gives_no_token_back(bench: Bench, scope: Scope) -> None:
    """P13: a rate counts starts, not what runs; retries and second claims are starts too."""
    await bench.configure(scope, rate=rate("1/m", burst=2))
    await many(bench, 5)
    first, second = await bench.claim(10)

    await bench.end(first, Failed("boom", after_us=0))
    await bench.end(second, Released())
    assert await bench.claim(10) == []

    bench.clock.advance(60)
    assert ids(await bench.claim(10)) == ["j000"]


async def test_a_job_needs_a_token_of_each_of_its_scopes(bench: Bench) -> None:
    """P13: the emptiest bucket counts, and only starts take tokens."""
    await bench.configure(tenant_of(), rate=rate("1/m", burst=5))
    await bench.configure(queue_of(), rate=rate("1/m", burst=3))
    await bench.configure(group_of(), rate=rate("1/m", burst=2))
    await many(bench, 5)
    await bench.put(*(f"m{n}" for n in range(5)))
    await bench.put(*(f"a{n}" for n in range(5)), queue=AUDIO)

    got = sorted(ids(await bench.claim(20)))

    assert got == ["a0", "a1", "j000", "j001", "m0"]
    assert await bench.claim(20) == []
    bench.clock.advance(60)
    assert len(await bench.claim(20)) == 1


async def test_one_group_over_two_queues_has_one_bucket(bench: Bench) -> None:
    """P13: what one queue started the other one cannot, and neither is forgotten."""
    await bench.configure(group_of(), rate=rate("1/s", burst=1))
    await crawl(bench, "m0", "m1", queue=MAIL)
    await crawl(bench, "a0", "a1", queue=AUDIO)

    taken = []
    for _ in range(4):
        leases = await bench.claim(10)
        assert len(leases) == 1
        taken += ids(leases)
        bench.clock.advance(1)

    assert sorted(taken) == ["a0", "a1", "m0", "m1"]


async def test_a_job_that_ranks_before_another_takes_its_token(bench: Bench) -> None:
    """P9: the one that stood ready steps back, and starts with the next token."""
    await bench.configure(group_of(), rate=rate("1/s", burst=1))
    await crawl(bench, "low")
    await crawl(bench, "high", priority=1)

    [lease] = await bench.claim(10)
    assert lease.job.id == "high"
    await bench.end(lease, Completed())
    assert await bench.claim(10) == []

    bench.clock.advance(1)
    assert ids(await bench.claim(10)) == ["low"]


@each_tenant_scope
async def test_a_rate_is_one_tenants_own(bench: Bench, scope: Scope) -> None:
    """P7: the same names in another tenant have other buckets."""
    await bench.configure(scope, rate=rate("1/m"))
    await crawl(bench, "a", "b")
    await crawl(bench, "g", "h", tenant=GLOBEX)

    assert sorted(ids(await bench.claim(10))) == ["a", "g", "h"]


async def test_an_empty_bucket_hides_no_other_job(bench: Bench) -> None:
    """P9: of other groups, queues and tenants."""
    await bench.configure(group_of(), rate=rate("1/h"))
    await bench.configure(queue_of(AUDIO), rate=rate("1/h"))
    await bench.add(*(job(f"g{n}", group=CRAWL, priority=9) for n in range(300)))
    await bench.put("free")
    await bench.put("a0", "a1", queue=AUDIO)

    assert sorted(ids(await bench.claim(10))) == ["a0", "free", "g0"]


async def test_a_queue_sets_the_rate_of_each_of_its_groups(bench: Bench) -> None:
    """P13: a bucket for each group; what a group says itself wins."""
    await bench.configure(queue_of(), groups=GroupRules(rate=rate("1/s")))
    await bench.configure(group_of("fast"), rate=rate("3/s"))
    for group in ("x", "y", "fast"):
        await bench.put(*(f"{group}{n}" for n in range(4)), group=group)

    assert sorted(ids(await bench.claim(20))) == ["fast0", "fast1", "fast2", "x0", "y0"]
    bench.clock.advance(1)
    assert {"x1", "y1"} <= set(ids(await bench.claim(20)))


@each_scope
async def test_the_wait_ends_when_a_token_is_there(bench: Bench, scope: Scope) -> None:
    """P10: a waiting worker is woken when the next token is available."""
    await bench.configure(scope, rate=rate("1/s"))
    await many(bench, 2)
    await bench.end(await bench.one(), Completed())
    assert await bench.claim(1) == []

    bench.clock.advance(1)
    async with asyncio.timeout(BOUND_S):
        await bench.store.wait(Watch(tenants=(ACME,), queues=(MAIL,)), SLEEP_S)

    assert ids(await bench.claim(10)) == ["j001"]


async def test_the_wait_ends_also_when_a_token_was_lost_to_another_queue(bench: Bench) -> None:
    """P10: a job that was put back for want of a token is looked at again in time."""
    await bench.configure(group_of(), rate=rate("1/s"))
    await crawl(bench, "m", queue=MAIL)
    await crawl(bench, "a", queue=AUDIO)
    [lease] = await bench.claim(10)
    await bench.end(lease, Completed())
    assert await bench.claim(10) == []

    bench.clock.advance(1)
    async with asyncio.timeout(BOUND_S):
        await bench.store.wait(Watch(), SLEEP_S)

    assert len(await bench.claim(10)) == 1


# -- changed live ----------------------------------------------------------------------------------


@each_scope
async def test_a_raised_rate_counts_from_now(bench: Bench, scope: Scope) -> None:
    """P13: the debts of a slow rate do not hold up a fast one."""
    await bench.configure(scope, rate=rate("1/d"))
    await many(bench, 20)
    assert len(await bench.claim(20)) == 1

    await bench.configure(scope, rate=rate("5/s"))
    bench.clock.advance(1)

    assert len(await bench.claim(20)) == 5


@each_scope
async def test_a_lowered_rate_counts_at_once(bench: Bench, scope: Scope) -> None:
    """P13: no token of the old rate is left over."""
    await bench.configure(scope, rate=rate("100/s"))
    await many(bench, 20)

    await bench.configure(scope, rate=rate("2/h"))

    assert len(await bench.claim(20)) == 2
    bench.clock.advance(1799)
    assert await bench.claim(20) == []
    bench.clock.advance(1)
    assert len(await bench.claim(20)) == 1


@each_scope
async def test_a_deleted_rate_is_gone_at_once(bench: Bench, scope: Scope) -> None:
    """P13: without a setting nothing is held back."""
    await bench.configure(scope, rate=rate("1/d"))
    await many(bench, 4)
    assert len(await bench.claim(20)) == 1

    await bench.configure(scope)

    assert len(await bench.claim(20)) == 3


async def test_a_new_default_rate_counts_from_now(bench: Bench) -> None:
    """P13: also for the groups of a queue."""
    await bench.configure(queue_of(), groups=GroupRules(rate=rate("1/d")))
    await many(bench, 20)
    assert len(await bench.claim(20)) == 1

    await bench.configure(queue_of(), groups=GroupRules(rate=rate("5/s")))
    bench.clock.advance(1)

    assert len(await bench.claim(20)) == 5


@each_scope
async def test_a_limit_and_a_rate_hold_together(bench: Bench, scope: Scope) -> None:
    """P13: a free place without a token, and a token without a place, start nothing."""
    await bench.configure(scope, rate=rate("1/s", burst=2), max_running=2)
    await many(bench, 10)
    first, _ = await bench.claim(10)

    bench.clock.advance(1)
    assert await bench.claim(10) == []
    await bench.end(first, Completed())
    assert len(await bench.claim(10)) == 1


async def test_deleting_the_first_in_line_takes_no_token(bench: Bench) -> None:
    """P13: only a start does."""
    await bench.configure(group_of(), rate=rate("1/h"))
    await crawl(bench, "a", "b", "c")
    await bench.store.change(changing(Act.DELETE, ids=("a",)))
    await bench.cancel("b")

    assert ids(await bench.claim(10)) == ["c"]


async def test_buckets_survive_the_store_object(bench: Bench) -> None:
    """P1, P13: a restart of a durable store fills no bucket."""
    bench.needs("durable")
    await bench.configure(queue_of(), rate=rate("1/m"))
    await many(bench, 3)
    await bench.claim(10)

    await bench.reopen()

    assert await bench.claim(10) == []
    bench.clock.advance(60)
    assert len(await bench.claim(10)) == 1
