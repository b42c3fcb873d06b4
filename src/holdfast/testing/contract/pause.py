"""Pause and resume of a tenant, queue or group: no new job starts, running jobs may finish."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, EventKind, State
from holdfast.core.scope import BlockerKind, Pause, Scope, decode
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
from holdfast.testing.contract.wait import asleep

PAUSE = Pause("the mail server is down", "ann")


@each_scope
async def test_nothing_of_a_paused_scope_starts(bench: Bench, scope: Scope) -> None:
    """P13: neither what was ready before the pause nor what came after it."""
    await crawl(bench, "before")
    await bench.configure(scope, paused=PAUSE)
    await crawl(bench, "after")
    await crawl(bench, "later", delay_us=5 * SECOND)
    bench.clock.advance(5)

    assert await bench.claim(10) == []
    assert await bench.claim(10, tenants=(ACME,), queues=(MAIL,)) == []
    assert await bench.state("before") is State.ENQUEUED


@each_scope
async def test_a_resumed_scope_goes_on_at_once(bench: Bench, scope: Scope) -> None:
    """P9: in the order it had."""
    await bench.configure(scope, paused=PAUSE)
    await crawl(bench, "a", "b")
    await crawl(bench, "top", priority=1)
    assert await bench.claim(10) == []

    await bench.configure(scope)

    assert ids(await bench.claim(10)) == ["top", "a", "b"]


@each_scope
async def test_running_jobs_may_finish_in_a_paused_scope(bench: Bench, scope: Scope) -> None:
    """P4: heartbeats and acks are as ever; what comes back waits."""
    await crawl(bench, "a", "b", "c")
    first, second, _ = await bench.claim(3)
    await bench.configure(scope, paused=PAUSE)

    assert (await bench.extend(first)).error is None
    assert (await bench.end(first, Completed())).error is None
    assert (await bench.cancel("b")).canceled
    assert (await bench.end(second, Completed())).error is not None
    bench.clock.advance(60)
    assert await bench.claim(10) == []
    await bench.configure(scope)

    assert ids(await bench.claim(10)) == ["c"]


@each_scope
async def test_a_paused_scope_takes_new_jobs_and_changes(bench: Bench, scope: Scope) -> None:
    """P1: a pause is for claims only."""
    await bench.configure(scope, paused=PAUSE)
    await crawl(bench, "a", "b", "c")
    await bench.store.change(changing(Act.REPRIORITISE, ids=("c",), priority=5))
    await bench.store.change(changing(Act.DELETE, ids=("a",)))

    await bench.configure(scope)

    assert ids(await bench.claim(10)) == ["c", "b"]


async def test_a_pause_hides_no_other_job(bench: Bench) -> None:
    """P9: of other groups, queues and tenants."""
    await bench.configure(group_of(), paused=PAUSE)
    await bench.add(*(job(f"g{n}", group=CRAWL, priority=9) for n in range(300)))
    await bench.put("free")
    await crawl(bench, "theirs", tenant=GLOBEX)
    await bench.put("audio", queue=AUDIO)

    assert sorted(ids(await bench.claim(10))) == ["audio", "free", "theirs"]


async def test_a_paused_queue_and_tenant_stop_no_other(bench: Bench) -> None:
    """P7: a pause goes as far as its scope."""
    await bench.configure(queue_of(), paused=PAUSE)
    await bench.configure(tenant_of(GLOBEX), paused=PAUSE)
    await bench.put("mail")
    await bench.put("audio", queue=AUDIO)
    await bench.put("theirs", tenant=GLOBEX, queue=AUDIO)
    await bench.put("third", tenant="initech")

    assert sorted(ids(await bench.claim(10))) == ["audio", "third"]


async def test_every_pause_of_a_job_must_end(bench: Bench) -> None:
    """P13: resuming one scope does not resume another."""
    scopes = (tenant_of(), queue_of(), group_of())
    for scope in scopes:
        await bench.configure(scope, paused=PAUSE)
    await crawl(bench, "a")

    for scope in scopes:
        assert await bench.claim(10) == []
        await bench.configure(scope)

    assert ids(await bench.claim(10)) == ["a"]


async def test_a_pause_of_a_group_goes_over_its_queues(bench: Bench) -> None:
    """P13: wherever its jobs stand."""
    await bench.configure(group_of(), paused=PAUSE)
    await crawl(bench, "m")
    await crawl(bench, "a", queue=AUDIO)
    assert await bench.claim(10) == []

    await bench.configure(group_of())

    assert sorted(ids(await bench.claim(10))) == ["a", "m"]


@each_scope
async def test_a_pause_leaves_a_limit_in_force(bench: Bench, scope: Scope) -> None:
    """P13: after the pause the limit counts what ran through it."""
    await bench.configure(scope, max_running=2)
    await crawl(bench, "a", "b", "c")
    await bench.one()
    await bench.configure(scope, max_running=2, paused=PAUSE)
    assert await bench.claim(10) == []

    await bench.configure(scope, max_running=2)

    assert ids(await bench.claim(10)) == ["b"]


@each_tenant_scope
async def test_reason_and_author_are_seen(bench: Bench, scope: Scope) -> None:
    """P14: in the settings, in the events and in why a job does not run."""
    await bench.configure(scope, paused=PAUSE)
    await crawl(bench, "a")

    stored = await bench.setting(scope)
    assert stored is not None
    assert decode(scope.name, stored.value).paused == PAUSE
    gate = (await bench.gates("a"))[BlockerKind.PAUSE]
    assert gate.scope == scope
    assert PAUSE.reason in gate.words
    assert PAUSE.author in gate.words
    bench.needs("event_log")
    page = await bench.store.events(ACME, 0, PAGE_MAX)
    [event] = [each for each in page.events if each.kind is EventKind.CONFIGURED]
    assert PAUSE.reason in (event.note or "")
    assert PAUSE.author in (event.note or "")


@each_scope
async def test_resuming_wakes_who_waits_for_work(bench: Bench, scope: Scope) -> None:
    """P10: a resume wakes idle workers at once."""
    await bench.configure(scope, paused=PAUSE)
    await crawl(bench, "a")
    assert await bench.claim(1) == []

    async with asleep(bench, Watch(tenants=(ACME,), queues=(MAIL,))) as sleeper:
        await bench.configure(scope)

    assert sleeper.done()
    assert ids(await bench.claim(1)) == ["a"]


@pytest.mark.parametrize("then", ["cancel", "upkeep"])
async def test_jobs_of_a_paused_scope_may_end(bench: Bench, then: str) -> None:
    """P5, P11: canceled by people or expired by upkeep, as ever."""
    await bench.configure(queue_of(), paused=PAUSE)
    await crawl(bench, "a", ttl_us=SECOND)
    if then == "cancel":
        await bench.cancel("a")
    else:
        bench.clock.advance(1)
        await bench.upkeep()

    await bench.configure(queue_of())

    assert await bench.claim(10) == []
    assert await bench.state("a") in (State.CANCELED, State.FAILED)


@each_scope
async def test_pauses_survive_the_store_object(bench: Bench, scope: Scope) -> None:
    """P1: a restart of a durable store resumes nothing."""
    bench.needs("durable")
    await bench.configure(scope, paused=PAUSE)
    await crawl(bench, "a")

    await bench.reopen()

    assert await bench.claim(10) == []
    await bench.configure(scope)
    assert ids(await bench.claim(10)) == ["a"]
