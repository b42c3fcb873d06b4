"""Change: replay, delete, reprioritise and reschedule jobs without a lease, in bounded steps."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.bounds import BATCH_MAX, CHANGE_MAX, SELECT_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed, EventKind, Failed, Reason, State, replay_id
from holdfast.store import Act, Change, Changed
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    HOUR,
    MAIL,
    RETRY_S,
    by_id,
    changing,
    finding,
    ids,
    rules,
    select,
)


async def to_the_end(bench: Bench, change: Change) -> list[Changed]:
    """Every step of a change, each going on where the one before ended."""
    steps = [await bench.store.change(change)]
    while steps[-1].cursor is not None:
        assert len(steps) < 100
        steps.append(
            await bench.store.change(
                Change(
                    select=change.select,
                    act=change.act,
                    after=steps[-1].cursor,
                    limit=change.limit,
                    priority=change.priority,
                    delay_us=change.delay_us,
                    run_at=change.run_at,
                )
            )
        )
    return steps


# -- replay ---------------------------------------------------------------------------------------


async def test_a_replay_is_a_new_job_that_names_its_origin(bench: Bench) -> None:
    """P6: what is final stays; the new job has the same payload and rules, and a fresh start."""
    lease = await bench.held(
        "a",
        queue=AUDIO,
        body=b"payload",
        priority=3,
        group="g",
        tags=("t",),
        rules=rules(max_attempts=1),
    )
    await bench.end(lease, Failed("boom"))
    before = await bench.get("a")
    bench.clock.advance(5)

    changed = await bench.store.change(changing(Act.REPLAY, ids=("a",)))

    new = replay_id(ACME, "a")
    assert by_id(changed) == {"a": new}
    replay = await bench.get(new)
    assert (replay.origin, replay.state, replay.queue) == ("a", State.ENQUEUED, AUDIO)
    assert (replay.envelope, replay.rules) == (before.envelope, before.rules)
    assert (replay.priority, replay.group, replay.tags) == (3, "g", ("t",))
    assert (replay.attempt, replay.fence, replay.error, replay.reason) == (0, 0, None, None)
    assert replay.created_at == replay.run_at == bench.clock.now()
    assert replay.seq > before.seq
    origin = await bench.get("a")
    assert (origin.state, origin.reason, origin.replayed_as) == (
        State.FAILED,
        Reason.MAX_ATTEMPTS,
        new,
    )


async def test_an_origin_is_replayed_once(bench: Bench) -> None:
    """P6: a repeated replay makes no second job, also when the first one has run."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("no", retryable=False))
    await bench.store.change(changing(Act.REPLAY, ids=("a",)))

    again = await bench.store.change(changing(Act.REPLAY, ids=("a",)))
    assert by_id(again) in ({}, {"a": replay_id(ACME, "a")})
    await bench.end(await bench.one(), Completed())
    await bench.store.change(changing(Act.REPLAY, ids=("a",)))

    assert len((await bench.store.find(finding())).jobs) == 2
    assert await bench.claim(10) == []
    assert (await bench.kinds("a")).count(EventKind.REPLAYED) == 1


@pytest.mark.parametrize("end", ["completed", "failed", "canceled"])
async def test_every_finished_job_can_be_replayed(bench: Bench, end: str) -> None:
    """P6: replay is for all that is final."""
    lease = await bench.held("a")
    if end == "canceled":
        await bench.cancel("a")
    else:
        outcome = Completed() if end == "completed" else Failed("no", retryable=False)
        await bench.end(lease, outcome)

    changed = await bench.store.change(changing(Act.REPLAY))

    assert list(by_id(changed)) == ["a"]
    assert ids(await bench.claim(10)) == [replay_id(ACME, "a")]


async def test_what_is_not_finished_is_not_replayed(bench: Bench) -> None:
    """P6: a job that has not ended cannot be replayed."""
    await bench.put("held", "free")
    await bench.put("later", delay_us=SECOND)
    await bench.claim(1)

    changed = await bench.store.change(changing(Act.REPLAY))

    assert (by_id(changed), changed.cursor) == ({}, None)
    assert len((await bench.store.find(finding())).jobs) == 3


async def test_a_replay_of_a_replay_names_the_replay(bench: Bench) -> None:
    """P6: each origin has one replay of its own, so a chain can be followed."""
    await bench.put("a", rules=rules(max_attempts=1))
    first, second = replay_id(ACME, "a"), replay_id(ACME, replay_id(ACME, "a"))
    for _ in range(2):
        await bench.end(await bench.one(), Failed("boom"))
        await bench.store.change(changing(Act.REPLAY, states=(State.FAILED,)))

    assert (await bench.get(first)).replayed_as == second
    assert (await bench.get(second)).origin == first
    assert ids(await bench.claim(10)) == [second]


async def test_a_replay_has_no_key(bench: Bench) -> None:
    """P12: it neither takes its origin's key nor is merged into a later job that has it."""
    await bench.put("a", key="k")
    await bench.cancel("a")
    await bench.put("b", key="k")

    changed = await bench.store.change(changing(Act.REPLAY, ids=("a",)))

    assert by_id(changed) == {"a": replay_id(ACME, "a")}
    assert (await bench.get(replay_id(ACME, "a"))).key is None
    assert len(await bench.claim(10)) == 2


async def test_the_same_id_of_two_tenants_has_two_replays(bench: Bench) -> None:
    """P7: a replay belongs to its origin's tenant."""
    for tenant in (ACME, GLOBEX):
        await bench.put("a", tenant=tenant)
        await bench.cancel("a", tenant)

    changed = await bench.store.change(changing(Act.REPLAY, GLOBEX))

    assert by_id(changed) == {"a": replay_id(GLOBEX, "a")}
    assert (await bench.get(replay_id(GLOBEX, "a"), GLOBEX)).origin == "a"
    assert await bench.peek(replay_id(ACME, "a"), ACME) is None
    assert (await bench.get("a", ACME)).replayed_as is None


# -- delete ---------------------------------------------------------------------------------------


async def test_a_deleted_job_is_gone(bench: Bench) -> None:
    """P6: it is not found, not counted, not claimed; its events tell of it."""
    await bench.put("a", "b")

    changed = await bench.store.change(changing(Act.DELETE, ids=("a",)))

    assert by_id(changed) == {"a": "a"}
    assert await bench.peek("a") is None
    [tally] = await bench.store.count(ACME)
    assert tally.counts == {State.ENQUEUED: 1}
    assert await bench.kinds("a") == [EventKind.ENQUEUED, EventKind.DELETED]


async def test_a_delete_may_be_repeated(bench: Bench) -> None:
    """P15: a deleted job is not deleted again."""
    await bench.put("a")
    await bench.store.change(changing(Act.DELETE, ids=("a",)))

    again = await bench.store.change(changing(Act.DELETE, ids=("a",)))

    assert (by_id(again), again.cursor) == ({}, None)
    assert await bench.kinds("a") == [EventKind.ENQUEUED, EventKind.DELETED]


async def test_only_what_nobody_holds_is_deleted(bench: Bench) -> None:
    """P2: a running job is not deleted; all others are, whatever their state."""
    await bench.put("held", "canceled", "done", "retry")
    held, _, done, retry = await bench.claim(4)
    await bench.cancel("canceled")
    await bench.end(done, Completed())
    await bench.end(retry, Failed("boom"))
    await bench.put("free")
    await bench.put("later", delay_us=SECOND)

    changed = await bench.store.change(changing(Act.DELETE))

    assert sorted(by_id(changed)) == ["canceled", "done", "free", "later", "retry"]
    assert ids((await bench.store.find(finding())).jobs) == ["held"]
    assert (await bench.end(held, Completed())).state is State.COMPLETED


async def test_many_jobs_are_deleted_in_one_step(bench: Bench) -> None:
    """P15: a step as large as its limit does not lose its way among what it removes."""
    await bench.put(*(f"j{n:03}" for n in range(300)))

    changed = await bench.store.change(changing(Act.DELETE, limit=300))

    assert len(by_id(changed)) == 300
    assert (await bench.store.find(finding())).jobs == []


# -- reprioritise and reschedule ------------------------------------------------------------------


async def test_reprioritise_changes_what_waits(bench: Bench) -> None:
    """P9: scheduled, enqueued and retrying jobs take the new priority; held and final ones not."""
    await bench.put("held", "done", "retry", priority=1)
    _, done, retry = await bench.claim(3)
    await bench.end(done, Completed())
    await bench.end(retry, Failed("boom"))
    await bench.put("free", priority=1)
    await bench.put("later", priority=1, delay_us=HOUR)
    bench.clock.advance(3)

    changed = await bench.store.change(changing(Act.REPRIORITISE, priority=8))

    assert by_id(changed) == {"retry": "retry", "free": "free", "later": "later"}
    for id, priority in (("held", 1), ("done", 1), ("retry", 8), ("free", 8), ("later", 8)):
        assert (await bench.get(id)).priority == priority
    assert await bench.state("later") is State.SCHEDULED
    assert await bench.state("retry") is State.RETRYING
    assert (await bench.kinds("free"))[-1] is EventKind.CHANGED
    assert (await bench.get("free")).updated_at == bench.clock.now()


async def test_reprioritise_does_not_make_a_job_due(bench: Bench) -> None:
    """P10: a new priority does not change when a job may run."""
    await bench.put("later", delay_us=5 * SECOND)
    await bench.store.change(changing(Act.REPRIORITISE, priority=99))

    assert await bench.claim(1) == []
    bench.clock.advance(5)
    assert ids(await bench.claim(1)) == ["later"]


async def test_reschedule_by_a_delay_counts_from_the_stores_clock(bench: Bench) -> None:
    """P8: delays are durations here too."""
    await bench.put("a")
    bench.clock.advance(100)

    changed = await bench.store.change(changing(Act.RESCHEDULE, delay_us=30 * SECOND))

    assert by_id(changed) == {"a": "a"}
    found = await bench.get("a")
    assert (found.state, found.run_at) == (State.SCHEDULED, bench.clock.now() + 30 * SECOND)
    assert await bench.claim(1) == []
    bench.clock.advance(30)
    assert ids(await bench.claim(1)) == ["a"]


async def test_reschedule_to_an_instant_is_exact(bench: Bench) -> None:
    """P10: the chosen instant is kept, and wins over a delay."""
    await bench.put("a", delay_us=HOUR)
    at = bench.clock.now() + 77 * SECOND

    await bench.store.change(changing(Act.RESCHEDULE, run_at=at, delay_us=SECOND))

    assert (await bench.get("a")).run_at == at
    assert (await bench.history("a"))[-1].until == at


async def test_reschedule_to_now_makes_a_job_ready(bench: Bench) -> None:
    """P10: a job put forward, or a retry hurried, is claimable at once."""
    lease = await bench.held("retry")
    await bench.end(lease, Failed("boom"))
    await bench.put("later", delay_us=HOUR)

    changed = await bench.store.change(changing(Act.RESCHEDULE))

    assert sorted(by_id(changed)) == ["later", "retry"]
    assert await bench.state("later") is State.ENQUEUED
    assert sorted(ids(await bench.claim(10))) == ["later", "retry"]


async def test_a_rescheduled_retry_keeps_its_attempts(bench: Bench) -> None:
    """P11: rescheduling a job does not change its attempts."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("boom"))

    await bench.store.change(changing(Act.RESCHEDULE, delay_us=2 * RETRY_S * SECOND))

    assert (await bench.get("a")).attempt == 1
    bench.clock.advance(2 * RETRY_S)
    assert (await bench.one()).job.attempt == 2


async def test_reschedule_leaves_held_and_finished_jobs_alone(bench: Bench) -> None:
    """P2, P6: a running or final job is not rescheduled."""
    await bench.put("held", "done")
    held, done = await bench.claim(2)
    await bench.end(done, Completed())
    before = [await bench.get("held"), await bench.get("done")]

    changed = await bench.store.change(changing(Act.RESCHEDULE, delay_us=HOUR))

    assert by_id(changed) == {}
    assert [await bench.get("held"), await bench.get("done")] == before
    assert (await bench.extend(held)).error is None


# -- selection, steps and bounds ------------------------------------------------------------------


async def test_a_change_keeps_to_its_selection(bench: Bench) -> None:
    """P15: fields that are set narrow, all together."""
    await bench.put("a", queue=MAIL, tags=("x", "y"))
    await bench.put("b", queue=MAIL, tags=("x",))
    await bench.put("c", queue=AUDIO, tags=("x", "y"))
    await bench.put("d", queue=MAIL, tags=("x", "y"), tenant=GLOBEX)

    changed = await bench.store.change(
        changing(Act.REPRIORITISE, queues=(MAIL,), tags=("x", "y"), priority=1)
    )

    assert by_id(changed) == {"a": "a"}


async def test_a_change_goes_in_steps_to_the_end(bench: Bench) -> None:
    """P15: each step is bounded, the cursor goes on, and no job is passed over or done twice."""
    await bench.put(*(f"j{n:02}" for n in range(25)))
    await bench.put(*(f"other{n}" for n in range(5)), queue=AUDIO)

    steps = await to_the_end(
        bench, Change(select=select(queues=(MAIL,)), act=Act.REPRIORITISE, priority=2, limit=10)
    )

    assert all(len(by_id(step)) <= 10 for step in steps)
    done = [id for step in steps for id in by_id(step)]
    assert sorted(done) == [f"j{n:02}" for n in range(25)]
    assert steps[-1].cursor is None


async def test_steps_of_a_delete_reach_the_end(bench: Bench) -> None:
    """P15: removing jobs does not move the cursor off its way."""
    await bench.put(*(f"j{n:03}" for n in range(250)))

    steps = await to_the_end(bench, Change(select=select(), act=Act.DELETE, limit=100))

    assert sum(len(by_id(step)) for step in steps) == 250
    assert (await bench.store.find(finding())).jobs == []


async def test_steps_of_a_replay_do_not_meet_their_own_jobs(bench: Bench) -> None:
    """P6: replaying to the end makes one new job for each origin, and ends."""
    await bench.put(*(f"j{n}" for n in range(7)))
    for n in range(7):
        await bench.cancel(f"j{n}")

    steps = await to_the_end(bench, Change(select=select(), act=Act.REPLAY, limit=3))

    assert sum(len(by_id(step)) for step in steps) == 7
    assert len(await bench.claim(100)) == 7


@pytest.mark.parametrize("limit", [-1, CHANGE_MAX + 1])
async def test_a_change_out_of_bounds_is_refused(bench: Bench, limit: int) -> None:
    """P15: InvalidInput names the field; nothing is changed."""
    await bench.put("a")

    with pytest.raises(InvalidInput) as caught:
        await bench.store.change(changing(Act.DELETE, limit=limit))

    assert caught.value.facts["field"] == "limit"
    assert await bench.state("a") is State.ENQUEUED


async def test_a_change_of_too_many_names_is_refused(bench: Bench) -> None:
    """P15: the fields of a selection are bounded too."""
    for field, size in (("ids", BATCH_MAX), ("queues", SELECT_MAX), ("tags", SELECT_MAX)):
        wish: dict[str, Any] = {field: ("x",) * (size + 1)}
        with pytest.raises(InvalidInput) as caught:
            await bench.store.change(changing(Act.DELETE, **wish))
        assert caught.value.facts["field"] == field
