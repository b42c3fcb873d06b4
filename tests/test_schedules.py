"""Schedules as programs write them: the decorator, the handle, blocking code, and long times."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, By, Config, Context, Job
from holdfast.core import bounds
from holdfast.core.clock import SECOND, instant, moment
from holdfast.core.errors import ConfigError, InvalidInput, ScheduleNotFound, TenantFull
from holdfast.core.schedule import OVER_ALL, QUEUE
from holdfast.stores import open_store
from holdfast.testing import ManualClock, drain
from holdfast.testing.contract.ticking import Deadly
from holdfast.worker import Worker


def an_app(clock: ManualClock | None = None, **settings: Any) -> App:
    return App(open_store("memory://", clock or ManualClock()), **{"tenant": "main", **settings})


# -- the decorator ---------------------------------------------------------------------------------


async def test_the_decorator_makes_a_job_type_and_a_schedule() -> None:
    """Registered when a worker starts; the function still makes jobs."""
    clock = ManualClock()
    app = an_app(clock)
    seen: list[datetime | None] = []

    @app.schedule(
        "0 6 * * mon-fri",
        zone="Europe/Berlin",
        overlap="skip",
        missed="one",
        within=3600,
        jitter=60,
    )
    async def report(ctx: Context) -> None:
        seen.append(ctx.tick)

    async with app:
        with pytest.raises(ScheduleNotFound):
            await app.schedule("report").get()
        await drain(app)
        state = await app.schedule("report").get()
        assert state.definition is not None
        assert state.definition.timing.words == "0 6 * * mon-fri in Europe/Berlin"
        [first] = await app.schedule("report").next(1)
        clock.set(instant(first) + 60 * SECOND)
        await drain(app)
        await app.enqueue(report())
        await drain(app)

    assert seen == [first, None]


async def test_the_decorator_goes_over_a_job_with_options() -> None:
    """The job keeps its queue and rules."""
    app = an_app()

    @app.schedule(every=300, phase=17, name="often")
    @app.job(queue="reports", max_attempts=7)
    def report(ctx: Context, shop: int = 3) -> None: ...

    async with app:
        await drain(app)
        found = (await app.schedule("often").get()).definition
        assert found is not None
        assert (found.job.queue, found.job.rules.max_attempts) == ("reports", 7)
        assert found.job.body == b'{"shop":3}'


async def test_code_wins_only_when_its_text_has_changed() -> None:
    """A live change stays over restarts, a pause over a new text too."""
    store = open_store("memory://", ManualClock())

    def started(every: int) -> App:
        app = App(store, tenant="main")

        @app.schedule(every=every, name="sync")
        def sync(ctx: Context) -> None: ...

        return app

    async with started(300) as app:
        assert await app.register_schedules() == 1
        await app.schedule("sync").set(every=60)
        await app.schedule("sync").pause("vendor down", "ops")
        assert await started(300).register_schedules() == 0
        state = await app.schedule("sync").get()
        assert state.definition is not None
        assert state.definition.timing.every_us == 60 * SECOND

        assert await started(600).register_schedules() == 1
        state = await app.schedule("sync").get()
        assert state.definition is not None
        assert state.definition.timing.every_us == 600 * SECOND
        assert state.paused is not None
        assert [one.author for one in state.definition.edits][:2] == ["code", "ops"]


async def test_tenant_says_whose_job_it_is_and_tenants_lists_many() -> None:
    """The list may be a plain function, a coroutine or a generator of either kind."""
    clock = ManualClock()
    app = an_app(clock, tenant=None)
    seen: list[str] = []

    async def coroutine() -> list[str]:
        return ["c1", "c2"]

    async def generator() -> Any:
        for tenant in ("g1", "g2"):
            yield tenant

    def run(ctx: Context) -> None:
        seen.append(ctx.tenant)

    for number, tenants in enumerate((lambda: ["p1", "p2"], coroutine, generator)):
        job = app.job(name=f"job{number}")(run)
        app.schedule(every=300, tenants=tenants)(job)
    app.schedule(every=300, tenant="acme")(app.job(name="own")(run))

    async with app:
        await drain(app)
        clock.advance(300)
        await drain(app)
        listed = await app.tenant(OVER_ALL).schedules()

    assert sorted(seen) == ["acme", "c1", "c2", "g1", "g2", "p1", "p2"]
    assert [one.name for one in listed] == ["job0", "job1", "job2"]


async def test_a_tenant_without_room_keeps_no_other_from_its_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And is named in the log."""
    clock = ManualClock()
    app = an_app(clock)
    seen: list[str] = []

    @app.schedule(every=300, tenants=lambda: ["a", "full", "b"])
    def run(ctx: Context) -> None:
        seen.append(ctx.tenant)

    async with app:
        await app.tenant("full").scope().set(max_queued=1)
        await app.tenant("full").enqueue(run(), delay=9999)
        await drain(app)
        clock.advance(300)
        with caplog.at_level(logging.WARNING):
            await drain(app)

    assert sorted(seen) == ["a", "b"]
    assert "full" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        ((), {}, "cron text, every=, or a name"),
        (("sync:42",), {"zone": "UTC"}, "name of a schedule, which takes no zone="),
        (("0 6 * *",), {}, "4 fields"),
        (("0 0 6 * * *",), {}, "six fields.*every="),
        (("0 6 * * *",), {"zone": "Mars/Base"}, "Mars/Base"),
        (("0 6 * * *",), {"every": 5}, "not both"),
        ((), {"every": 300, "phase": 300}, "phase"),
        ((), {"every": 300, "jitter": 300}, "jitter"),
        ((), {"every": 300, "overlap": "maybe"}, "skip, queue, allow, cancel"),
        ((), {"every": 300, "missed": "al"}, "Did you mean 'all'"),
        ((), {"every": 300, "within": 0}, "within"),
        ((), {"every": 300, "overlapp": "skip"}, "Did you mean 'overlap'"),
        ((), {"every": 300, "name": "a b"}, "may contain no spaces"),
        ((), {"every": 300, "tenant": "a", "tenants": list}, "either tenant or tenants"),
        ((), {"every": 300, "tenants": ["a"]}, "must be a function"),
        ((), {"every": 300, "tenants": list, "overlap": "queue"}, "many tenants"),
    ],
    ids=str,
)
def test_a_wrong_decorator_says_what_is_wrong(arguments: Any, options: Any, why: str) -> None:
    """When the module is imported, not in the worker."""
    app = an_app()

    def run(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match=why):
        app.schedule(*arguments, **options)(run)


def test_other_mistakes_are_refused_too() -> None:
    """No tenant, no arguments to give, a class, the same name twice, the decorator without ()."""
    app = an_app()

    def run(ctx: Context) -> None: ...

    def needs(ctx: Context, shop: int) -> None: ...

    class Report(Job):
        async def run(self, ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match=r"no default.*tenant='main'"):
        an_app(tenant=None).schedule("@daily")(run)
    with pytest.raises(ConfigError, match="shop"):
        app.schedule("@daily")(needs)
    with pytest.raises(ConfigError, match="function, not a class"):
        app.schedule("@daily")(Report)
    job = app.schedule("@daily")(run)
    with pytest.raises(ConfigError, match="defined twice"):
        app.schedule("@daily")(job)
    with pytest.raises(ConfigError, match="decorates with arguments"):
        app.schedule(run)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="no default"):
        an_app(tenant=None).schedule("sync:42")


def test_the_queue_of_ticks_is_reserved() -> None:
    """For types and for enqueues; and its tags for ticks."""
    app = an_app()

    @app.job()
    def run(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="reserved"):
        app.job(queue=QUEUE)(run.function)
    with pytest.raises(ConfigError, match="reserved"):
        app.job(name="holdfast.tick")(run.function)
    for options in ({"queue": QUEUE}, {"tags": ["tick:now"]}, {"tags": ["schedule:x"]}):
        with pytest.raises(InvalidInput):
            app.enqueuer.plan("main", run(), options)  # type: ignore[arg-type]


async def test_the_job_of_a_schedule_sets_nothing_that_ticks_set() -> None:
    """An id or a key of its own would make all ticks one job."""
    app = an_app()

    @app.job()
    def run(ctx: Context) -> None: ...

    async with app:
        for options in ({"id": "a"}, {"key": "k"}, {"delay": 5}, {"run_at": datetime.now(UTC)}):
            with pytest.raises(InvalidInput, match="set by each tick"):
                await app.schedule("x").set(run().with_options(**options), every=60)
        with pytest.raises(InvalidInput, match="needs the job"):
            await app.schedule("x").set(every=60)
        with pytest.raises(ScheduleNotFound):
            await app.schedule("x").get()


def test_blocking_code_has_the_same_handle() -> None:
    """As `app.sync.schedule(...)`."""
    app = an_app(ManualClock())

    @app.job()
    def run(ctx: Context) -> None: ...

    with app.sync as sync:
        handle = sync.schedule("x")
        handle.set(run(), every=300, by=By("ann", "new shop"))
        assert len(handle.next(3)) == 3
        paused = handle.pause("vendor", "ops").paused
        assert paused is not None
        assert paused.author == "ops"
        assert handle.resume("ops").paused is None
        assert handle.run_now().created
        day = moment(instant(handle.next(1)[0])) - timedelta(days=1)
        assert handle.backfill(day, day + timedelta(hours=1)).created == 12
        assert [one.name for one in sync.schedules()] == ["x"]
        state = handle.get().definition
        assert state is not None
        assert state.edits[-1].reason == "new shop"
        handle.delete()


async def test_a_tenant_has_so_many_schedules_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of one is possible also then."""
    monkeypatch.setattr("holdfast.definitions.SCHEDULES_MAX", 3)
    app = an_app()

    @app.job()
    def run(ctx: Context) -> None: ...

    async with app:
        for number in range(3):
            await app.schedule(f"s{number}").set(run(), every=60)
        with pytest.raises(TenantFull):
            await app.schedule("s3").set(run(), every=60)
        await app.schedule("s0").set(every=90)
        assert len(await app.schedules()) == 3


def test_the_bounds_of_a_page_allow_a_tenants_schedules() -> None:
    """And a name with its tenant fits into that of a setting."""
    assert bounds.SCHEDULE_MAX + bounds.TENANT_MAX + 20 < bounds.NAME_MAX
    assert bounds.SCHEDULE_BODY_MAX * 4 // 3 + 8192 < bounds.SETTING_MAX


# -- workers ---------------------------------------------------------------------------------------


def test_every_worker_serves_ticks_unless_it_is_told_not_to() -> None:
    """Besides its own queues."""
    app = an_app()

    assert QUEUE in (Worker(app, queues=["a"]).watch.queues or ())
    assert QUEUE not in (Worker(app, queues=["a"], ticks=False).watch.queues or ())
    assert Worker(app, queues=["*"]).watch.queues is None
    assert Config().ticks


async def test_a_worker_without_the_code_fires_the_ticks_of_others() -> None:
    """The target waits for a worker that knows it. Its own middleware sees no tick."""
    clock = ManualClock()
    store: Any = Deadly(open_store("memory://", clock))
    await store._real.open()
    calls: list[str] = []

    async def middleware(ctx: Context, job: Job, call: Any) -> Any:
        calls.append(ctx.job.type)
        return await call(ctx, job)

    app, other = App(store, tenant="main"), App(store, tenant="main", middleware=(middleware,))

    @app.job(queue="far")
    def run(ctx: Context) -> None: ...

    async with app, other:
        await app.schedule("x").set(run(), every=300)
        clock.advance(300)
        await drain(other, queues=[QUEUE])
        [job] = (await app.find(queues=["far"])).jobs

    assert job.type == "run"
    assert calls == []


async def test_a_worker_registers_and_fires_schedules() -> None:
    """By the real clock, besides the jobs of its queues."""
    app = App("memory://", tenant="main")
    seen: list[datetime | None] = []
    twice = asyncio.Event()

    @app.schedule(every=1)
    async def often(ctx: Context) -> None:
        seen.append(ctx.tick)
        if len(seen) == 2:
            twice.set()

    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        await twice.wait()
    worker.stop()
    await running

    first, second = seen[:2]
    assert first is not None
    assert second is not None
    assert (second - first).total_seconds() >= 1
