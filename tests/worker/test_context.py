"""What a handler finds around it."""

from __future__ import annotations

import gc
import math
import time
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Context, Job
from holdfast.middleware import Call

if TYPE_CHECKING:
    from tests.worker.conftest import Yard

request_id: ContextVar[str] = ContextVar("request_id", default="none")


@pytest.mark.parametrize("style", ["loop", "thread"])
async def test_context_variables_of_middleware_reach_the_handler(yard: Yard, style: str) -> None:
    """Such as the request or trace that logs and clients look for; and no further job sees them."""

    async def tracing(ctx: Context, job: Job, call: Call) -> Any:
        if ctx.job_id == "traced":
            request_id.set("r1")
        return await call(ctx, job)

    async def on_loop(ctx: Context) -> str:
        return request_id.get()

    def in_thread(ctx: Context) -> str:
        found = request_id.get()
        request_id.set("of the thread")
        return found

    yard.app.middleware = (tracing,)
    target: Any = on_loop if style == "loop" else in_thread
    work = yard.app.job(name="work")(target)
    for id in ("traced", "next", "last"):
        await yard.put(work(), id=id)
    yard.start(concurrency=1)

    assert [await yard.result(id) for id in ("traced", "next", "last")] == ["r1", "none", "none"]


async def test_a_run_knows_how_long_it_may_certainly_go_on(yard: Yard) -> None:
    """P3: until its lease ends, which is renewed, or its time-out, which is not."""

    @yard.app.job(name="long")
    async def long(ctx: Context) -> list[float]:
        before_s = ctx.left_s
        [active] = worker.active_jobs.all()
        active.renewed(time.monotonic(), 600)
        return [before_s, ctx.left_s]

    @yard.app.job(name="short", timeout=5)
    async def short(ctx: Context) -> float:
        return ctx.left_s

    @yard.app.job(name="unleased")
    async def unleased(ctx: Context) -> float:
        return ctx.left_s

    worker = yard.start(concurrency=1, lease_s=30)

    before_s, after_s = await yard.result(await yard.put(long()))
    assert 0 < before_s <= 30
    assert 500 < after_s <= 600
    assert 0 < await yard.result(await yard.put(short())) <= 5
    assert await yard.app.run_now(unleased()) == math.inf


async def test_what_belongs_to_a_run_is_freed_with_it(yard: Yard) -> None:
    """Also when a thread ran it. The collector would take a tenth of the time of a busy worker."""
    contexts: list[weakref.ref[Context]] = []

    @yard.app.job()
    async def on_loop(ctx: Context) -> None:
        contexts.append(weakref.ref(ctx))

    @yard.app.job()
    def in_thread(ctx: Context) -> None:
        contexts.append(weakref.ref(ctx))

    gc.disable()
    try:
        for job in (on_loop(), in_thread()):
            await yard.put(job)
        worker = yard.start()
        await yard.facts(2)
        await yard.stop(worker)
        assert [each() for each in contexts] == [None, None]
    finally:
        gc.enable()
