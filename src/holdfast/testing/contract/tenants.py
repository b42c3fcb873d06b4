"""Isolation (P7): tenants never see each other, whatever they ask for."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import JobNotFound
from holdfast.core.job import Completed, Failed, State, replay_id
from holdfast.core.lifecycle import Transition
from holdfast.store import Act, Enqueued, Extension, Ref
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    LEASE,
    by_id,
    changing,
    finding,
    ids,
    job,
)


async def both(bench: Bench, id: str = "a") -> None:
    """The same id, queue, type and key for two tenants."""
    await bench.put(id, tenant=ACME, key="k")
    await bench.put(id, tenant=GLOBEX, key="k")


async def test_the_same_names_are_two_jobs(bench: Bench) -> None:
    """P7: a job's tenant is part of its name."""
    await both(bench)

    leases = await bench.claim(10)

    assert sorted((lease.job.tenant, lease.job.id) for lease in leases) == [
        (ACME, "a"),
        (GLOBEX, "a"),
    ]
    assert leases[0].token != leases[1].token


async def test_settling_one_tenants_job_leaves_the_others(bench: Bench) -> None:
    """P7: an ack reaches the job of its own tenant only."""
    await both(bench)
    acme = await bench.one(tenants=(ACME,))
    await bench.one(tenants=(GLOBEX,))

    await bench.end(acme, Completed(b"acme"))

    assert await bench.state("a", ACME) is State.COMPLETED
    other = await bench.get("a", GLOBEX)
    assert (other.state, other.result) == (State.PROCESSING, None)


async def test_a_token_opens_nothing_in_another_tenant(bench: Bench) -> None:
    """P7: with the right id and a valid token, another tenant's job is not found or not its own."""
    await both(bench)
    acme = await bench.one(tenants=(ACME,))
    await bench.put("only", tenant=GLOBEX)

    stolen = Transition(tenant=GLOBEX, id="a", token=acme.token, to=State.COMPLETED)
    foreign = Transition(tenant=ACME, id="only", token=acme.token, to=State.COMPLETED)
    answers = await bench.store.ack([stolen, foreign])
    beats = await bench.store.extend(
        [Extension(tenant=ACME, id="only", token=acme.token, lease_us=LEASE)]
    )

    assert answers[0].error is not None
    assert isinstance(answers[1].error, JobNotFound)
    assert isinstance(beats[0].error, JobNotFound)
    assert await bench.state("a", GLOBEX) is State.ENQUEUED
    assert await bench.state("only", GLOBEX) is State.ENQUEUED


async def test_canceling_one_tenants_job_leaves_the_others(bench: Bench) -> None:
    """P7: cancel reaches the job of its own tenant only."""
    await both(bench)

    await bench.store.cancel([Ref(GLOBEX, "a")])

    assert await bench.state("a", ACME) is State.ENQUEUED
    assert await bench.state("a", GLOBEX) is State.CANCELED


async def test_a_tenants_find_shows_its_own(bench: Bench) -> None:
    """P7: no filter reaches over the fence, ids least of all."""
    await both(bench)
    await bench.put("secret", tenant=GLOBEX, tags=("t",), group="g", key="k2")

    mine: list[dict[str, Any]] = [{}, {"ids": ("a", "secret")}, {"queues": ("mail",)}]
    for options in mine:
        page = await bench.store.find(finding(ACME, **options))
        assert [(each.tenant, each.id) for each in page.jobs] == [(ACME, "a")]
    theirs: list[dict[str, Any]] = [{"tags": ("t",)}, {"groups": ("g",)}, {"key": "k2"}]
    for options in theirs:
        assert (await bench.store.find(finding(ACME, **options))).jobs == []


async def test_a_tenants_change_reaches_its_own(bench: Bench) -> None:
    """P7: changes by selection keep to the tenant, ids given or not."""
    await both(bench)
    await bench.put("secret", tenant=GLOBEX)

    for act in (Act.REPRIORITISE, Act.RESCHEDULE, Act.DELETE):
        changed = await bench.store.change(changing(act, ids=("a", "secret"), priority=5))
        assert by_id(changed) == {"a": "a"}

    page = await bench.store.find(finding(None, newest_first=False))
    assert [(each.tenant, each.id, each.priority) for each in page.jobs] == [
        (GLOBEX, "a", 0),
        (GLOBEX, "secret", 0),
    ]


async def test_a_change_of_all_tenants_is_the_operators(bench: Bench) -> None:
    """P7: only a selection without a tenant reaches everybody."""
    await bench.put("a", tenant=ACME)
    await bench.put("a", tenant=GLOBEX)

    changed = await bench.store.change(changing(Act.REPRIORITISE, None, priority=5))

    assert set(changed.done) == {Ref(ACME, "a"), Ref(GLOBEX, "a")}


async def test_a_tenants_end_frees_its_own_key(bench: Bench) -> None:
    """P7: keys of the same words are two keys."""
    await both(bench)
    await bench.cancel("a", ACME)

    answers = await bench.add(job("b", key="k"), job("b", key="k", tenant=GLOBEX))

    assert answers == [Enqueued("b", True), Enqueued("a", False)]


async def test_one_tenants_history_is_its_own(bench: Bench) -> None:
    """P7: events, counts and replays of one tenant tell nothing of another."""
    await both(bench)
    lease = await bench.one(tenants=(GLOBEX,))
    await bench.end(lease, Failed("globex secret", retryable=False))
    await bench.store.change(changing(Act.REPLAY, GLOBEX))

    events = (await bench.store.events(ACME, 0, 100)).events
    assert {event.tenant for event in events} == {ACME}
    assert not any("secret" in repr(event) for event in events)
    assert [tally.tenant for tally in await bench.store.count(ACME)] == [ACME]
    assert await bench.peek(replay_id(GLOBEX, "a"), ACME) is None


async def test_a_tenants_backlog_does_not_hide_anothers_job(bench: Bench) -> None:
    """P9: a tenant with a thousand urgent jobs leaves a small one claimable."""
    await bench.put(*(f"j{n}" for n in range(1000)), tenant=ACME, priority=9)
    await bench.put("small", tenant=GLOBEX)

    assert "small" in ids(await bench.claim(2))
