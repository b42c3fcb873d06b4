"""Limits, rates and pauses of the platform: the whole store, a queue or a type over all tenants.

What holds for every kind of scope is in the topics `limits`, `rates`, `pause` and `explain`, which
run over these scopes too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed, EventKind, Failed, Lease, State
from holdfast.core.rate import rate
from holdfast.core.scope import (
    PLATFORM,
    BlockerKind,
    Ceiling,
    GroupRules,
    Pause,
    Scope,
    ScopeSettings,
    encode,
)
from holdfast.store import Put, Watch
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    MAIL,
    RETRY_S,
    group_of,
    ids,
    job,
    over_all,
    queue_of,
    tenant_of,
    type_of,
)
from holdfast.testing.contract.inside import each_platform_scope
from holdfast.testing.contract.wait import asleep

INITECH = "initech"
PAUSE = Pause("the mail provider is down", "ann")


async def fill(bench: Bench, tenant: str, count: int, **options: Any) -> None:
    await bench.add(*(job(f"{tenant}-{n:03}", tenant=tenant, **options) for n in range(count)))


def shares(leases: list[Lease]) -> Counter[str]:
    return Counter(lease.job.tenant for lease in leases)


async def end(bench: Bench, lease: Lease) -> None:
    assert (await bench.end(lease, Completed())).error is None


# -- over all tenants ------------------------------------------------------------------------------


@each_platform_scope
async def test_a_limit_of_the_platform_counts_all_tenants(bench: Bench, scope: Scope) -> None:
    """P13: the jobs of all tenants together."""
    await bench.configure(scope, max_running=3)
    for tenant in (ACME, GLOBEX, INITECH):
        await fill(bench, tenant, 5)

    leases = await bench.claim(10)

    assert shares(leases) == {ACME: 1, GLOBEX: 1, INITECH: 1}
    assert await bench.claim(10) == []
    assert await bench.running(scope) == 3


@each_platform_scope
async def test_a_rate_of_the_platform_counts_all_tenants(bench: Bench, scope: Scope) -> None:
    """P13: the starts of all tenants together."""
    await bench.configure(scope, rate=rate("2/s"))
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 5)

    assert len(await bench.claim(10)) == 2
    assert await bench.claim(10) == []

    bench.clock.advance(1)
    assert len(await bench.claim(10)) == 2


async def test_all_limits_of_a_job_hold_together(bench: Bench) -> None:
    """P13: the store's, the queue's and the type's, the tenant's, its queue's and its group's."""
    await bench.configure(PLATFORM, max_running=6)
    await bench.configure(over_all(MAIL), max_running=5)
    await bench.configure(type_of("send"), max_running=4)
    await bench.configure(tenant_of(ACME), max_running=3)
    await bench.configure(queue_of(MAIL, ACME), max_running=2)
    await bench.configure(group_of("g", ACME), max_running=1)
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 9, group="g")
    await fill(bench, "more", 9, type="read")
    await fill(bench, "audio", 9, queue=AUDIO, type="read")

    leases = await bench.claim(100)
    leases += await bench.claim(100)

    by_type = Counter(lease.job.envelope.type for lease in leases)
    by_queue = Counter(lease.job.queue for lease in leases)
    assert len(leases) == 6
    assert by_type["send"] <= 4
    assert by_queue[MAIL] <= 5
    assert shares(leases)[ACME] == 1
    assert [await bench.running(scope) for scope in (PLATFORM, over_all(), type_of())] == [
        6,
        by_queue[MAIL],
        by_type["send"],
    ]


@each_platform_scope
async def test_a_limit_counts_the_jobs_that_run_already(bench: Bench, scope: Scope) -> None:
    """P13: a limit that is set below what runs starts nothing until enough have ended."""
    for tenant in (ACME, GLOBEX):
        await fill(bench, tenant, 4)
    held = await bench.claim(4)
    await bench.configure(scope, max_running=2)

    assert await bench.running(scope) == 4
    for lease in held[:2]:
        await end(bench, lease)
        assert await bench.claim(10) == []
    await end(bench, held[2])
    assert len(await bench.claim(10)) == 1


@each_platform_scope
async def test_a_place_is_free_for_every_tenant(bench: Bench, scope: Scope) -> None:
    """P13: who frees it has no claim to it."""
    await bench.configure(scope, max_running=1)
    await fill(bench, ACME, 3)
    lease = await bench.one()
    await fill(bench, GLOBEX, 3)

    got: Counter[str] = Counter()
    for _ in range(4):
        assert await bench.claim(10) == []
        await end(bench, lease)
        lease = await bench.one()
        got[lease.job.tenant] += 1

    assert got == {ACME: 2, GLOBEX: 2}


@each_platform_scope
async def test_a_lapsed_lease_frees_its_place_for_others(bench: Bench, scope: Scope) -> None:
    """P10, P13: at that very instant."""
    await bench.configure(scope, max_running=1)
    await fill(bench, ACME, 1)
    lease = await bench.one()
    await fill(bench, GLOBEX, 1)

    bench.clock.set(lease.until - bench.store.capabilities.time_precision_us)
    assert await bench.claim(10) == []
    bench.clock.set(lease.until)
    assert len(await bench.claim(10)) == 1
    assert await bench.running(scope) == 1


@each_platform_scope
async def test_a_retry_gives_its_place_away_until_it_is_due(bench: Bench, scope: Scope) -> None:
    """P13: and takes one again when it starts."""
    await bench.configure(scope, max_running=1)
    await fill(bench, ACME, 1)
    await bench.end(await bench.one(), Failed("boom"))
    await fill(bench, GLOBEX, 1)

    assert (await bench.one()).job.tenant == GLOBEX
    bench.clock.advance(RETRY_S)
    assert await bench.claim(10) == []


@each_platform_scope
async def test_a_limit_of_the_platform_that_is_gone_holds_nobody(
    bench: Bench, scope: Scope
) -> None:
    """P13: what waited goes on, in its order."""
    await bench.configure(scope, max_running=1)
    await fill(bench, ACME, 5)
    assert len(await bench.claim(10)) == 1
    assert await bench.claim(10) == []

    await bench.configure(scope)

    assert ids(await bench.claim(10)) == [f"{ACME}-{n:03}" for n in range(1, 5)]


@each_platform_scope
async def test_a_repeated_claim_takes_no_further_place(bench: Bench, scope: Scope) -> None:
    """P13, P15: it gets its own leases again."""
    await bench.configure(scope, max_running=2)
    await fill(bench, ACME, 5)

    once = await bench.claim(5, nonce="again")
    twice = await bench.claim(5, nonce="again")

    assert ids(once) == ids(twice)
    assert await bench.running(scope) == 2


# -- told ------------------------------------------------------------------------------------------


@each_platform_scope
async def test_holders_of_the_platform_are_told_by_tenant(bench: Bench, scope: Scope) -> None:
    """P13: how many places each tenant has, not whose jobs these are."""
    await bench.configure(scope, max_running=3)
    await fill(bench, ACME, 2)
    await fill(bench, GLOBEX, 1)
    assert len(await bench.claim(10)) == 3
    await bench.put("waits")

    gate = (await bench.gates("waits"))[BlockerKind.LIMIT]

    assert gate.scope == scope
    assert gate.holders == (f"{ACME}: 2", f"{GLOBEX}: 1")


@each_platform_scope
async def test_a_change_of_the_platform_is_an_event_of_no_tenant(
    bench: Bench, scope: Scope
) -> None:
    """P7, P14: an operator reads it, a tenant does not."""
    bench.needs("event_log")
    await bench.configure(scope, max_running=3, paused=PAUSE)

    page = await bench.store.events(None, 0, PAGE_MAX)
    [event] = [each for each in page.events if each.kind is EventKind.CONFIGURED]

    assert (event.tenant, event.job_id) == ("", scope.name)
    assert event.note == encode(ScopeSettings(max_running=3, paused=PAUSE)).decode()
    assert list((await bench.store.events(ACME, 0, PAGE_MAX)).events) == []


async def test_scopes_of_the_platform_are_counted_while_they_have_settings(bench: Bench) -> None:
    """P13: their running jobs, counted anew on demand."""
    await bench.configure(over_all(MAIL), max_running=5)
    await bench.configure(over_all(AUDIO), max_running=5)
    await bench.put("a", "b", "c")
    await bench.claim(2)

    for recount in (False, True):
        found = await bench.store.count("", recount=recount)
        running = {tally.queue: tally.counts.get(State.PROCESSING, 0) for tally in found}
        assert running == {AUDIO: 0, MAIL: 2}
        assert {tally.tenant for tally in found} == {""}
    assert await bench.store.count("", by=PLATFORM.kind) == []
    assert {tally.tenant for tally in await bench.store.count(None)} == {ACME}


# -- wake-ups --------------------------------------------------------------------------------------


@each_platform_scope
async def test_a_freed_place_of_the_platform_wakes_who_waits(bench: Bench, scope: Scope) -> None:
    """P10: nobody polls for room."""
    await bench.configure(scope, max_running=1)
    await fill(bench, ACME, 1)
    await fill(bench, GLOBEX, 1)
    lease = await bench.one()
    assert await bench.claim(10) == []
    tenant = GLOBEX if lease.job.tenant == ACME else ACME

    async with asleep(bench, Watch(tenants=(tenant,))) as sleeper:
        assert not sleeper.done()
        await end(bench, lease)

    assert len(await bench.claim(10)) == 1


@each_platform_scope
async def test_a_resumed_platform_wakes_who_waits(bench: Bench, scope: Scope) -> None:
    """P10: a pause that ends is heard of."""
    await bench.configure(scope, paused=PAUSE)
    await fill(bench, ACME, 1)
    assert await bench.claim(10) == []

    async with asleep(bench, Watch()) as sleeper:
        assert not sleeper.done()
        await bench.configure(scope)

    assert len(await bench.claim(10)) == 1


async def test_who_sleeps_hears_of_work_that_a_rate_holds_back(bench: Bench) -> None:
    """P10: it wakes, and learns when the next job may start."""
    await bench.configure(PLATFORM, rate=rate("1/s"))
    async with asleep(bench, Watch(tenants=(GLOBEX,))):  # It may also wake for nothing, before.
        await fill(bench, ACME, 1)
        assert len(await bench.claim(10)) == 1
        await fill(bench, GLOBEX, 1)

    bench.clock.advance(1)
    assert len(await bench.claim(10)) == 1


# -- bad input -------------------------------------------------------------------------------------

BAD: list[tuple[str, dict[str, Any]]] = [
    ("max_running", {"max_running": 0}),
    ("weight", {"weight": 2}),
    ("max_queued", {"max_queued": 2}),
    ("max_bytes", {"max_bytes": 2}),
    ("ordered", {"ordered": True}),
    ("groups", {"groups": GroupRules(max_running=1)}),
    ("ceiling", {"ceiling": Ceiling(max_running=1)}),
    ("slots_count", {"slots_count": True}),
]


@each_platform_scope
@pytest.mark.parametrize(("field", "fields"), BAD, ids=lambda each: str(each)[:20])
async def test_a_bad_setting_of_the_platform_is_refused(
    bench: Bench, scope: Scope, field: str, fields: dict[str, Any]
) -> None:
    """P15: InvalidInput names the field, and nothing is changed."""
    bench.needs("platform")
    with pytest.raises(InvalidInput) as caught:
        await bench.store.settings([Put(scope.name, encode(ScopeSettings(**fields)), 0)])

    assert caught.value.facts["field"] == field
    assert await bench.setting(scope) is None
    await fill(bench, ACME, 3)
    assert len(await bench.claim(10)) == 3
