"""Limits (P13): valid leases of a tenant, queue or group never exceed it, and no capacity leaks."""

from __future__ import annotations

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.job import (
    Abandoned,
    Completed,
    Failed,
    Outcome,
    Reason,
    Released,
    Snoozed,
    State,
)
from holdfast.core.scope import GroupRules, Scope
from holdfast.store import Act, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    HOUR,
    MAIL,
    RETRY_S,
    changing,
    group_of,
    ids,
    queue_of,
    rules,
    tenant_of,
)
from holdfast.testing.contract.inside import crawl, each_scope, each_tenant_scope
from holdfast.testing.contract.wait import asleep

OUTCOMES: dict[str, Outcome] = {
    "complete": Completed(),
    "failure for good": Failed("no", retryable=False),
    "retry": Failed("boom"),
    "retry at once": Failed("boom", after_us=0),
    "release": Released(),
    "late release": Released(delay_us=5 * SECOND),
    "snooze": Snoozed(delay_us=5 * SECOND),
    "shutdown": Abandoned(),
}
each_outcome = pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=list(OUTCOMES))


@each_scope
async def test_live_leases_never_exceed_a_limit(bench: Bench, scope: Scope) -> None:
    """P13: a claim for more gives what there is room for, and the next one nothing."""
    await bench.configure(scope, max_running=3)
    await crawl(bench, *(f"j{n}" for n in range(10)))

    assert ids(await bench.claim(10)) == ["j0", "j1", "j2"]
    assert await bench.claim(10) == []
    assert await bench.running(scope) == 3


@each_scope
async def test_single_claims_never_exceed_a_limit(bench: Bench, scope: Scope) -> None:
    """P13: claims of one job at a time reach the same number."""
    await bench.configure(scope, max_running=2)
    await crawl(bench, *(f"j{n}" for n in range(5)))

    taken = [ids(await bench.claim(1)) for _ in range(4)]

    assert taken == [["j0"], ["j1"], [], []]


@each_scope
@each_outcome
async def test_every_outcome_frees_its_place(bench: Bench, scope: Scope, outcome: Outcome) -> None:
    """P13: whatever the handler did, exactly one more may start."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b", "c")

    await bench.end(await bench.one(), outcome)

    assert len(await bench.claim(10)) == 1
    assert await bench.running(scope) == 1


@each_scope
@pytest.mark.parametrize("keep_us", [0, HOUR])
async def test_an_end_frees_its_place_kept_or_not(bench: Bench, scope: Scope, keep_us: int) -> None:
    """P13: a record that goes at once takes no place with it."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b", "c", rules=rules(keep_us=keep_us))

    await bench.end(await bench.one(), Completed())
    assert ids(await bench.claim(10)) == ["b"]

    await bench.cancel("b")
    assert ids(await bench.claim(10)) == ["c"]


@each_scope
async def test_a_lapsed_lease_frees_its_place_at_claim_time(bench: Bench, scope: Scope) -> None:
    """P10, P13: a dead worker's place is free at that very instant, without upkeep."""
    await bench.configure(scope, max_running=2)
    await crawl(bench, "a", "b", "c")
    first = await bench.claim(2)

    bench.clock.set(first[0].until - bench.store.capabilities.time_precision_us)
    assert await bench.claim(10) == []

    bench.clock.set(first[0].until)
    assert ids(await bench.claim(10)) == ["a", "b"]
    assert await bench.running(scope) == 2


@each_scope
async def test_upkeep_frees_the_places_of_lapsed_leases(bench: Bench, scope: Scope) -> None:
    """P11, P13: rescued or failed for good, the place is free."""
    await bench.configure(scope, max_running=2)
    await crawl(bench, "again")
    await crawl(bench, "spent", rules=rules(max_attempts=1))
    await crawl(bench, "next", "last")
    await bench.claim(2)

    bench.clock.advance(60)
    await bench.upkeep()

    assert (await bench.get("spent")).reason is Reason.LEASE_EXPIRED
    assert ids(await bench.claim(10)) == ["again", "next"]


async def test_a_lease_that_lapsed_elsewhere_frees_its_place_here(bench: Bench) -> None:
    """P10, P13: a claim of one queue sees the places that died in another one."""
    await bench.configure(tenant_of(), max_running=1)
    await bench.configure(group_of(), max_running=1)
    await crawl(bench, "a", queue=AUDIO)
    await bench.claim(1, queues=(AUDIO,))
    await crawl(bench, "b", queue=MAIL)
    assert await bench.claim(1, queues=(MAIL,)) == []

    bench.clock.advance(60)

    assert ids(await bench.claim(1, queues=(MAIL,))) == ["b"]
    assert await bench.claim(10) == []


@each_scope
async def test_extending_takes_no_second_place(bench: Bench, scope: Scope) -> None:
    """P13: a heartbeat neither takes nor frees a place."""
    await bench.configure(scope, max_running=2)
    await crawl(bench, "a", "b", "c")
    lease = await bench.one()

    await bench.extend(lease)
    await bench.extend(lease)

    assert ids(await bench.claim(10)) == ["b"]


@each_scope
async def test_a_refused_ack_frees_nothing(bench: Bench, scope: Scope) -> None:
    """P3, P13: a place is given up once; late and forged acks count for nothing."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b", "c")
    first = await bench.one()
    await bench.end(first, Completed())
    await bench.one()

    assert (await bench.end(first, Completed())).error is not None
    await bench.cancel("a")

    assert await bench.claim(10) == []
    assert await bench.running(scope) == 1


@each_scope
@pytest.mark.parametrize("act", [Act.DELETE, Act.RESCHEDULE])
async def test_a_ready_job_that_goes_leaves_its_place(bench: Bench, scope: Scope, act: Act) -> None:
    """P13: a first job that never runs delays no other job."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b")

    await bench.store.change(changing(act, ids=("a",), delay_us=HOUR))

    assert ids(await bench.claim(10)) == ["b"]


@each_scope
@pytest.mark.parametrize("keep_us", [0, HOUR])
async def test_a_ready_job_that_is_canceled_leaves_its_place(
    bench: Bench, scope: Scope, keep_us: int
) -> None:
    """P5, P13: a canceled job delays no other job, whether it is kept or not."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b", rules=rules(keep_us=keep_us))

    await bench.cancel("a")

    assert ids(await bench.claim(10)) == ["b"]


@each_scope
async def test_a_job_past_its_time_to_live_leaves_its_place(bench: Bench, scope: Scope) -> None:
    """P9, P13: it can no longer run, so it is in nobody's way, before upkeep and after."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", ttl_us=5 * SECOND)
    await crawl(bench, "b", "c")
    bench.clock.advance(5)

    await bench.end(await bench.one(), Completed())
    assert await bench.state("b") is State.COMPLETED
    await bench.upkeep()

    assert ids(await bench.claim(10)) == ["c"]


@each_scope
async def test_a_replay_needs_a_place_like_any_job(bench: Bench, scope: Scope) -> None:
    """P6, P13: the replay waits while another runs, then runs."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b")
    await bench.end(await bench.one(), Failed("no", retryable=False))
    second = await bench.one()

    await bench.store.change(changing(Act.REPLAY, ids=("a",)))
    assert await bench.claim(10) == []

    await bench.end(second, Completed())
    assert (await bench.one()).job.origin == "a"


@each_scope
async def test_a_retry_waits_for_a_place(bench: Bench, scope: Scope) -> None:
    """P13: a due retry does not push itself over the limit, and keeps its rank."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b", "c")
    await bench.end(await bench.one(), Failed("boom"))
    second = await bench.one()

    bench.clock.advance(RETRY_S)
    assert await bench.claim(10) == []

    await bench.end(second, Completed())
    assert ids(await bench.claim(10)) == ["a"]


# -- together --------------------------------------------------------------------------------------


async def test_the_smallest_of_all_limits_counts(bench: Bench) -> None:
    """P13: a job needs a place in its tenant, its queue and its group."""
    await bench.configure(tenant_of(), max_running=5)
    await bench.configure(queue_of(), max_running=3)
    await bench.configure(group_of(), max_running=2)
    await crawl(bench, *(f"g{n}" for n in range(5)))
    await bench.put(*(f"m{n}" for n in range(5)))
    await bench.put(*(f"a{n}" for n in range(5)), queue=AUDIO)

    got = ids(await bench.claim(20))

    assert sorted(got) == ["a0", "a1", "g0", "g1", "m0"]


async def test_one_group_over_two_queues_has_one_limit(bench: Bench) -> None:
    """P13: a group is one scope, wherever its jobs stand."""
    await bench.configure(group_of(), max_running=3)
    await crawl(bench, *(f"m{n}" for n in range(5)))
    await crawl(bench, *(f"a{n}" for n in range(5)), queue=AUDIO)

    leases = await bench.claim(2, queues=(MAIL,)) + await bench.claim(10)
    assert len(leases) == 3
    assert await bench.running(group_of()) == 3

    await bench.end(leases[0], Completed())
    assert len(await bench.claim(10, queues=(AUDIO,))) == 1
    assert await bench.claim(10) == []


@each_tenant_scope
async def test_a_limit_is_one_tenants_own(bench: Bench, scope: Scope) -> None:
    """P7, P13: queues and groups of the same name in two tenants share nothing."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b")
    await crawl(bench, "g", "h", tenant=GLOBEX)

    assert sorted(ids(await bench.claim(10))) == ["a", "g", "h"]


async def test_a_queue_sets_the_limit_of_each_of_its_groups(bench: Bench) -> None:
    """P13: by itself for each group; what a group says itself wins; jobs without one are free."""
    await bench.configure(queue_of(), groups=GroupRules(max_running=1))
    await bench.configure(group_of("wide"), max_running=2)
    for group in ("x", "y", "wide"):
        await bench.put(*(f"{group}{n}" for n in range(3)), group=group)
    await bench.put("free0", "free1")
    await bench.put("audio0", "audio1", queue=AUDIO, group="x2")

    got = sorted(ids(await bench.claim(20)))

    assert got == ["audio0", "audio1", "free0", "free1", "wide0", "wide1", "x0", "y0"]


@each_scope
async def test_a_freed_place_wakes_who_waits_for_work(bench: Bench, scope: Scope) -> None:
    """P10, P13: finishing hands the place on in the same step."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b")
    lease = await bench.one()
    assert await bench.claim(10) == []

    async with asleep(bench, Watch(tenants=(ACME,), queues=(MAIL,))) as sleeper:
        await bench.end(lease, Completed())

    assert sleeper.done()
    assert ids(await bench.claim(10)) == ["b"]
