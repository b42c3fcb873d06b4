"""Explain: every blocker of a job now, what causes it, and when it ends by itself."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import HOLDERS_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import JobNotFound
from holdfast.core.job import Completed, Failed
from holdfast.core.rate import rate
from holdfast.core.scope import Blocker, BlockerKind, Explanation, GroupRules, Pause, Scope
from holdfast.explain import pace
from holdfast.store import Ref, Take
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    HOUR,
    MAIL,
    RETRY_S,
    group_of,
    ids,
    job,
    queue_of,
    rules,
    tenant_of,
)
from holdfast.testing.contract.inside import crawl, each_scope, each_tenant_scope


def gate_of(explained: Explanation) -> Blocker:
    [gate] = explained.gates
    assert gate.words
    return gate


async def test_a_job_that_can_be_claimed_has_no_gate(bench: Bench) -> None:
    """P9: nothing holds it, nothing is ahead of it."""
    bench.needs("scopes")
    await bench.put("a")

    explained = await bench.explain("a")

    assert explained.gates == ()
    assert (explained.ahead, explained.tenants) == (0, 1)


async def test_the_pace_of_a_line_is_told_by_its_events(bench: Bench) -> None:
    """P14: however the store numbers them."""
    bench.needs("event_log")
    for number in range(4):
        await bench.put(f"j{number}")
    for _ in range(3):
        await bench.claim(1)
        bench.clock.advance(2)

    assert await pace(bench.store, ACME, MAIL) == pytest.approx(0.5, rel=0.01)
    assert await pace(bench.store, GLOBEX, MAIL) is None


async def test_explaining_what_is_not_there_is_refused(bench: Bench) -> None:
    """P7: another tenant's job is not found."""
    bench.needs("scopes")
    await bench.put("theirs", tenant=GLOBEX)

    for id in ("theirs", "none"):
        with pytest.raises(JobNotFound):
            await bench.store.explain(Ref(ACME, id))


@pytest.mark.parametrize("state", ["completed", "failed", "canceled"])
async def test_an_ended_job_is_told_so(bench: Bench, state: str) -> None:
    """P6: ENDED, with the state in words."""
    bench.needs("scopes")
    lease = await bench.held("a")
    if state == "canceled":
        await bench.cancel("a")
    else:
        done = Completed() if state == "completed" else Failed("no", retryable=False)
        await bench.end(lease, done)

    gate = gate_of(await bench.explain("a"))

    assert gate.kind is BlockerKind.ENDED
    assert state in gate.words


async def test_a_running_job_is_told_with_its_worker(bench: Bench) -> None:
    """P2: RUNNING until the lease ends."""
    bench.needs("scopes")
    await bench.put("a")
    lease = await bench.one(worker="w7")

    gate = gate_of(await bench.explain("a"))

    assert (gate.kind, gate.until) == (BlockerKind.RUNNING, lease.until)
    assert "w7" in gate.words


@pytest.mark.parametrize("retry", [False, True])
async def test_a_job_that_is_due_later_is_told_when(bench: Bench, retry: bool) -> None:
    """P10: SCHEDULE for schedules and retries, until they are due, and not after."""
    bench.needs("scopes")
    if retry:
        await bench.end(await bench.held("a"), Failed("boom"))
    else:
        await bench.put("a", delay_us=RETRY_S * SECOND)

    gate = gate_of(await bench.explain("a"))
    assert gate.kind is BlockerKind.SCHEDULE
    assert gate.until == bench.clock.now() + RETRY_S * SECOND

    bench.clock.advance(RETRY_S)
    assert (await bench.explain("a")).gates == ()


async def test_a_job_past_its_time_to_live_is_told_so(bench: Bench) -> None:
    """P11: EXPIRED before upkeep has failed it."""
    bench.needs("scopes")
    await bench.put("a", ttl_us=SECOND)
    bench.clock.advance(1)

    assert gate_of(await bench.explain("a")).kind is BlockerKind.EXPIRED


async def test_a_lapsed_last_lease_is_told_so(bench: Bench) -> None:
    """P11: it cannot run again, and nobody runs it: EXPIRED."""
    bench.needs("scopes")
    await bench.held("a", rules=rules(max_attempts=1))
    bench.clock.advance(60)

    assert gate_of(await bench.explain("a")).kind is BlockerKind.EXPIRED


@each_scope
async def test_a_lapsed_lease_is_no_gate(bench: Bench, scope: Scope) -> None:
    """P10: a claim could take it at once, and it does not stand in its own way."""
    await bench.configure(scope, max_running=1)
    await crawl(bench, "a", "b")
    await bench.one()
    bench.clock.advance(60)

    assert (await bench.explain("a")).gates == ()
    assert ids(await bench.claim(1)) == ["a"]


@each_tenant_scope
async def test_a_limit_is_told_with_its_holders(bench: Bench, scope: Scope) -> None:
    """P13: LIMIT, of which scope, and who has its places."""
    await bench.configure(scope, max_running=2)
    await crawl(bench, "a", "b", "c")
    await bench.claim(2)

    gate = (await bench.gates("c"))[BlockerKind.LIMIT]

    assert gate.scope == scope
    assert sorted(gate.holders) == ["a", "b"]
    assert "2" in gate.words


@each_tenant_scope
async def test_slots_are_told_as_holders(bench: Bench, scope: Scope) -> None:
    """P13: when they count."""
    await bench.configure(scope, max_running=2, slots_count=True)
    await bench.store.hold([Take(scope.slot("s1"), "s1", HOUR)])
    await crawl(bench, "a", "b")
    await bench.one()

    assert sorted((await bench.gates("b"))[BlockerKind.LIMIT].holders) == ["a", "s1"]

    await bench.configure(scope, max_running=1)
    assert (await bench.gates("b"))[BlockerKind.LIMIT].holders == ("a",)


async def test_holders_are_bounded(bench: Bench) -> None:
    """P15: of many, some are named."""
    await bench.configure(queue_of(), max_running=HOLDERS_MAX + 5)
    await bench.put(*(f"j{n}" for n in range(HOLDERS_MAX + 6)))
    leases = await bench.claim(100)
    assert len(leases) == HOLDERS_MAX + 5

    gate = (await bench.gates(f"j{HOLDERS_MAX + 5}"))[BlockerKind.LIMIT]

    assert len(gate.holders) == HOLDERS_MAX
    assert set(gate.holders) <= set(ids(leases))


@each_scope
async def test_a_pause_is_told_with_reason_and_author(bench: Bench, scope: Scope) -> None:
    """P13: PAUSE, of which scope, why and by whom; no time is known."""
    await bench.configure(scope, paused=Pause("the disk is full", "ann"))
    await crawl(bench, "a")

    gate = gate_of(await bench.explain("a"))

    assert (gate.kind, gate.scope, gate.until) == (BlockerKind.PAUSE, scope, None)
    assert "the disk is full" in gate.words
    assert "ann" in gate.words


@each_scope
async def test_an_empty_bucket_is_told_until_its_next_token(bench: Bench, scope: Scope) -> None:
    """P8: RATE, until the very instant at which the next one may start."""
    await bench.configure(scope, rate=rate("1/s"))
    await crawl(bench, "a", "b")
    await bench.end(await bench.one(), Completed())

    gate = gate_of(await bench.explain("b"))
    assert (gate.kind, gate.scope) == (BlockerKind.RATE, scope)
    assert gate.until == bench.clock.now() + SECOND

    bench.clock.set(gate.until)
    assert (await bench.explain("b")).gates == ()
    assert ids(await bench.claim(1)) == ["b"]


async def test_order_is_told_with_who_comes_first(bench: Bench) -> None:
    """P9: ORDER, with the head, whatever holds that one."""
    await bench.configure(group_of(), ordered=True)
    await crawl(bench, "head", delay_us=HOUR)
    await crawl(bench, "b", "c")

    for id in ("b", "c"):
        gate = gate_of(await bench.explain(id))
        assert (gate.kind, gate.scope, gate.holders) == (BlockerKind.ORDER, group_of(), ("head",))
    assert set(await bench.gates("head")) == {BlockerKind.SCHEDULE}


async def test_the_rules_of_a_queue_for_its_groups_are_told(bench: Bench) -> None:
    """P13: a default limit is a blocker of the group itself."""
    await bench.configure(queue_of(), groups=GroupRules(max_running=1))
    await crawl(bench, "a", "b")
    await bench.one()

    gate = gate_of(await bench.explain("b"))

    assert (gate.kind, gate.scope, gate.holders) == (BlockerKind.LIMIT, group_of(), ("a",))


async def test_every_gate_is_told(bench: Bench) -> None:
    """P13: opening one of them is not enough, so all are named."""
    await bench.put("running")
    await crawl(bench, "first")
    await bench.claim(2)
    await bench.configure(tenant_of(), max_running=1)
    await bench.configure(queue_of(), paused=Pause("why", "ann"))
    await bench.configure(group_of(), ordered=True)
    await crawl(bench, "a", delay_us=HOUR)

    explained = await bench.explain("a")

    told = {(gate.kind, gate.scope) for gate in explained.gates}
    assert told == {
        (BlockerKind.SCHEDULE, None),
        (BlockerKind.LIMIT, tenant_of()),
        (BlockerKind.PAUSE, queue_of()),
        (BlockerKind.ORDER, group_of()),
        (BlockerKind.LIMIT, group_of()),
    }
    assert explained.ahead is None


async def test_a_ready_job_is_told_how_many_come_first(bench: Bench) -> None:
    """P9: TURN, by rank in its own line; ended and held ones do not count."""
    bench.needs("scopes")
    await bench.put("held")
    await bench.one()
    await bench.put("gone", "a", "b")
    await bench.put("high", priority=1)
    await bench.put("low", priority=-1)
    await bench.put("elsewhere", queue=AUDIO)
    await bench.cancel("gone")

    found = {id: (await bench.explain(id)).ahead for id in ("high", "a", "b", "low")}

    assert found == {"high": 0, "a": 1, "b": 2, "low": 3}
    gate = gate_of(await bench.explain("b"))
    assert gate.kind is BlockerKind.TURN
    assert "2" in gate.words


async def test_a_ready_job_is_told_how_many_tenants_take_turns(bench: Bench) -> None:
    """P9: those with something ready in its queue, its own among them."""
    bench.needs("scopes")
    await bench.put("a")
    await bench.add(*(job("x", tenant=f"t{n}") for n in range(3)))
    await bench.put("far", tenant="far", queue=AUDIO)

    assert (await bench.explain("a")).tenants == 4


async def test_explaining_changes_nothing(bench: Bench) -> None:
    """P4: ask as often as you like."""
    await bench.configure(group_of(), max_running=1, rate=rate("1/s", burst=5))
    await crawl(bench, "a", "b")
    await bench.put("other", group="other")

    first = [await bench.explain(id) for id in ("a", "b", "other")]
    second = [await bench.explain(id) for id in ("a", "b", "other")]

    assert first == second
    assert ids(await bench.claim(10)) == ["a", "other"]
