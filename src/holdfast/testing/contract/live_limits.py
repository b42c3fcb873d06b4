"""Limits changed live (P13): a new limit applies at once, to waiting and to running jobs."""

from __future__ import annotations

from holdfast.core.job import Completed, Reason
from holdfast.core.scope import GroupRules, Scope
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import CRAWL, RULES, ids, job, queue_of, rules
from holdfast.testing.contract.inside import crawl, each_scope


@each_scope
async def test_a_raised_limit_counts_at_once(bench: Bench, scope: Scope) -> None:
    """P13: the next claim has the new room."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b", "c", "d")
    await bench.claim(10)

    await bench.configure(scope, max_running=3)

    assert ids(await bench.claim(10)) == ["b", "c"]


@each_scope
async def test_a_lowered_limit_lets_nothing_start_until_it_fits(bench: Bench, scope: Scope) -> None:
    """P13: running jobs may finish; places above the new limit are not given again."""
    await bench.configure(scope, max_running=4)
    await crawl(bench, *(f"j{n}" for n in range(8)))
    leases = await bench.claim(10)

    await bench.configure(scope, max_running=2)

    for lease in leases[:2]:
        assert await bench.claim(10) == []
        await bench.end(lease, Completed())
    assert await bench.claim(10) == []
    await bench.end(leases[2], Completed())
    assert ids(await bench.claim(10)) == ["j4"]
    assert await bench.running(scope) == 2


@each_scope
async def test_a_lowered_limit_counts_for_jobs_that_were_ready(bench: Bench, scope: Scope) -> None:
    """P13: what stood ready under the old limit falls under the new one."""
    await crawl(bench, "a", "b", "c")

    await bench.configure(scope, max_running=1)

    assert ids(await bench.claim(10)) == ["a"]


@each_scope
async def test_a_deleted_limit_is_gone_at_once(bench: Bench, scope: Scope) -> None:
    """P13: without a setting nothing is held back."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b", "c")
    await bench.claim(10)

    await bench.configure(scope)

    assert ids(await bench.claim(10)) == ["b", "c"]


@each_scope
async def test_a_new_limit_counts_what_runs_already(bench: Bench, scope: Scope) -> None:
    """P13: leases from before the limit take places under it."""
    await crawl(bench, "a", "b", "c", "d")
    first, _ = await bench.claim(2)

    await bench.configure(scope, max_running=2)
    assert await bench.claim(10) == []

    await bench.end(first, Completed())
    assert ids(await bench.claim(10)) == ["c"]


@each_scope
async def test_limits_survive_the_store_object(bench: Bench, scope: Scope) -> None:
    """P1, P13: a durable store knows its limits and its running jobs after a restart."""
    bench.needs("durable")
    await bench.configure(scope, max_running=2)
    await crawl(bench, "a", "b", "c")
    lease = await bench.one()

    await bench.reopen()

    assert ids(await bench.claim(10)) == ["b"]
    await bench.end(lease, Completed())
    assert ids(await bench.claim(10)) == ["c"]


async def test_a_changed_default_counts_for_all_groups_at_once(bench: Bench) -> None:
    """P13: a new default of a queue applies to its waiting groups."""
    await bench.configure(queue_of(), groups=GroupRules(max_running=1))
    await bench.add(*(job(f"{g}{n}", group=g) for g in "xy" for n in range(4)))
    assert sorted(ids(await bench.claim(10))) == ["x0", "y0"]

    await bench.configure(queue_of(), groups=GroupRules(max_running=2))
    assert sorted(ids(await bench.claim(10))) == ["x1", "y1"]

    await bench.configure(queue_of())
    assert sorted(ids(await bench.claim(10))) == ["x2", "x3", "y2", "y3"]


@each_scope
async def test_a_lapsed_last_attempt_keeps_its_place_until_upkeep(
    bench: Bench, scope: Scope
) -> None:
    """P11, P13: what upkeep has yet to end counts as running; then its place is free at once."""
    await bench.configure(scope, max_running=1)
    await bench.add(
        job("a", group=CRAWL, rules=rules(max_attempts=1)), job("b", group=CRAWL, rules=RULES)
    )
    assert ids(await bench.claim(10)) == ["a"]
    bench.clock.advance(61)

    assert await bench.claim(10) == []
    await bench.upkeep()

    assert (await bench.get("a")).reason is Reason.LEASE_EXPIRED
    assert ids(await bench.claim(10)) == ["b"]
