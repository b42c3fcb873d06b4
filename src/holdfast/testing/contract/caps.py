"""Caps: the maximum waiting jobs and bytes of a tenant; a refused job leaves no trace."""

from __future__ import annotations

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import QueueFull
from holdfast.core.job import Completed, Failed, Outcome, State
from holdfast.core.scope import ScopeKind
from holdfast.store import Act, Enqueued
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    HOUR,
    changing,
    finding,
    ids,
    job,
    rules,
    tenant_of,
)


async def full(bench: Bench, id: str = "over", **options: object) -> bool:
    """Whether the tenant takes no more; what it takes is canceled again."""
    [answer] = await bench.add(job(id, **options))  # type: ignore[arg-type]
    if answer.error is None:
        await bench.cancel(id)
        await bench.store.change(changing(Act.DELETE, ids=(id,)))
        return False
    assert isinstance(answer.error, QueueFull)
    return True


def refused(answers: list[Enqueued]) -> list[str]:
    return [answer.id for answer in answers if isinstance(answer.error, QueueFull)]


async def test_a_tenant_with_all_its_jobs_is_full(bench: Bench) -> None:
    """P15: the answer names the tenant, what there is too much of, how much, and when to retry."""
    await bench.configure(tenant_of(), max_queued=2)
    await bench.put("a", "b")

    [answer] = await bench.add(job("c"))

    assert (answer.id, answer.created) == ("c", False)
    assert isinstance(answer.error, QueueFull)
    facts = answer.error.facts
    assert (facts["tenant"], facts["what"]) == (ACME, "jobs")
    assert (facts["queued"], facts["max"]) == (2, 2)
    retry_after = facts["retry_after_s"]
    assert isinstance(retry_after, float)
    assert retry_after > 0
    assert ACME in str(answer.error)


async def test_a_tenant_with_all_its_bytes_is_full(bench: Bench) -> None:
    """P15: payloads count, whole ones only."""
    await bench.configure(tenant_of(), max_bytes=100)
    await bench.put("a", body=b"x" * 60)

    [large, small] = await bench.add(job("b", body=b"x" * 41), job("c", body=b"x" * 40))

    assert isinstance(large.error, QueueFull)
    facts = large.error.facts
    assert (facts["what"], facts["queued"], facts["max"]) == ("bytes", 60, 100)
    assert small.created


async def test_a_full_tenant_keeps_nothing_of_what_it_refused(bench: Bench) -> None:
    """P1: no record, no event, no count, and the id and key are free."""
    await bench.configure(tenant_of(), max_queued=1)
    await bench.put("a")
    await bench.add(job("b", key="k"))

    assert await bench.peek("b") is None
    assert (await bench.tally(tenant_of())).counts == {State.ENQUEUED: 1}
    if bench.store.capabilities.event_log:
        assert await bench.history("b") == []
    await bench.cancel("a")
    [answer] = await bench.add(job("b2", key="k"))
    assert (answer.id, answer.created) == ("b2", True)


async def test_the_rest_of_a_batch_is_unharmed(bench: Bench) -> None:
    """P15: what fits is kept, in its order; other tenants are not concerned."""
    await bench.configure(tenant_of(), max_queued=2)

    answers = await bench.add(
        job("a"),
        job("g1", tenant=GLOBEX),
        job("b"),
        job("c"),
        job("g2", tenant=GLOBEX),
        job("d", queue=AUDIO),
    )

    assert refused(answers) == ["c", "d"]
    assert [answer.id for answer in answers if answer.created] == ["a", "g1", "b", "g2"]
    page = await bench.store.find(finding(None, newest_first=False))
    assert ids(page.jobs) == ["a", "g1", "b", "g2"]


async def test_known_jobs_are_known_to_a_full_tenant(bench: Bench) -> None:
    """P12: repeating an enqueue by id or key gives the earlier job, full or not."""
    await bench.configure(tenant_of(), max_queued=1)
    await bench.put("a", key="k")

    [by_id, by_key] = await bench.add(job("a", key="k"), job("z", key="k"))

    assert (by_id.id, by_id.created, by_id.error) == ("a", False, None)
    assert (by_key.id, by_key.created, by_key.error) == ("a", False, None)


@pytest.mark.parametrize("keep_us", [0, HOUR])
@pytest.mark.parametrize(
    "outcome", [Completed(), Failed("no", retryable=False)], ids=["complete", "fail"]
)
async def test_an_end_makes_room(bench: Bench, outcome: Outcome, keep_us: int) -> None:
    """P13: kept records of ended jobs do not wait any more."""
    await bench.configure(tenant_of(), max_queued=1, max_bytes=10)
    kept = rules(keep_us=keep_us, keep_failed_us=keep_us)
    lease = await bench.held("a", body=b"0123456789", rules=kept)
    assert await full(bench)

    await bench.end(lease, outcome)

    assert not await full(bench, body=b"0123456789")
    assert await full(bench, "large", body=b"01234567890")


async def test_cancel_delete_and_expiry_make_room(bench: Bench) -> None:
    """P13: every way in which a job ends frees the cap."""
    await bench.configure(tenant_of(), max_queued=3)
    await bench.put("a", "b")
    await bench.put("c", ttl_us=SECOND)
    assert await full(bench)

    await bench.cancel("a")
    assert not await full(bench, "x1")
    await bench.put("a2")
    await bench.store.change(changing(Act.DELETE, ids=("b",)))
    assert not await full(bench, "x2")
    await bench.put("b2")
    bench.clock.advance(1)
    await bench.upkeep()
    assert not await full(bench, "x3")


async def test_running_retrying_and_scheduled_jobs_count(bench: Bench) -> None:
    """P13: every job that has not ended counts."""
    await bench.configure(tenant_of(), max_queued=3)
    await bench.put("retrying", "running")
    first, _ = await bench.claim(2)
    await bench.end(first, Failed("boom"))
    await bench.put("later", delay_us=HOUR)

    assert await full(bench)
    bench.clock.advance(60)
    await bench.claim(10)
    assert await full(bench)


async def test_a_cap_counts_what_was_there_before_it(bench: Bench) -> None:
    """P13: lowered below what waits it takes nothing new; raised or deleted, at once."""
    await bench.put("a", "b", "c")
    await bench.configure(tenant_of(), max_queued=2)
    assert await full(bench)
    await bench.cancel("a")
    assert await full(bench)
    await bench.cancel("b")
    assert not await full(bench, "x1")

    await bench.configure(tenant_of(), max_queued=1)
    assert await full(bench)
    await bench.configure(tenant_of())
    assert not await full(bench, "x2")


async def test_a_full_tenant_replays_nothing_half(bench: Bench) -> None:
    """P6: the origin is not marked, so it can be replayed when there is room."""
    await bench.configure(tenant_of(), max_queued=1)
    await bench.end(await bench.held("a"), Failed("no", retryable=False))
    await bench.put("b")

    changed = await bench.store.change(changing(Act.REPLAY, ids=("a",)))
    assert changed.done == {}
    assert (await bench.get("a")).replayed_as is None

    await bench.cancel("b")
    changed = await bench.store.change(changing(Act.REPLAY, ids=("a",)))
    [replayed] = changed.done.values()
    assert (await bench.get(replayed)).origin == "a"


async def test_caps_are_one_tenants_own(bench: Bench) -> None:
    """P7: another tenant is neither counted nor stopped."""
    await bench.configure(tenant_of(), max_queued=1)
    await bench.put("a")
    await bench.put("a", "b", tenant=GLOBEX)

    assert await full(bench)
    tallies = await bench.store.count(None, by=ScopeKind.TENANT)
    assert [(each.tenant, each.counts[State.ENQUEUED]) for each in tallies] == [
        (ACME, 1),
        (GLOBEX, 2),
    ]


async def test_caps_survive_the_store_object(bench: Bench) -> None:
    """P1: a durable store knows how much waits after a restart."""
    bench.needs("durable")
    await bench.configure(tenant_of(), max_queued=2, max_bytes=20)
    await bench.put("a", body=b"x" * 15)

    await bench.reopen()

    assert await full(bench, body=b"x" * 6)
    assert not await full(bench, "small", body=b"x" * 5)
