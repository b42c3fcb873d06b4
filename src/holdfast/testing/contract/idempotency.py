"""Idempotency (P12): one job per key, one job per id, and when a key is free again."""

from __future__ import annotations

from holdfast.core.clock import SECOND
from holdfast.core.errors import IdConflict
from holdfast.core.job import Completed, EventKind, Failed, Released, State
from holdfast.store import Act, Enqueued
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    HOUR,
    RETRY_S,
    changing,
    finding,
    ids,
    job,
    rules,
)

TIMED = rules(key_us=HOUR, keep_us=60 * SECOND)


async def test_the_same_key_gives_the_earlier_job(bench: Bench) -> None:
    """P12: while the first job is not terminal the same key returns it, and says so."""
    first = await bench.add(job("a", key="k"))
    second = await bench.add(job("b", key="k"))

    assert first == [Enqueued("a", True)]
    assert second == [Enqueued("a", False)]
    assert ids((await bench.store.find(finding())).jobs) == ["a"]


async def test_a_key_given_twice_in_one_batch_makes_one_job(bench: Bench) -> None:
    """P12: items of one batch see each other."""
    answers = await bench.add(job("a", key="k"), job("b", key="k"), job("c", key="other"))

    assert answers == [Enqueued("a", True), Enqueued("a", False), Enqueued("c", True)]
    assert len(await bench.claim(10)) == 2


async def test_a_key_holds_in_every_state_that_is_not_terminal(bench: Bench) -> None:
    """P12: scheduled, enqueued, processing, released and retrying jobs all hold their key."""
    await bench.put("a", key="k", delay_us=5 * SECOND)
    assert await bench.add(job("b", key="k")) == [Enqueued("a", False)]

    bench.clock.advance(5)
    lease = await bench.one()
    assert await bench.add(job("b", key="k")) == [Enqueued("a", False)]

    await bench.end(lease, Released())
    assert await bench.add(job("b", key="k")) == [Enqueued("a", False)]

    await bench.end(await bench.one(), Failed("boom"))
    assert await bench.state("a") is State.RETRYING
    assert await bench.add(job("b", key="k")) == [Enqueued("a", False)]


async def test_a_key_holds_while_a_lease_has_lapsed(bench: Bench) -> None:
    """P12: a dead worker does not free the key of its job."""
    await bench.held("a", key="k")

    bench.clock.advance(3600)

    assert await bench.add(job("b", key="k")) == [Enqueued("a", False)]


async def test_completion_frees_the_key(bench: Bench) -> None:
    """P12: until_terminal ends with the job, although its record is kept."""
    lease = await bench.held("a", key="k")
    await bench.end(lease, Completed())

    assert await bench.add(job("b", key="k")) == [Enqueued("b", True)]
    assert await bench.state("a") is State.COMPLETED


async def test_failure_frees_the_key(bench: Bench) -> None:
    """P12: until_terminal ends with the last failure."""
    lease = await bench.held("a", key="k")
    await bench.end(lease, Failed("no", retryable=False))

    assert await bench.add(job("b", key="k")) == [Enqueued("b", True)]


async def test_cancel_frees_the_key(bench: Bench) -> None:
    """P12: a canceled job is terminal, so its key may be used again."""
    await bench.put("a", key="k")
    await bench.cancel("a")

    assert await bench.add(job("b", key="k")) == [Enqueued("b", True)]


async def test_delete_frees_the_key(bench: Bench) -> None:
    """P12: a deleted job holds nothing."""
    await bench.put("a", key="k")
    await bench.store.change(changing(Act.DELETE, ids=("a",)))

    assert await bench.add(job("b", key="k")) == [Enqueued("b", True)]


async def test_a_job_that_goes_at_its_end_frees_its_key(bench: Bench) -> None:
    """P12: deleting at once (keep 0) leaves no key behind."""
    lease = await bench.held("a", key="k", rules=rules(keep_us=0))
    await bench.end(lease, Completed())

    assert await bench.add(job("b", key="k")) == [Enqueued("b", True)]


async def test_the_end_of_an_earlier_job_leaves_a_later_ones_key_alone(bench: Bench) -> None:
    """P12: pruning or deleting the old record does not free the new job's key."""
    lease = await bench.held("a", key="k")
    await bench.end(lease, Completed())
    await bench.put("b", key="k")

    bench.clock.advance(3600)
    await bench.store.prune(100, 0)

    assert await bench.peek("a") is None
    assert await bench.add(job("c", key="k")) == [Enqueued("b", False)]


async def test_a_timed_key_outlives_its_job(bench: Bench) -> None:
    """P12: for a time means also after the job is done."""
    lease = await bench.held("a", key="k", rules=TIMED)
    await bench.end(lease, Completed())

    assert await bench.add(job("b", key="k", rules=TIMED)) == [Enqueued("a", False)]


async def test_a_timed_key_outlives_the_pruned_record(bench: Bench) -> None:
    """P12: the key holds to its instant, whether or not the record is still there."""
    lease = await bench.held("a", key="k", rules=TIMED)
    await bench.end(lease, Completed())
    bench.clock.advance(60)
    pruned = await bench.store.prune(100, HOUR)
    assert (pruned.jobs, await bench.peek("a")) == (1, None)

    assert await bench.add(job("b", key="k", rules=TIMED)) == [Enqueued("a", False)]

    bench.clock.advance(3600 - 60)
    assert await bench.add(job("b", key="k", rules=TIMED)) == [Enqueued("b", True)]


async def test_a_timed_key_ends_without_upkeep(bench: Bench) -> None:
    """P12: at its instant the key of a finished job is free, pruned or not."""
    lease = await bench.held("a", key="k", rules=rules(key_us=HOUR, keep_us=9 * HOUR))
    await bench.end(lease, Completed())

    bench.clock.set(bench.clock.now() + HOUR - 1)
    assert await bench.add(job("b", key="k")) == [Enqueued("a", False)]

    bench.clock.set(bench.clock.now() + 1)
    assert await bench.add(job("b", key="k")) == [Enqueued("b", True)]


async def test_a_timed_key_never_ends_before_its_job(bench: Bench) -> None:
    """P12: while the first job is not terminal the same key returns it, however long that is."""
    await bench.put("a", key="k", rules=rules(key_us=5 * SECOND))

    bench.clock.advance(3600)
    await bench.store.prune(100, HOUR)

    assert await bench.add(job("b", key="k")) == [Enqueued("a", False)]
    await bench.cancel("a")
    assert await bench.add(job("b", key="k")) == [Enqueued("b", True)]


async def test_the_scope_of_a_key_is_tenant_queue_and_type(bench: Bench) -> None:
    """P12: the same key elsewhere is another key."""
    answers = await bench.add(
        job("a", key="k"),
        job("b", key="k", tenant=GLOBEX),
        job("c", key="k", queue=AUDIO),
        job("d", key="k", type="other"),
    )

    assert all(answer.created for answer in answers)
    assert [answer.id for answer in answers] == ["a", "b", "c", "d"]


async def test_parts_of_a_scope_do_not_run_together(bench: Bench) -> None:
    """P12: a scope is a tuple, not a joined text."""
    answers = await bench.add(
        job("a", queue="q:t", type="x", key="k"),
        job("b", queue="q", type="t:x", key="k"),
        job("c", queue="q", type="t", key="x:k"),
        job("d", queue="q", type="t", key="x/k"),
    )

    assert all(answer.created for answer in answers)


async def test_jobs_without_a_key_are_never_merged(bench: Bench) -> None:
    """P12: equal content is no reason to drop a job."""
    await bench.put("a", "b", "c", body=b"same")

    assert len(await bench.claim(10)) == 3


async def test_the_same_id_gives_the_same_answer(bench: Bench) -> None:
    """P12: a repeated enqueue after a lost reply never makes two jobs."""
    first = await bench.add(job("a"))
    again = await bench.add(job("a"), job("a"))

    assert first == [Enqueued("a", True)]
    assert again == [Enqueued("a", False), Enqueued("a", False)]
    assert await bench.kinds("a") == [EventKind.ENQUEUED]
    assert ids(await bench.claim(10)) == ["a"]


async def test_an_id_given_twice_in_one_batch_makes_one_job(bench: Bench) -> None:
    """P12: items of one batch see each other by id too."""
    answers = await bench.add(job("a"), job("a"))

    assert answers == [Enqueued("a", True), Enqueued("a", False)]


async def test_a_repeat_changes_nothing_of_the_first(bench: Bench) -> None:
    """P12: the earlier job is returned as it is, held, scheduled or finished."""
    lease = await bench.held("a", priority=1)
    await bench.add(job("a", priority=9, delay_us=5 * SECOND))
    assert (await bench.get("a")).priority == 1
    assert await bench.state("a") is State.PROCESSING

    await bench.end(lease, Completed(b"1"))
    assert await bench.add(job("a")) == [Enqueued("a", False)]
    assert await bench.state("a") is State.COMPLETED


async def test_an_id_of_another_job_is_a_conflict(bench: Bench) -> None:
    """P12: an id that means another type or queue is refused, and says whose it is."""
    await bench.put("a", type="send")

    by_type, by_queue = await bench.add(job("a", type="other"), job("a", queue=AUDIO))

    for answer in (by_type, by_queue):
        assert not answer.created
        assert isinstance(answer.error, IdConflict)
        assert answer.error.facts["id"] == "a"
    [found] = (await bench.store.find(finding())).jobs
    assert (found.type, found.queue) == ("send", "mail")


async def test_an_id_is_its_tenants_own(bench: Bench) -> None:
    """P7: two tenants may choose the same id, whatever its type."""
    answers = await bench.add(job("a"), job("a", tenant=GLOBEX, type="other"))

    assert [answer.created for answer in answers] == [True, True]
    assert (await bench.get("a", ACME)).type == "send"
    assert (await bench.get("a", GLOBEX)).type == "other"


async def test_a_conflict_takes_no_key(bench: Bench) -> None:
    """P12: a refused item leaves nothing behind, its key included."""
    await bench.put("a", type="send")
    await bench.add(job("a", type="other", key="k"))

    assert await bench.add(job("b", type="other", key="k")) == [Enqueued("b", True)]


async def test_a_retry_after_its_delay_still_holds_the_key(bench: Bench) -> None:
    """P12: becoming due is not an end."""
    lease = await bench.held("a", key="k")
    await bench.end(lease, Failed("boom"))

    bench.clock.advance(RETRY_S)

    assert await bench.add(job("b", key="k")) == [Enqueued("a", False)]
