"""Enqueue: a returned job is stored, each item has its own answer, delays use the store's clock."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import BATCH_MAX, PRIORITY_MAX, PRIORITY_MIN
from holdfast.core.clock import SECOND
from holdfast.core.errors import IdConflict, InvalidInput
from holdfast.core.job import State
from holdfast.core.retry import PRESETS
from holdfast.dispatch import name_of
from holdfast.store import Enqueued
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, AUDIO, HOUR, MAIL, finding, ids, job, rules


async def test_an_enqueued_job_is_found_as_it_was_given(bench: Bench) -> None:
    """P1: every field of a job is kept."""
    given = job(
        "a",
        queue=AUDIO,
        type="waveform",
        body=b'{"track": 1}',
        rules=rules(max_attempts=7, retry=PRESETS["patient"], timeout_us=5 * SECOND, key_us=HOUR),
        priority=4,
        ttl_us=2 * HOUR,
        key="waveform:1",
        group="crawl-9",
        tags=("blue", "big"),
        origin="z",
    )

    await bench.add(given)

    found = await bench.get("a")
    assert (found.tenant, found.id, found.queue) == (ACME, "a", AUDIO)
    assert found.envelope == given.envelope
    assert found.type == "waveform"
    assert found.rules == given.rules
    assert (found.priority, found.key, found.group) == (4, "waveform:1", "crawl-9")
    assert (found.tags, found.origin) == (("blue", "big"), "z")
    now = bench.clock.now()
    assert (found.created_at, found.updated_at, found.run_at) == (now, now, now)
    assert found.expires_at == now + 2 * HOUR


async def test_a_new_job_is_enqueued_unattempted_and_unheld(bench: Bench) -> None:
    """P11: attempts are counted when a lease is taken, so there are none yet."""
    await bench.put("a")

    found = await bench.get("a")
    assert found.state is State.ENQUEUED
    assert (found.attempt, found.fence, found.lapses, found.misses) == (0, 0, 0, 0)
    assert (found.lease_until, found.worker, found.finished_at) == (None, None, None)
    assert (found.reason, found.error, found.result, found.progress) == (None, None, None, None)
    assert found.replayed_as is None


async def test_the_answers_come_in_the_order_of_the_batch(bench: Bench) -> None:
    """P15: each item of a batch has its own answer, at its own place."""
    answers = await bench.add(job("c"), job("a"), job("b"))

    assert answers == [Enqueued("c", True), Enqueued("a", True), Enqueued("b", True)]


async def test_one_bad_item_does_not_spoil_the_batch(bench: Bench) -> None:
    """P15: a refused item is refused alone, and nothing is written for it."""
    await bench.put("taken", type="send")

    answers = await bench.add(job("a"), job("taken", type="other"), job("b"))

    assert [answer.created for answer in answers] == [True, False, True]
    assert isinstance(answers[1].error, IdConflict)
    assert ids((await bench.store.find(finding(newest_first=False))).jobs) == ["taken", "a", "b"]
    assert (await bench.get("taken")).type == "send"


async def test_an_empty_batch_is_answered_with_nothing(bench: Bench) -> None:
    """P15: an empty batch is allowed."""
    assert await bench.add() == []
    assert (await bench.store.find(finding())).jobs == []


async def test_a_full_batch_is_taken_in_one_call(bench: Bench) -> None:
    """P15: the named limit is allowed, and each of its jobs is kept."""
    answers = await bench.add(*(job(f"j{n:04}") for n in range(BATCH_MAX)))

    assert all(answer.created for answer in answers)
    [tally] = await bench.store.count(ACME)
    assert tally.counts == {State.ENQUEUED: BATCH_MAX}


async def test_a_batch_over_the_limit_is_refused_whole(bench: Bench) -> None:
    """P15: one more than the limit is InvalidInput that names the field; nothing is written."""
    with pytest.raises(InvalidInput) as caught:
        await bench.add(*(job(f"j{n:04}") for n in range(BATCH_MAX + 1)))

    assert caught.value.facts["field"] == "jobs"
    assert (await bench.store.find(finding())).jobs == []


async def test_a_delay_is_counted_from_the_stores_clock(bench: Bench) -> None:
    """P8: the caller gives a length, the store makes it an instant."""
    bench.clock.advance(1234)

    await bench.put("a", delay_us=30 * SECOND)

    found = await bench.get("a")
    assert found.run_at == bench.clock.now() + 30 * SECOND
    assert found.state is State.SCHEDULED


async def test_an_instant_wins_over_a_delay(bench: Bench) -> None:
    """P8: a chosen instant is kept exactly."""
    at = bench.clock.now() + 90 * SECOND

    await bench.put("a", run_at=at, delay_us=5 * SECOND)

    found = await bench.get("a")
    assert (found.run_at, found.state) == (at, State.SCHEDULED)


async def test_a_run_at_that_has_passed_is_ready_now(bench: Bench) -> None:
    """P10: a due job is claimable at once."""
    await bench.put("a", run_at=bench.clock.now() - 5 * SECOND)

    assert await bench.state("a") is State.ENQUEUED
    assert ids(await bench.claim(1)) == ["a"]


async def test_a_scheduled_job_reads_as_enqueued_once_due(bench: Bench) -> None:
    """P10: eligibility is by time, so a reader sees it without anybody having moved the job."""
    await bench.put("a", delay_us=30 * SECOND)

    bench.clock.set(bench.clock.now() + 30 * SECOND - 1)
    assert await bench.state("a") is State.SCHEDULED

    bench.clock.set(bench.clock.now() + 1)
    assert await bench.state("a") is State.ENQUEUED


async def test_sequences_grow_with_each_enqueue(bench: Bench) -> None:
    """P9: the order of first enqueue is a number of the store, not a time of day."""
    await bench.put("a", "b")
    await bench.put("c", queue=AUDIO)

    sequences = [(await bench.get(id)).seq for id in ("a", "b", "c")]
    assert sequences == sorted(set(sequences))


@pytest.mark.parametrize("priority", [PRIORITY_MIN, -1, 0, 1, PRIORITY_MAX])
async def test_every_legal_priority_is_kept(bench: Bench, priority: int) -> None:
    """P9: priorities are plain numbers, negative ones too."""
    await bench.put("a", priority=priority)

    assert (await bench.get("a")).priority == priority


async def test_names_may_hold_any_printable_character(bench: Bench) -> None:
    """P7: no separator inside a name can make two names one."""
    tenants = ("a:b", "a", "a/b", "ä' \"--", "a%", "日本")
    for tenant in tenants:
        await bench.put("b:c", tenant=tenant, queue=f"{MAIL}:{{x}}", key="k:1")

    for tenant in tenants:
        assert (await bench.get("b:c", tenant)).queue == f"{MAIL}:{{x}}"
    assert len(await bench.claim(10)) == len(tenants)


async def test_a_returned_enqueue_survives_the_store_object(bench: Bench) -> None:
    """P1: a durable store that is opened anew has every job, key, setting and lease."""
    bench.needs("durable")
    lease = await bench.held("held")
    await bench.put("a", key="k", delay_us=5 * SECOND)

    await bench.reopen()

    assert (await bench.get("a")).state is State.SCHEDULED
    assert (await bench.add(job("b", key="k"))) == [Enqueued("a", False)]
    assert (await bench.get("held")).lease_until == lease.until
    assert (await bench.extend(lease)).error is None


async def test_a_payload_over_the_stores_own_limit_is_refused_alone(bench: Bench) -> None:
    """P15: a store with a limit below the configured one names it, and keeps the other items."""
    most = bench.store.capabilities.payload_max
    if most is None:
        pytest.skip(f"{name_of(bench.store)} declares payload_max=None")

    answers = await bench.add(job("big", body=b"x" * (most + 1)), job("small"))

    assert isinstance(answers[0].error, InvalidInput)
    assert answers[1] == Enqueued("small", True)
    assert await bench.peek("big") is None
