"""Schedules (P18): each tick makes its job once, at its instant, and a change counts at once."""

from __future__ import annotations

import pytest

from holdfast.core.clock import SECOND, moment
from holdfast.core.errors import InvalidInput, ScheduleNotFound, StaleSetting
from holdfast.core.job import By, Completed, State
from holdfast.core.schedule import QUEUE
from holdfast.core.tick import tick_job
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    HOUR,
    changing,
    finding,
    job,
    rules,
    tenant_of,
)
from holdfast.testing.contract.ticking import PERIOD, Ticking, periods, waiting

# -- what the engine rests on ----------------------------------------------------------------------


async def test_a_lease_tells_the_instant_of_its_claim(bench: Bench) -> None:
    """P8: a tick takes its time from there, so that only the store's clock decides."""
    await bench.put("a")
    bench.clock.advance(77)

    lease = await bench.one()

    assert lease.job.updated_at == bench.clock.now()


async def test_a_timed_key_outlives_a_job_that_goes_at_its_end(bench: Bench) -> None:
    """P12: so that a tick that runs again makes no second job."""
    kept = rules(keep_us=0, key_us=HOUR)
    lease = await bench.held("a", key="k", rules=kept)
    await bench.end(lease, Completed())
    assert await bench.peek("a") is None

    [answer] = await bench.add(job("a", key="k", rules=kept))

    assert (answer.id, answer.created) == ("a", False)


# -- ticks -----------------------------------------------------------------------------------------


async def test_each_tick_makes_its_job_once(bench: Bench) -> None:
    """P18: at its instant, and the handler is told which one."""
    ticking = Ticking(bench)
    await ticking.set(phase=17)

    await ticking.walk(6)

    assert len(ticking.instants) == 6
    assert periods(ticking.instants) == [1] * 5
    assert all(at % PERIOD == 17 * SECOND for at in ticking.instants)
    assert len(await waiting(bench)) == 1


async def test_a_tick_leaves_no_record(bench: Bench) -> None:
    """A schedule costs its waiting tick, and nothing else."""
    ticking = Ticking(bench)
    await ticking.set()
    await ticking.walk(3)

    assert len((await bench.store.find(finding())).jobs) == 1


async def test_a_tick_does_not_come_before_its_instant(bench: Bench) -> None:
    """Also if an operator moves its job forward."""
    ticking = Ticking(bench)
    await ticking.set()
    [id] = await waiting(bench)
    await bench.store.change(changing(Act.RESCHEDULE, ids=(id,), run_at=bench.clock.now()))

    await ticking.run()
    assert ticking.seen == []

    await ticking.walk(1)
    assert len(ticking.instants) == 1


async def test_jitter_is_the_same_for_whoever_computes_it(bench: Bench) -> None:
    """It moves when the tick is fired, and not the instant that it stands for."""
    ticking = Ticking(bench)
    await ticking.set(jitter=100)
    [tick] = (await bench.store.find(finding(queues=(QUEUE,)))).jobs
    late = tick.run_at % PERIOD
    assert late <= 100 * SECOND

    await ticking.walk(4)

    assert all(at % PERIOD == 0 for at in ticking.instants)
    assert len(ticking.instants) in (3, 4)


async def test_two_tenants_have_their_own_schedules_of_one_name(bench: Bench) -> None:
    """P7: and neither reads, changes or fires the other's."""
    ticking = Ticking(bench)
    await ticking.set()
    other = ticking.app.tenant(GLOBEX)
    with pytest.raises(ScheduleNotFound):
        await other.schedule("sync:1").get()
    await other.schedule("sync:1").set(ticking.report(), every=600)

    await ticking.handle.pause("not now", "ops")
    await ticking.walk(4)

    assert set(ticking.tenants) == {GLOBEX}
    assert [one.tenant for one in await other.schedules()] == [GLOBEX]


# -- changes ---------------------------------------------------------------------------------------


async def test_an_edit_replaces_the_waiting_tick(bench: Bench) -> None:
    """The old one does nothing, even if it could not be deleted."""
    ticking = Ticking(bench)
    await ticking.set()
    before = await ticking.handle.get()
    assert before.definition is not None
    await ticking.handle.set(every=600)
    after = await ticking.handle.get()
    assert after.definition is not None
    assert after.definition.revision > before.definition.revision
    assert after.definition.job == before.definition.job

    at = bench.clock.now() + PERIOD
    await bench.add(tick_job(ACME, "sync:1", before.definition, at - at % PERIOD))
    await ticking.walk(4)

    assert all(at % (2 * PERIOD) == 0 for at in ticking.instants)
    assert len(ticking.instants) == 2
    assert len(await waiting(bench)) == 1


async def test_a_stale_version_of_a_schedule_is_refused(bench: Bench) -> None:
    """And nothing changes."""
    ticking = Ticking(bench)
    first = (await (await ticking.set()).get()).version
    await ticking.handle.set(every=600, expect=first)

    with pytest.raises(StaleSetting):
        await ticking.handle.set(every=900, expect=first)
    with pytest.raises(StaleSetting):
        await ticking.handle.set(every=900, expect=0)


async def test_setting_the_same_again_changes_nothing(bench: Bench) -> None:
    """It keeps its version and its tick, so a program may set it at each start."""
    ticking = Ticking(bench)
    await ticking.set()
    first, tick = await ticking.handle.get(), await waiting(bench)

    bench.clock.advance(1)
    await ticking.set()

    assert await ticking.handle.get() == first
    assert await waiting(bench) == tick


async def test_a_pause_makes_no_jobs_and_a_resume_goes_on(bench: Bench) -> None:
    """What passed meanwhile is not made up for. Who paused and why can be read."""
    ticking = Ticking(bench)
    await ticking.set(missed="all")
    paused = await ticking.handle.pause("vendor down", "ops")
    assert paused.paused is not None
    assert (paused.paused.reason, paused.paused.author) == ("vendor down", "ops")

    await ticking.walk(3)
    assert ticking.seen == []

    state = await ticking.handle.resume("ann")
    assert state.definition is not None
    assert [edit.what for edit in state.definition.edits] == ["resumed", "paused", "set"]
    await ticking.walk(2)
    assert len(ticking.instants) == 2


async def test_a_deleted_schedule_makes_no_more_jobs(bench: Bench) -> None:
    """Its waiting tick goes with it."""
    ticking = Ticking(bench)
    await ticking.set()
    await ticking.handle.delete()

    assert await waiting(bench) == []
    await ticking.walk(2)
    assert ticking.seen == []
    with pytest.raises(ScheduleNotFound, match="sync:1"):
        await ticking.handle.get()


async def test_run_now_makes_a_job_besides_the_ticks(bench: Bench) -> None:
    """Also during a pause: a person asks for it."""
    ticking = Ticking(bench)
    await ticking.set()
    await ticking.handle.pause("not now", "ops")

    answer = await ticking.handle.run_now(by=By("ann", "they wait for it"))
    await ticking.run()

    assert answer.created
    assert len(ticking.seen) == 1
    state = await ticking.handle.get()
    assert state.definition is not None
    newest = state.definition.edits[0]
    assert (newest.what, newest.author, newest.reason) == ("ran now", "ann", "they wait for it")
    assert state.paused is not None


async def test_a_backfill_shows_its_ticks_before_it_makes_them(bench: Bench) -> None:
    """And makes none that there was a job for."""
    ticking = Ticking(bench)
    await ticking.set()
    end = bench.clock.now() - bench.clock.now() % PERIOD
    span = moment(end - 5 * PERIOD), moment(end)

    shown = await ticking.handle.backfill(*span)
    assert (len(shown.ticks), shown.created, shown.applied) == (5, 5, False)
    assert (await bench.store.find(finding(queues=("reports",)))).jobs == []

    ticks = await waiting(bench)
    made = await ticking.handle.backfill(*span, apply=True)
    again = await ticking.handle.backfill(*span, apply=True)
    assert await waiting(bench) == ticks
    await ticking.run()
    assert (made.created, again.created, again.existing) == (5, 0, 5)
    assert len(set(ticking.instants)) == len(ticking.instants) == 5
    state = await ticking.handle.get()
    assert state.definition is not None
    noted = [edit.what.partition(" of ")[0] for edit in state.definition.edits]
    assert noted == ["backfilled 5 ticks", "set"]
    with pytest.raises(InvalidInput, match="future"):
        await ticking.handle.backfill(span[0], moment(end + 9 * PERIOD))
    assert (await bench.tally(tenant_of())).counts.get(State.FAILED, 0) == 0
