"""App: types are registered, the store is opened and closed once, and jobs run without a store."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, Fail, InvalidInput, Job, State
from holdfast.core.errors import StoreUnavailable
from holdfast.core.job import Completed, Failed
from holdfast.events import Confirmed
from holdfast.middleware import Call
from holdfast.stores import open_store
from holdfast.testing import (
    Faults,
    ManualClock,
    assert_enqueued,
    assert_not_enqueued,
    assert_state,
    drain,
)


def recorder(name: str, log: list[str]) -> Any:
    async def around(ctx: Context, job: Job, call: Call) -> Any:
        log.append(f"{name} in")
        try:
            return await call(ctx, job)
        finally:
            log.append(f"{name} out")

    return around


async def test_run_now_runs_without_a_store_through_the_middleware() -> None:
    """The first is the outermost; the handler's result comes back."""
    log: list[str] = []
    app = App("memory://", middleware=(recorder("a", log), recorder("b", log)))

    @app.job()
    async def work(ctx: Context, n: int) -> tuple[str, int, int]:
        log.append("work")
        return ctx.tenant, ctx.attempt, n

    assert await app.run_now(work(n=3), tenant="acme") == ("acme", 1, 3)
    assert log == ["a in", "b in", "work", "b out", "a out"]


async def test_run_now_takes_plain_functions_and_raises_what_they_raise() -> None:
    """A planned job's options do not matter here."""
    app = App("memory://")

    @app.job()
    def work(ctx: Context) -> None:
        raise Fail("no")

    with pytest.raises(Fail, match="no"):
        await app.run_now(work().with_options(delay=5))


async def test_run_now_has_no_store_to_enqueue_to() -> None:
    """And says so."""
    app = App("memory://")

    @app.job()
    async def work(ctx: Context) -> None:
        await ctx.enqueue(work())

    with pytest.raises(InvalidInput, match="no store"):
        await app.run_now(work())


async def test_nested_opens_share_the_store_and_the_last_close_closes_it() -> None:
    """A worker inside an opened app does not close it; a close too many does no harm."""
    faults = Faults(open_store("memory://"))
    app = App(faults.store)

    async with app:
        async with app:
            pass
        assert (faults.count("open"), faults.count("close")) == (1, 0)
    await app.close()

    assert (faults.count("open"), faults.count("close")) == (1, 1)
    async with app:
        assert (await app.tenant("acme").find()).jobs == []


async def test_a_store_that_does_not_open_leaves_the_app_closed() -> None:
    """The next try opens it."""
    faults = Faults(open_store("memory://"))
    app = App(faults.store)
    faults.fail("open")

    with pytest.raises(StoreUnavailable):
        await app.open()
    async with app:
        assert faults.count("open") == 2


async def test_a_closed_app_says_that_it_is_not_open() -> None:
    """Not a stack trace of the inside."""
    with pytest.raises(StoreUnavailable, match="not open"):
        await App("memory://").tenant("acme").find()


async def test_jobs_outlive_the_app_that_enqueued_them(tmp_path: Path) -> None:
    """A durable store has them when it is opened again."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    def an_app() -> tuple[App, Any]:
        app = App(url)

        @app.job()
        async def work(ctx: Context, n: int) -> int:
            return n + 1

        return app, work

    first, work = an_app()
    async with first:
        made = await first.tenant("acme").enqueue(work(n=1))
    second, _ = an_app()
    await drain(second)

    async with second:
        assert await second.tenant("acme").wait(made.id) == 2


async def test_subscribers_hear_what_the_store_confirmed() -> None:
    """A guest that raises disturbs neither the job nor the other guests."""
    app = App("memory://")
    heard: list[Confirmed] = []

    def rude(fact: Confirmed) -> None:
        raise ValueError("rude")

    app.subscribe(rude)
    app.subscribe(heard.append)

    @app.job(max_attempts=1)
    async def work(ctx: Context, fine: bool) -> str:
        if not fine:
            raise ValueError("oh")
        return "fine"

    async with app:
        await app.tenant("acme").enqueue(work(fine=True))
        await app.tenant("acme").enqueue(work(fine=False))
        await drain(app)

    assert [fact.state for fact in heard] == [State.COMPLETED, State.FAILED]
    assert heard[0].outcome == Completed("fine")
    assert isinstance(heard[1].outcome, Failed)


async def test_drain_runs_what_is_due_and_leaves_the_rest() -> None:
    """Follow-ups run too; the clock decides about the others."""
    clock = ManualClock()
    app = App("memory://", clock=clock)

    @app.job()
    async def child(ctx: Context) -> str:
        return "child"

    @app.job()
    def blocking(ctx: Context) -> str:
        return "blocking"

    @app.job()
    async def parent(ctx: Context) -> str:
        await ctx.enqueue(child())
        return "parent"

    async with app:
        acme = app.tenant("acme")
        await acme.enqueue(parent())
        await acme.enqueue(blocking(), delay=60)
        first = await drain(app)
        clock.advance(60)
        second = await drain(app)

    results = [[one.outcome for one in runs] for runs in (first, second)]
    assert results == [[Completed("parent"), Completed("child")], [Completed("blocking")]]
    assert all(one.answer.state is State.COMPLETED for one in first + second)


async def test_drain_is_bounded_by_tenant_queue_and_number() -> None:
    """What it is not asked for stays."""
    app = App("memory://")

    @app.job()
    async def work(ctx: Context) -> None: ...

    async with app:
        for tenant in ("acme", "globex"):
            await app.tenant(tenant).enqueue_many([work(), work(), work()])
        await app.tenant("acme").enqueue(work(), queue="other")

        assert len(await drain(app, tenants=["acme"], queues=["other"])) == 1
        assert len(await drain(app, tenants=["acme"], max_jobs=2)) == 2
        assert len(await drain(app, tenants=["acme"])) == 1
        assert len(await drain(app)) == 3


async def test_asserts_find_jobs_by_type_and_fields_and_tell_what_is_there() -> None:
    """By name, by function and by class."""
    app = App("memory://")

    @app.job(name="mail.send")
    async def send(ctx: Context, to: str) -> None: ...

    @app.job()
    class Ring(Job):
        who: str

        async def run(self, ctx: Context) -> None: ...

    async with app:
        await app.tenant("acme").enqueue(send(to="ann"), delay=5)
        rung = await app.tenant("acme").enqueue(Ring(who="bob"))

        assert (await assert_enqueued(app, "acme", send, to="ann")).type == "mail.send"
        await assert_enqueued(app, "acme", "mail.send")
        await assert_enqueued(app, "acme", Ring, who="bob")
        await assert_not_enqueued(app, "acme", Ring, who="ann")
        await assert_not_enqueued(app, "globex", Ring)
        with pytest.raises(AssertionError, match=r"no mail.send\(to='eve'\)[^$]*to='ann'"):
            await assert_enqueued(app, "acme", send, to="eve")
        with pytest.raises(AssertionError, match="Ring"):
            await assert_not_enqueued(app, "acme", Ring)
        await drain(app)
        await assert_state(app, "acme", rung.id, "completed")
        await assert_not_enqueued(app, "acme", Ring)
        with pytest.raises(AssertionError, match=r"not failed.*is completed"):
            await assert_state(app, "acme", rung.id, State.FAILED)


async def test_the_context_tells_who_and_what_and_logs_in_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Tenant, id, attempt, fence, and an effect key that stays the same over attempts."""
    clock = ManualClock()
    app = App("memory://", clock=clock)
    seen: list[tuple[Any, ...]] = []
    fences: list[int] = []

    @app.job(max_attempts=2)
    async def work(ctx: Context) -> None:
        ctx.logger.warning("at work")
        seen.append((ctx.tenant, ctx.job_id, ctx.attempt, ctx.max_attempts, ctx.job.fence))
        fences.append(ctx.fence)
        seen.append((ctx.effect_key,))
        raise ValueError

    async with app:
        made = await app.tenant("acme").enqueue(work())
        other = await app.tenant("globex").enqueue(work(), id=made.id)
        with caplog.at_level(logging.WARNING, "holdfast.job"):
            await drain(app, tenants=["acme"])
            clock.advance(300)
            await drain(app, tenants=["acme"])
        await drain(app, tenants=["globex"])

    assert other.id == made.id
    assert seen[0:4:2] == [("acme", made.id, 1, 2, 1), ("acme", made.id, 2, 2, 2)]
    assert seen[1] == seen[3] != seen[5]
    assert fences[1] == fences[0] + 1
    assert caplog.records[0].message == f"[acme/{made.id}] at work"
    assert caplog.records[0].tenant == "acme"  # type: ignore[attr-defined]


async def test_two_runs_without_a_store_have_two_effect_keys() -> None:
    """P4: the second must not be taken for a repetition of the first."""
    app = App("memory://")

    @app.job()
    async def work(ctx: Context) -> str:
        return ctx.effect_key

    assert await app.run_now(work()) != await app.run_now(work())


@pytest.mark.parametrize("length", [2000])
async def test_progress_has_a_bound(length: int) -> None:
    """It is kept with every heartbeat."""
    app = App("memory://")

    @app.job()
    async def work(ctx: Context) -> None:
        ctx.progress(1, 2, "x" * length)

    with pytest.raises(InvalidInput, match="note"):
        await app.run_now(work())
