"""The bridge for blocking code: the same calls, from any thread, but never from its own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from holdfast import App, Context, InvalidInput, JobNotFound, State, WaitTimeout
from holdfast.core.errors import StoreUnavailable
from holdfast.stores import open_store
from holdfast.testing import Faults, drain

THREADS = 8
EACH = 25


def an_app(store: Any) -> tuple[App, Any]:
    app = App(store)

    @app.job()
    async def add(ctx: Context, a: int, b: int = 0) -> int:
        return a + b

    return app, add


@pytest.fixture
def bench() -> Iterator[tuple[App, Any]]:
    app, add = an_app("memory://")
    with app.sync:
        yield app, add


def test_every_call_has_its_blocking_form(bench: tuple[App, Any]) -> None:
    """Enqueue, many, get, find, wait, cancel, replay, counts, run_now."""
    app, add = bench
    acme = app.sync.tenant("acme")
    one = acme.enqueue(add(a=1, b=2), id="one")
    many = acme.enqueue_many(add(a=n) for n in range(3))
    app.sync.call(drain(app))
    two = acme.enqueue(add(a=5))

    assert (one.id, many.created) == ("one", 3)
    assert acme.wait("one") == 3
    assert acme.get("one").state is State.COMPLETED
    assert acme.cancel(two.id) is True
    assert len(acme.find(states=["completed"]).jobs) == 4
    assert acme.get(acme.replay("one")).origin == "one"
    assert sum(acme.counts()[0].counts.values()) == 6
    assert app.sync.run_now(add(a=2, b=2)) == 4


def test_errors_come_through_as_they_are(bench: tuple[App, Any]) -> None:
    """To the thread that called."""
    app, add = bench

    with pytest.raises(JobNotFound):
        app.sync.tenant("acme").get("nothing")
    with pytest.raises(InvalidInput, match="delay"):
        app.sync.tenant("acme").enqueue(add(a=1), delay=-1)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_many_threads_share_batches(store: str, tmp_path: Path) -> None:
    """All is kept, and the store sees fewer calls than there were."""
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    faults = Faults(open_store(url))
    app, add = an_app(faults.store)
    start = Barrier(THREADS)

    def work(number: int) -> list[str]:
        acme = app.sync.tenant("acme")
        start.wait()
        return [acme.enqueue(add(a=number)).id for _ in range(EACH)]

    with app.sync, ThreadPoolExecutor(THREADS) as pool:
        ids = [id for made in pool.map(work, range(THREADS)) for id in made]
        kept = app.sync.tenant("acme").counts()[0].counts

    assert len(set(ids)) == THREADS * EACH
    assert kept == {State.ENQUEUED: THREADS * EACH}
    assert faults.count("enqueue") <= THREADS * EACH
    assert faults.count("open") == 1


def test_its_own_loop_is_told_to_await(bench: tuple[App, Any]) -> None:
    """Waiting there for itself would hang for ever."""
    app, add = bench

    async def inside() -> None:
        app.sync.tenant("acme").enqueue(add(a=1))

    async def closing() -> None:
        app.sync.close()

    for wrong in (inside, closing):
        with pytest.raises(StoreUnavailable, match="use await"):
            app.sync.call(wrong())


async def test_it_works_beside_a_running_loop() -> None:
    """Blocking code called from a thread of an async program; both see the same jobs."""
    app, add = an_app("memory://")
    async with app:
        made = await asyncio.to_thread(lambda: app.sync.tenant("acme").enqueue(add(a=1)))

        assert (await app.tenant("acme").get(made.id)).state is State.ENQUEUED
        await asyncio.to_thread(app.sync.close)
        assert (await app.tenant("acme").get(made.id)).state is State.ENQUEUED


def test_it_may_be_closed_twice_and_used_again() -> None:
    """It opens itself at the first call."""
    app, add = an_app("memory://")
    assert app.sync.tenant("acme").enqueue(add(a=1)).created
    app.sync.close()
    app.sync.close()

    assert app.sync.tenant("acme").enqueue(add(a=1)).created
    app.sync.close()


def test_a_store_that_does_not_open_fails_the_call_and_leaves_no_thread() -> None:
    """The next call tries again."""
    faults = Faults(open_store("memory://"))
    app, add = an_app(faults.store)
    faults.fail("open")

    with pytest.raises(StoreUnavailable):
        app.sync.tenant("acme").counts()
    assert app.sync.tenant("acme").enqueue(add(a=1)).created
    app.sync.close()


def test_a_close_ends_those_who_still_wait() -> None:
    """A thread that waits for a job must not hang for ever."""
    faults = Faults(open_store("memory://"))
    app, add = an_app(faults.store)
    acme = app.sync.tenant("acme")
    id = acme.enqueue(add(a=1)).id
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(acme.wait, id)
        app.sync.call(faults.arrived("wait", 1))
        app.sync.close()

        with pytest.raises(StoreUnavailable):
            waiting.result(timeout=5)


def test_threads_that_call_while_it_closes_get_an_answer_or_an_error(tmp_path: Path) -> None:
    """Whatever the moment; nobody is left behind, and what returned is kept (P1)."""
    app, add = an_app(f"sqlite:///{tmp_path / 'jobs.db'}")
    acme = app.sync.tenant("acme")
    made, stop = [], Event()

    def work(number: int) -> None:
        while not stop.is_set():
            try:
                made.append(acme.enqueue(add(a=number)).id)
            except StoreUnavailable:
                continue

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, number) for number in range(4)]
        for closes in range(1, 21):
            while len(made) < closes:
                acme.counts()
            app.sync.close()
        stop.set()
        for worker in workers:
            worker.result(timeout=10)

    with app.sync:
        kept = sum(acme.counts()[0].counts.values())
    assert kept >= len(set(made)) == len(made) > 0


def test_scopes_are_set_and_read_without_await() -> None:
    """The same handles, from a thread."""
    app = App("memory://")

    @app.job(queue="sums")
    async def add(ctx: Context, a: int) -> int:
        return a

    with app.sync:
        acme = app.sync.tenant("acme")
        acme.enqueue_many((add(a=a) for a in range(3)), group="g")
        first = acme.queue("sums").set(max_running=2, rate="5/s")
        acme.scope().pause("why", "ada")
        acme.scope().resume("ada")
        acme.group("g").push_slot("s", 60)
        held = [slot.id for slot in acme.group("g").slots()]
        number = acme.group("g").count_slots()
        acme.group("g").remove_slot("s")
        job = acme.group("g").jobs(limit=1).jobs[0]
        why = acme.explain(job.id)
        groups = [one.queue for one in acme.groups()]
        steps = [step.done for step in acme.group("g").cancel()]
        counts = acme.group("g").counts().counts

    assert first.settings.max_running == 2
    assert (held, number, groups, steps) == (["s"], 1, ["g"], [3])
    assert [gate.kind.value for gate in why.gates] == ["no_worker"]
    assert counts == {State.CANCELED: 3}


def test_a_wait_keeps_its_time_out_when_the_loop_is_blocked(bench: tuple[App, Any]) -> None:
    """Whatever else runs on the bridge's loop."""
    app, add = bench
    acme = app.sync.tenant("acme")
    id = acme.enqueue(add(a=1)).id
    blocked, done = Event(), Event()

    async def block() -> None:
        blocked.set()
        done.wait(10)

    with ThreadPoolExecutor(1) as pool:
        blocking = pool.submit(app.sync.call, block())
        blocked.wait(5)
        try:
            with pytest.raises(WaitTimeout):
                acme.wait(id, timeout=0.01)
            still_blocked = not blocking.done()
        finally:
            done.set()

    assert still_blocked


def test_a_call_that_exits_does_not_end_the_bridge(bench: tuple[App, Any]) -> None:
    """SystemExit reaches its caller; the loop goes on, for those who wait for other answers."""
    app, add = bench

    async def leave() -> None:
        raise SystemExit(3)

    with ThreadPoolExecutor(1) as pool, pytest.raises(SystemExit):
        pool.submit(app.sync.call, leave()).result(timeout=5)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(app.sync.tenant("acme").enqueue, add(a=1)).result(timeout=5)

    assert made.created
