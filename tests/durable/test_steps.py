"""Steps, sleeps, waits, maps and cursors of handlers, through the worker's own runner."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import App, Context, State, SyncContext
from holdfast.core.job import Completed, Parked
from holdfast.testing import ManualClock, drain


@dataclass
class Charge:
    id: int
    lines: list[str]


class Shop:
    """What the handlers of the tests do to the outside."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.shipped: list[str] = []
        self.broken = 0

    async def take_payment(self, order: str, *, key: str) -> Charge:
        self.charged.append(key)
        return Charge(7, [f"{order}-{n}" for n in range(3)])


async def outcome(app: App, **options: Any) -> Any:
    """The outcome of the only run that is due."""
    [ran] = await drain(app, max_jobs=1, **options)
    return ran.outcome


# -- the example of the guide ----------------------------------------------------------------------


async def test_an_order_continues_where_it_stopped(app: App, clock: ManualClock) -> None:
    """P16: each effect once, over a sleep, a signal and children, whatever the attempts."""
    shop = Shop()

    @app.job(queue="lines")
    async def ship_line(ctx: Context, line: str) -> str:
        shop.shipped.append(line)
        return line.upper()

    @app.job(queue="orders", max_attempts=5)
    async def fulfil(ctx: Context, order: str) -> str:
        charge = await ctx.step("charge", shop.take_payment, order, key=ctx.effect_key)
        await ctx.sleep("cooling off", hours=24)
        ok = await ctx.wait_for("approved", bool, timeout=604_800)
        assert ok is True
        sent = await ctx.map("lines", ship_line, charge.lines)
        assert sent == ["O-0", "O-1", "O-2"]
        return f"{len(sent)} sent"

    acme = app.tenant("acme")
    job = await acme.enqueue(fulfil(order="o"))

    assert isinstance(await outcome(app), Parked)
    assert await drain(app) == []
    clock.advance(24 * 3600)
    assert isinstance(await outcome(app), Parked)
    assert await acme.signal(job.id, "approved", True)
    assert isinstance(await outcome(app), Parked)
    assert len(await drain(app, queues=["lines"])) == 3
    assert isinstance(await outcome(app), Completed)

    assert await acme.wait(job.id) == "3 sent"
    assert len(shop.charged) == 1
    assert sorted(shop.shipped) == ["o-0", "o-1", "o-2"]
    assert (await acme.get(job.id)).attempt == 1


# -- steps -----------------------------------------------------------------------------------------


async def test_a_step_runs_once_over_all_attempts(app: App, clock: ManualClock) -> None:
    """P16: also if another part of the handler fails."""
    calls: list[int] = []

    def work(number: int) -> dict[str, int]:
        calls.append(number)
        return {"number": number}

    @app.job(max_attempts=3)
    async def flaky(ctx: Context) -> int:
        first = await ctx.step("first", work, 1)
        second = await ctx.step("second", work, 2)
        if ctx.attempt < 3:
            raise RuntimeError("not yet")
        return first["number"] + second["number"]

    job = await app.tenant("acme").enqueue(flaky())
    for _ in range(3):
        await drain(app)
        clock.advance(3600)

    assert await app.tenant("acme").wait(job.id) == 3
    assert calls == [1, 2]


async def test_a_result_is_the_same_in_every_attempt(app: App, clock: ManualClock) -> None:
    """P16: of the type of the annotation, at first as later."""
    seen: list[Any] = []

    def plain() -> Charge:
        return Charge(1, ["a"])

    def untyped():  # type: ignore[no-untyped-def]
        return (1, 2)

    @app.job(max_attempts=2)
    async def flaky(ctx: Context) -> None:
        seen.append((await ctx.step("a", plain), await ctx.step("b", untyped)))
        if ctx.attempt == 1:
            raise RuntimeError("again")

    await app.tenant("acme").enqueue(flaky())
    await drain(app)
    clock.advance(3600)
    await drain(app)

    assert seen == [(Charge(1, ["a"]), [1, 2])] * 2


async def test_parallel_steps_are_found_by_name(app: App, clock: ManualClock) -> None:
    """P16: in whatever order they end."""
    calls: list[str] = []

    async def work(name: str) -> str:
        await asyncio.sleep(0)
        calls.append(name)
        return name

    @app.job(max_attempts=2)
    async def both(ctx: Context) -> list[str]:
        names = ["a", "b", "c"] if ctx.attempt == 1 else ["c", "a", "b"]
        found = await asyncio.gather(*(ctx.step(name, work, name) for name in names))
        if ctx.attempt == 1:
            raise RuntimeError("again")
        return found

    job = await app.tenant("acme").enqueue(both())
    await drain(app)
    clock.advance(3600)
    await drain(app)

    assert await app.tenant("acme").wait(job.id) == ["c", "a", "b"]
    assert sorted(calls) == ["a", "b", "c"]


async def test_a_name_is_used_once_in_a_run(app: App) -> None:
    """P16: a second step of the name would silently get the first one's result."""

    @app.job(max_attempts=1)
    async def twice(ctx: Context) -> None:
        await ctx.step("a", lambda: 1)
        await ctx.step("a", lambda: 2)

    job = await app.tenant("acme").enqueue(twice())
    await drain(app)

    found = await app.tenant("acme").get(job.id)
    assert found.state is State.FAILED
    assert "'a' was used before" in (found.error or "")


@pytest.mark.parametrize(
    ("result", "words"), [(object(), "cannot be stored"), ("x" * 70_000, "at most 65536")]
)
async def test_a_result_that_cannot_be_stored_fails_the_job(
    app: App, result: object, words: str
) -> None:
    """P16: for good, because another attempt would do the effect again."""

    @app.job(max_attempts=5)
    async def work(ctx: Context) -> None:
        await ctx.step("a", lambda: result)

    job = await app.tenant("acme").enqueue(work())
    await drain(app)

    found = await app.tenant("acme").get(job.id)
    assert (found.state, found.attempt) == (State.FAILED, 1)
    assert words in (found.error or "")


async def test_a_step_is_tried_again_within_its_run(app: App) -> None:
    """P16: by a number of retries; the attempt of the job goes on."""
    calls: list[int] = []

    def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("no")
        return len(calls)

    @app.job
    async def work(ctx: Context) -> int:
        quick = ctx.step.with_options(retry=2)
        return await quick("a", flaky)

    job = await app.tenant("acme").enqueue(work())
    await drain(app)

    assert await app.tenant("acme").wait(job.id) == 3


async def test_a_step_has_its_own_time_out(app: App) -> None:
    """P16: the handler can go on without it."""

    async def slow() -> None:
        await asyncio.Event().wait()

    @app.job
    async def work(ctx: Context) -> str:
        try:
            await ctx.step.with_options(timeout=0.01)("a", slow)
        except TimeoutError:
            return "too slow"
        return "done"

    job = await app.tenant("acme").enqueue(work())
    await drain(app)

    assert await app.tenant("acme").wait(job.id) == "too slow"


async def test_threads_have_the_same_calls_without_await(app: App, clock: ManualClock) -> None:
    """P16: steps, sleeps, waits, maps and cursors."""

    @app.job(queue="children")
    def double(ctx: SyncContext, number: int) -> int:
        return number * 2

    async def later() -> int:
        return 5

    def three_pages(at: int | None) -> tuple[int, int] | None:
        return None if at == 3 else (at or 0, (at or 0) + 1)

    @app.job(queue="parents", max_attempts=3)
    def work(ctx: SyncContext) -> list[Any]:
        one = ctx.step("one", lambda: 1)
        five = ctx.step("five", later)
        ctx.sleep("a while", minutes=1)
        word = ctx.wait_for("word", str)
        pages = list(
            ctx.cursor("pages", lambda at: ((at or 0), (at or 0) + 1) if at != 3 else None)
        )
        ctx.log("nearly done")
        return [one, five, word, ctx.map("all", double, [1, 2]), pages]

    acme = app.tenant("acme")
    job = await acme.enqueue(work())
    await drain(app)
    clock.advance(60)
    await drain(app)
    await acme.signal(job.id, "word", "go")
    await drain(app)
    await drain(app)

    assert await acme.wait(job.id) == [1, 5, "go", [2, 4], []]
    assert (await acme.journal(job.id)).log == ["nearly done", "nearly done"]
