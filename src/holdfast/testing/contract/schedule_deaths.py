"""Schedules (P18): deaths, repeats, lost ticks, and schedules that cannot go on."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from holdfast.core import cron
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed
from holdfast.core.schedule import name_of
from holdfast.core.spec import JobSpec
from holdfast.core.tick import tick_job
from holdfast.store import Act, Put
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    changing,
    tenant_of,
)
from holdfast.testing.contract.ticking import PERIOD, Deadly, Died, Ticking, periods, waiting
from holdfast.upkeep.recur import Recur

# -- death and repeats -----------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("overlap", ["skip", "cancel"])
async def test_a_worker_may_die_at_every_call_of_a_tick(
    bench: Bench, late: bool, overlap: str
) -> None:
    """P18: another one fires the tick again, and its job is made once, although jobs that have
    ended leave no record.
    """
    ticking = Ticking(bench)
    await ticking.set(overlap=overlap, missed="all")
    calls, finished = 0, 0
    while finished < 2:
        calls += 1
        bench.clock.advance(PERIOD / SECOND)
        lease = await ticking.claim_tick()
        assert lease is not None
        try:
            await ticking.fire(lease, Deadly(bench.store, calls, late=late))
            finished += 1
        except Died:
            await ticking.jobs()
            bench.clock.advance(61)
            lease = await ticking.claim_tick()
            assert lease is not None
            await ticking.fire(lease)
        await bench.end(lease, Completed())
        await ticking.jobs()

    assert calls > 3
    assert len(ticking.instants) == len(set(ticking.instants))
    assert set(periods(sorted(ticking.instants))) == {1}
    assert len(await waiting(bench)) == 1


async def test_a_tick_that_is_fired_by_two_workers_makes_one_job(bench: Bench) -> None:
    """P18: also by a worker that was cut off, long after the others went on."""
    ticking = Ticking(bench)
    await ticking.set()
    bench.clock.advance(PERIOD / SECOND)
    slow = await ticking.claim_tick()
    assert slow is not None
    bench.clock.advance(61)
    again = await ticking.claim_tick()
    assert again is not None
    assert again.job.id == slow.job.id

    await ticking.fire(again)
    await ticking.fire(slow)
    await bench.end(again, Completed())
    await ticking.jobs()
    await ticking.walk(2)
    await ticking.fire(slow)
    await ticking.run()

    assert len(ticking.instants) == 3
    assert periods(ticking.instants) == [1, 1]
    assert len(await waiting(bench)) == 1


@pytest.mark.parametrize("act", ["cancel", "delete"])
async def test_a_lost_tick_is_restored(bench: Bench, act: str) -> None:
    """By the upkeep, once. The schedule goes on with its next tick."""
    ticking = Ticking(bench)
    await ticking.set()
    [id] = await waiting(bench)
    if act == "cancel":
        await bench.cancel(id)
    else:
        await bench.store.change(changing(Act.DELETE, ids=(id,)))
    bench.clock.advance(3 * PERIOD / SECOND)
    recur = Recur(bench.store, 1.0)

    await recur.turn()
    await recur.turn()

    assert recur.restored == 1
    await ticking.walk(2)
    assert len(ticking.instants) == 2


async def test_a_job_of_another_tenant_does_not_stand_for_a_lost_tick(bench: Bench) -> None:
    """P7, P19: though it has the id of the tick, which can be computed."""
    ticking = Ticking(bench)
    await ticking.set()
    [id] = await waiting(bench)
    await bench.put(id, tenant=GLOBEX)
    await bench.cancel(id)
    await bench.store.change(changing(Act.DELETE, ids=(id,)))
    recur = Recur(bench.store, 1.0)

    await recur.turn()

    assert recur.restored == 1
    assert await waiting(bench) == [id]


async def test_a_late_tick_is_not_lost(bench: Bench) -> None:
    """While no worker is there, the upkeep adds no ticks."""
    ticking = Ticking(bench)
    await ticking.set()
    recur = Recur(bench.store, 1.0)
    for _ in range(5):
        bench.clock.advance(PERIOD / SECOND)
        await recur.turn()

    assert recur.restored == 0
    assert len(await waiting(bench)) == 1


async def test_a_full_tenant_gets_its_job_when_there_is_room(bench: Bench) -> None:
    """Its tick waits, and costs no attempt."""
    ticking = Ticking(bench)
    await ticking.set()
    await bench.configure(tenant_of(), max_queued=1)
    bench.clock.advance(PERIOD / SECOND)
    await ticking.run()
    assert ticking.seen == []

    await bench.configure(tenant_of(), max_queued=10)
    bench.clock.advance(10)
    await ticking.run()
    assert len(ticking.instants) == 1


# -- schedules that cannot go on -------------------------------------------------------------------


async def test_a_type_that_no_worker_knows_pauses_its_schedule(bench: Bench) -> None:
    """With the reason, and other schedules go on. After a resume it tries again."""
    ticking = Ticking(bench, unknown_delay_s=0)
    await ticking.set()
    lost = ticking.app.schedule("lost")
    gone = JobSpec(type="gone", codec="json", version=1, body=b"{}", queue="reports")
    await lost.put(gone, {"every": PERIOD / SECOND})

    await ticking.walk(2)

    state = await lost.get()
    assert state.paused is not None
    assert "gone" in state.paused.reason
    assert len(ticking.instants) == 2
    await lost.resume("ops")
    await ticking.walk(1)
    assert (await lost.get()).paused is None


async def test_a_zone_that_is_gone_pauses_its_schedule(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the tick, or by the upkeep."""
    ticking = Ticking(bench)
    await ticking.set()
    broken = ticking.app.schedule("broken")
    await broken.set(ticking.report(), cron="0 6 * * *", zone="Antarctica/Troll")

    def gone(name: str) -> ZoneInfo:
        if name == "UTC":
            return ZoneInfo("UTC")
        raise InvalidInput(field="zone", why=f"there is no time zone {name!r} here")

    monkeypatch.setattr(cron, "zone_of", gone)
    await Recur(bench.store, 1.0).turn()
    await ticking.walk(1)

    state = await broken.get()
    assert state.paused is not None
    assert "Antarctica/Troll" in state.paused.reason
    assert len(ticking.instants) == 1


async def test_a_definition_that_cannot_be_read_is_shown_as_such(bench: Bench) -> None:
    """It stops nothing else, is not overwritten, and can be set again."""
    ticking = Ticking(bench)
    await ticking.set()
    try:
        await bench.store.settings([Put(name_of(ACME, "odd"), b"\xff{", 0)])
    except InvalidInput as refused:
        pytest.skip(f"this store takes no setting that cannot be read: {refused}")
    odd = ticking.app.schedule("odd")

    await Recur(bench.store, 1.0).turn()
    await ticking.walk(1)

    [state, _] = await ticking.app.schedules()
    assert (state.name, state.definition) == ("odd", None)
    assert state.fault is not None
    with pytest.raises(InvalidInput, match="cannot be read"):
        await odd.pause("x", "ops")
    await odd.set(ticking.report(), every=60)
    assert (await odd.get()).definition is not None
    assert len(ticking.instants) == 1


async def test_a_forged_tick_ends_without_a_trace(bench: Bench) -> None:
    """One that its schedule does not have, of another revision, or with a made up id."""
    ticking = Ticking(bench)
    await ticking.set()
    definition = (await ticking.handle.get()).definition
    assert definition is not None
    now = bench.clock.now()
    between = tick_job(ACME, "sync:1", definition, now - now % PERIOD - 7)
    nothing = tick_job(ACME, "sync:2", definition, now - now % PERIOD)
    await bench.add(between, nothing)

    types = await ticking.run()

    assert types == ["holdfast.tick"] * 2
    assert ticking.seen == []
    assert len(await waiting(bench)) == 1
