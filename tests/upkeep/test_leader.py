"""One process at a time does the upkeep; when it goes, another does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast import App, Config, Context, Reason, State
from holdfast.core.errors import StoreUnavailable
from holdfast.store import Claim, Ref, Store, Watch
from holdfast.stores import open_store
from holdfast.testing import Faults, ManualClock
from holdfast.upkeep.leader import NAME, Report, Upkeep
from holdfast.worker import Worker

CONFIG = Config.of(leader_s=5.0)


@pytest.fixture
async def faults() -> AsyncIterator[Faults]:
    """A memory store that can fail, on a manual clock (`faults.clock`)."""
    faults = Faults(open_store("memory://", ManualClock()))
    await faults.store.open()
    yield faults
    await faults.store.close()


async def test_only_one_leads_at_a_time(faults: Faults) -> None:
    """The first who asks; it renews well before its hold ends."""
    a, b = Upkeep(faults.store, CONFIG, "a"), Upkeep(faults.store, CONFIG, "b")

    delays = [await a.turn(), await b.turn(), await a.turn()]

    assert (a.leading, b.leading) == (True, False)
    assert all(1.25 <= delay <= 2.1 for delay in delays)


async def test_processes_of_one_name_do_not_both_lead(faults: Faults) -> None:
    """In containers every process has pid 1, and often the same name: the store could not tell
    them apart, and each would renew the other's hold.
    """
    a, b = Upkeep(faults.store, CONFIG, "service-1"), Upkeep(faults.store, CONFIG, "service-1")

    await a.turn()
    await b.turn()

    assert (a.leading, b.leading) == (True, False)
    await b._resign()
    assert [hold.name for hold in await faults.store.hold(under=NAME)] == [NAME]


async def test_a_leader_that_died_is_followed_when_its_hold_lapses(faults: Faults) -> None:
    """And stands back when it comes to life again."""
    clock = ManualClock()
    faults = Faults(open_store("memory://", clock))
    await faults.store.open()
    a, b = Upkeep(faults.store, CONFIG, "a"), Upkeep(faults.store, CONFIG, "b")
    await a.turn()
    clock.advance(5)

    await b.turn()
    await a.turn()

    assert (a.leading, b.leading) == (False, True)


async def test_the_hold_tells_how_well_the_upkeep_keeps_up(faults: Faults) -> None:
    """For operators and for `holdfast doctor`."""
    upkeep = Upkeep(faults.store, CONFIG, "a")
    upkeep.rescue.done, upkeep.rescue.lag_s = 3, 1.5

    await upkeep.turn()

    [hold] = await faults.store.hold(under=NAME)
    assert msgspec.json.decode(hold.note, type=Report) == Report(1.5, 3, 0)


async def test_a_stopped_leader_gives_the_name_back_at_once(faults: Faults) -> None:
    """Even if the store is away it stops; then the hold lapses by itself."""
    for outage in (None, StoreUnavailable(store="x", why="away")):
        upkeep = Upkeep(faults.store, CONFIG, "a")
        stop = asyncio.Event()
        running = asyncio.create_task(upkeep.run(stop))
        await faults.arrived("hold", faults.count("hold") + 1)
        while not upkeep.leading:
            await faults.arrived("expired", faults.count("expired") + 1)
        if outage is not None:
            faults.fail("hold", error=outage)
        stop.set()
        async with asyncio.timeout(5):
            await running

        assert not upkeep.leading
        held = await faults.store.hold(under=NAME)
        assert [hold.owner[:2] for hold in held] == ([] if outage is None else ["a-"])


def an_app(store: str | Store) -> App:
    app = App(
        store,
        leader_s=0.5,
        rescue_every_s=0.02,
        prune_every_s=0.02,
        poll_s=0.05,
        heartbeat_s=0.1,
        lease_s=1.0,
    )

    @app.job(name="work")
    async def work(ctx: Context) -> None: ...

    return app


async def leader(app: App, *, other_than: str = "") -> str:
    """The name of who does the upkeep, once there is somebody."""
    async with asyncio.timeout(10):
        while True:
            held = await app.store.hold(under=NAME)
            name = held[0].owner.rpartition("-")[0] if held else ""
            if name and name != other_than:
                return name
            await app.store.wait(Watch(news=True), 0.02)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_several_workers_share_the_upkeep_and_another_leads_when_the_leader_stops(
    store: str, tmp_path: Path
) -> None:
    """Within a fraction of the hold's length, since it was given back."""
    app = an_app("memory://" if store == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}")
    async with app:
        workers = {name: Worker(app, name=name) for name in ("w1", "w2")}
        tasks = {name: asyncio.create_task(worker.run()) for name, worker in workers.items()}
        first = await leader(app)
        workers[first].stop()
        await tasks[first]
        second = await leader(app, other_than=first)
        workers[second].stop()
        await tasks[second]

        assert {first, second} == {"w1", "w2"}
        assert await app.store.hold(under=NAME) == []


async def test_a_workers_upkeep_rescues_expires_and_prunes() -> None:
    """Without anybody asking; the waiting are told at once."""
    clock = ManualClock()
    app = an_app(open_store("memory://", clock))
    acme = app.tenant("acme")
    kind = app.registry.named("work")
    assert kind is not None
    async with app:
        await acme.enqueue(kind.kind(), id="dies", max_attempts=1, queue="else")
        claim = Claim(worker="dead", nonce="n", limit=1, lease_us=1_000_000)
        assert len(await app.store.claim(claim)) == 1
        await acme.enqueue(kind.kind(), id="late", ttl=1, queue="else")
        await acme.enqueue(kind.kind(), id="gone", keep=0.5, queue="else")
        await acme.cancel("gone")
        clock.advance(1)
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(5):
            for id in ("dies", "late", "gone"):
                await _ended(app, id)
        dies, late = await acme.get("dies"), await acme.get("late")
        worker.stop()
        await running

    assert (dies.state, dies.reason) == (State.FAILED, Reason.LEASE_EXPIRED)
    assert (late.state, late.reason) == (State.FAILED, Reason.EXPIRED)


async def _ended(app: App, id: str) -> None:
    """The job failed, or is no longer there."""
    while True:
        found = (await app.tenant("acme").find(newest_first=False)).jobs
        if all(job.id != id or job.state is State.FAILED for job in found):
            return
        await app.store.wait(Watch(job=Ref("acme", id)), 0.02)
