"""Sleeps, waits, children, cursors, errors and replays of handlers."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App, ChildrenFailed, Context, Fail, State, TimedOut
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed, Parked
from holdfast.testing import ManualClock, drain


async def outcome(app: App, **options: Any) -> Any:
    """The outcome of the only run that is due."""
    [ran] = await drain(app, max_jobs=1, **options)
    return ran.outcome


# -- sleeping and waiting --------------------------------------------------------------------------


async def test_a_sleep_that_is_ended_early_is_slept_to_its_end(
    app: App, clock: ManualClock
) -> None:
    """P10: the store's clock decides when it is over, not who woke the job."""

    @app.job
    async def sleeper(ctx: Context) -> str:
        await ctx.sleep("night", hours=8)
        return "awake"

    acme = app.tenant("acme")
    job = await acme.enqueue(sleeper())
    await drain(app)
    clock.advance(3600)
    await acme.reschedule(job.id, delay=0)

    assert isinstance(await outcome(app), Parked)
    clock.advance(7 * 3600 - 1)
    assert await drain(app) == []
    clock.advance(1)
    assert isinstance(await outcome(app), Completed)


async def test_a_wait_that_timed_out_stays_so(app: App, clock: ManualClock) -> None:
    """P16: in every later attempt, although the signal has come since."""
    seen: list[object] = []

    @app.job(max_attempts=3)
    async def waiter(ctx: Context) -> None:
        answer = await ctx.wait_for("approved", bool, timeout=60)
        seen.append(answer)
        if ctx.attempt == 1:
            raise RuntimeError("again")

    acme = app.tenant("acme")
    job = await acme.enqueue(waiter())
    await drain(app)
    clock.advance(60)
    await drain(app)
    await acme.signal(job.id, "approved", True)
    clock.advance(3600)
    await drain(app)

    assert seen == [TimedOut(), TimedOut()]
    assert not seen[0]


async def test_a_signal_before_the_wait_does_not_park_twice(app: App) -> None:
    """P10."""

    @app.job
    async def waiter(ctx: Context) -> str:
        return f"got {await ctx.wait_for('word', str)}"

    acme = app.tenant("acme")
    job = await acme.enqueue(waiter())
    assert await acme.signal(job.id, "word", "go")
    assert not await acme.signal(job.id, "word", "stop")

    assert [type(ran.outcome) for ran in await drain(app)] == [Completed]
    assert await acme.wait(job.id) == "got go"


async def test_a_signal_of_another_type_fails_the_job(app: App) -> None:
    """P16: with a text that names the signal; another attempt would find the same value."""

    @app.job(max_attempts=5)
    async def waiter(ctx: Context) -> None:
        await ctx.wait_for("approved", bool)

    acme = app.tenant("acme")
    job = await acme.enqueue(waiter())
    await acme.signal(job.id, "approved", "maybe")
    await drain(app)

    found = await acme.get(job.id)
    assert (found.state, found.attempt) == (State.FAILED, 1)
    assert "the signal 'approved' is not bool" in (found.error or "")


# -- children --------------------------------------------------------------------------------------


async def test_failed_children_are_named(app: App) -> None:
    """P17: and fail the parent for good, unless it catches the error or collects."""

    @app.job(queue="children", max_attempts=1)
    async def child(ctx: Context, number: int) -> int:
        if number == 1:
            raise Fail("bad line")
        return number

    @app.job(queue="parents", max_attempts=5)
    async def strict(ctx: Context) -> None:
        await ctx.map("lines", child, range(3))

    @app.job(queue="parents")
    async def lenient(ctx: Context) -> list[str]:
        found = await ctx.map("lines", child, range(3), on_failure="collect")
        return [str(each) for each in found]

    acme = app.tenant("acme")
    first, second = await acme.enqueue(strict()), await acme.enqueue(lenient())
    await drain(app)

    failed = await acme.get(first.id)
    assert failed.state is State.FAILED
    assert failed.attempt == 1
    assert "1 of 3 jobs of 'lines' failed" in (failed.error or "")
    assert "bad line" in (failed.error or "")
    one, two, three = await acme.wait(second)
    assert (one, three) == ("0", "2")
    assert "bad line" in two


async def test_a_map_of_nothing_does_not_park(app: App) -> None:
    """P17: there is nothing to wait for."""

    @app.job
    async def parent(ctx: Context) -> list[Any]:
        return await ctx.map("none", parent, [])

    job = await app.tenant("acme").enqueue(parent())

    assert [type(ran.outcome) for ran in await drain(app)] == [Completed]
    assert await app.tenant("acme").wait(job) == []


async def test_a_caught_error_of_children_lets_the_parent_go_on(app: App) -> None:
    """P17."""

    @app.job(queue="children", max_attempts=1)
    async def child(ctx: Context, number: int) -> None:
        raise Fail("no")

    @app.job(queue="parents")
    async def parent(ctx: Context) -> int:
        try:
            await ctx.map("lines", child, [1, 2])
        except ChildrenFailed as error:
            return len(error.failed)
        return 0

    job = await app.tenant("acme").enqueue(parent())
    await drain(app)

    assert await app.tenant("acme").wait(job) == 2


# -- cursors, errors, log --------------------------------------------------------------------------


async def test_a_cursor_goes_on_where_the_last_attempt_was(app: App, clock: ManualClock) -> None:
    """P16: the position is stored with the end of the attempt."""
    fetched: list[int] = []

    async def fetch(after: int | None) -> tuple[list[int], int] | None:
        at = after or 0
        fetched.append(at)
        return ([at, at + 1], at + 2) if at < 6 else None

    @app.job(max_attempts=2)
    async def crawl(ctx: Context) -> int:
        number = 0
        async for page in ctx.cursor("pages", fetch):
            number += len(page)
            if ctx.attempt == 1 and page[0] == 2:
                raise RuntimeError("cut off in the second page")
        return number

    job = await app.tenant("acme").enqueue(crawl())
    await drain(app)
    clock.advance(3600)
    await drain(app)

    assert await app.tenant("acme").wait(job) == 4
    assert fetched == [0, 2, 2, 4, 6]


async def test_errors_of_attempts_are_kept(app: App, clock: ManualClock) -> None:
    """P4: class, message, traceback, worker and times, of each of the last attempts."""

    @app.job(max_attempts=3)
    async def flaky(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise KeyError(f"attempt {ctx.attempt}")

    job = await app.tenant("acme").enqueue(flaky())
    for _ in range(3):
        await drain(app)
        clock.advance(3600)

    errors = (await app.tenant("acme").journal(job.id)).errors
    assert [error.attempt for error in errors] == [1, 2]
    assert {error.kind for error in errors} == {"builtins.KeyError"}
    assert "attempt 2" in errors[1].message
    assert "in flaky" in errors[1].traceback
    assert errors[0].worker == "drain"
    assert errors[0].started_at <= errors[0].ended_at < errors[1].started_at


async def test_the_log_of_a_job_is_kept(app: App, clock: ManualClock) -> None:
    """P4: over its attempts."""

    @app.job(max_attempts=2)
    async def flaky(ctx: Context) -> None:
        ctx.log(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise RuntimeError("again")

    job = await app.tenant("acme").enqueue(flaky())
    await drain(app)
    clock.advance(3600)
    await drain(app)

    assert (await app.tenant("acme").journal(job.id)).log == ["attempt 1", "attempt 2"]


# -- replays ---------------------------------------------------------------------------------------


async def test_a_replay_starts_from_a_step_or_from_the_beginning(
    app: App, clock: ManualClock
) -> None:
    """P6: what was finished before the step is remembered, the step itself runs again."""
    calls: list[str] = []

    def note(name: str) -> str:
        calls.append(name)
        return name

    @app.job(max_attempts=1)
    async def work(ctx: Context) -> None:
        for name in ("one", "two", "three"):
            await ctx.step(name, note, name)
            clock.advance(1)
        raise Fail("no")

    acme = app.tenant("acme")
    job = await acme.enqueue(work())
    await drain(app)
    with pytest.raises(InvalidInput, match=r"no step 'tow'\. Did you mean 'two'"):
        await acme.replay(job.id, from_step="tow")
    again = await acme.replay(job.id, from_step="two")
    await drain(app)
    await acme.replay(again)
    await drain(app)

    assert calls == ["one", "two", "three", "two", "three", "one", "two", "three"]
