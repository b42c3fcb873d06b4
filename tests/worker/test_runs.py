"""What a handler does and what becomes of its job."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Context, Fail, InvalidInput, Job, Reason, Retry, Snooze, State
from holdfast.core.bounds import ERROR_CHARS_MAX, MISSES_MAX
from holdfast.core.clock import micros
from holdfast.core.job import Envelope, EventKind, NewJob
from holdfast.middleware import Call
from holdfast.testing import drain

if TYPE_CHECKING:
    from tests.worker.conftest import MakeYard, Yard


async def test_coroutines_run_on_the_loop_and_functions_in_threads(yard: Yard) -> None:
    """Both give their results."""

    @yard.app.job()
    async def on_loop(ctx: Context) -> str:
        return threading.current_thread().name

    @yard.app.job()
    def in_thread(ctx: Context) -> str:
        return threading.current_thread().name

    @yard.app.job()
    class Typed(Job):
        n: int

        def run(self, ctx: Context) -> int:
            return self.n + 1

    ids = [await yard.put(job) for job in (on_loop(), in_thread(), Typed(n=1))]
    yard.start()

    results = [await yard.result(id) for id in ids]
    assert results == [threading.current_thread().name, "holdfast-handler", 2]


async def test_results_are_stored_as_plain_data(make_yard: MakeYard) -> None:
    """On a store that keeps bytes, in the job's own codec."""
    yard = make_yard("sqlite")

    @yard.app.job(codec="msgpack")
    async def packed(ctx: Context) -> Any:
        return {"bytes": b"\x00\x01", "list": [1, 2]}

    async with yard.app:
        id = await yard.put(packed())
        yard.start()
        assert await yard.result(id) == {"bytes": b"\x00\x01", "list": [1, 2]}


async def test_an_exception_is_a_retry_with_its_traceback(yard: Yard) -> None:
    """Until the attempts are used up: then a dead letter with MAX_ATTEMPTS."""

    @yard.app.job(max_attempts=2, retry="brisk")
    async def work(ctx: Context) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    id = await yard.put(work())
    yard.start()
    first = await yard.fact()
    job = await yard.job(id)
    assert (first.state, job.state, job.attempt) == (State.RETRYING, State.RETRYING, 1)
    assert job.run_at == yard.clock.now() + micros(0.2)
    assert "ValueError: attempt 1" in (job.error or "")
    assert "in work" in (job.error or "")

    yard.clock.advance(0.2)
    assert (await yard.fact()).state is State.FAILED
    job = await yard.job(id)
    assert (job.state, job.reason, job.attempt) == (State.FAILED, Reason.MAX_ATTEMPTS, 2)
    assert "attempt 2" in (job.error or "")


async def test_retry_may_name_its_own_delay(yard: Yard) -> None:
    """Instead of the policy's; it costs an attempt like any failure."""

    @yard.app.job()
    async def work(ctx: Context) -> None:
        raise Retry("busy", after=123)

    id = await yard.put(work())
    await drain(yard.app)

    job = await yard.job(id)
    assert (job.state, job.attempt, job.error) == (State.RETRYING, 1, "busy")
    assert job.run_at == yard.clock.now() + micros(123)


async def test_fail_goes_to_the_dead_letters_at_once(yard: Yard) -> None:
    """Trying again is no use."""

    @yard.app.job(max_attempts=5)
    def work(ctx: Context) -> None:
        raise Fail("no such customer")

    id = await yard.put(work())
    await drain(yard.app)

    job = await yard.job(id)
    assert (job.state, job.reason, job.attempt) == (State.FAILED, Reason.PERMANENT, 1)
    assert job.error == "no such customer"


async def test_snooze_costs_no_attempt(yard: Yard) -> None:
    """Called again later, as if for the first time."""

    @yard.app.job(max_attempts=1)
    async def work(ctx: Context) -> str:
        if ctx.job.fence == 1:
            raise Snooze(60)
        return f"attempt {ctx.attempt}"

    id = await yard.put(work())
    await drain(yard.app)
    job = await yard.job(id)
    assert (job.state, job.attempt) == (State.SCHEDULED, 0)
    assert job.run_at == yard.clock.now() + micros(60)

    yard.clock.advance(60)
    await drain(yard.app)
    assert await yard.result(id) == "attempt 1"


@pytest.mark.parametrize("seconds", [-1, float("nan"), "5"])
def test_wishes_with_impossible_times_are_refused_where_they_are_made(seconds: Any) -> None:
    """In the handler, where the traceback points at it."""
    with pytest.raises(InvalidInput, match="seconds"):
        Snooze(seconds)
    with pytest.raises(InvalidInput, match="after"):
        Retry(after=seconds)


class Odd(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, Odd, StopIteration, RuntimeError])
@pytest.mark.parametrize("style", ["loop", "thread"])
async def test_nothing_a_handler_raises_ends_the_worker(
    yard: Yard, kind: type[BaseException], style: str
) -> None:
    """It is a failure of the job; the next job runs."""

    async def on_loop(ctx: Context) -> None:
        raise kind("exit")

    def in_thread(ctx: Context) -> None:
        raise kind("exit")

    target: Any = on_loop if style == "loop" else in_thread
    bad = yard.app.job(max_attempts=1, name="bad")(target)

    @yard.app.job()
    async def good(ctx: Context) -> str:
        return "good"

    bad_id, good_id = await yard.put(bad()), await yard.put(good())
    worker = yard.start(concurrency=1)

    assert await yard.result(good_id) == "good"
    job = await yard.job(bad_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.MAX_ATTEMPTS)
    assert kind.__name__ in (job.error or "")
    assert len(worker.active_jobs) == 0


async def test_a_handler_that_cancels_itself_has_failed(yard: Yard) -> None:
    """Nobody asked for it: the job is not lost, the worker goes on."""

    @yard.app.job(max_attempts=1)
    async def work(ctx: Context) -> None:
        raise asyncio.CancelledError

    id = await yard.put(work())
    yard.start()

    assert (await yard.fact()).state is State.FAILED
    assert "cancelled from inside" in ((await yard.job(id)).error or "")


async def test_an_endless_error_text_is_cut(yard: Yard) -> None:
    """An error must never fail an ack; head and tail are kept."""

    @yard.app.job(max_attempts=1)
    async def work(ctx: Context) -> None:
        raise ValueError("x" * 50_000 + "the end")

    id = await yard.put(work())
    await drain(yard.app)

    error = (await yard.job(id)).error or ""
    assert len(error) <= ERROR_CHARS_MAX
    assert error.startswith("Traceback")
    assert error.endswith("the end")


async def test_a_result_that_is_too_large_or_cannot_be_written_fails_for_good(
    make_yard: MakeYard,
) -> None:
    """Running again would give the same; the error says what and how much."""
    yard = make_yard("sqlite", result_max=100)

    @yard.app.job()
    async def large(ctx: Context) -> str:
        return "x" * 200

    @yard.app.job()
    async def strange(ctx: Context) -> Any:
        return object()

    async with yard.app:
        ids = [await yard.put(large()), await yard.put(strange())]
        yard.start()
        await yard.facts(2)
        jobs = [await yard.job(id) for id in ids]

    assert [job.reason for job in jobs] == [Reason.PERMANENT, Reason.PERMANENT]
    assert "202 bytes, at most 100" in (jobs[0].error or "")
    assert "result" in (jobs[1].error or "")


async def test_a_payload_that_cannot_be_read_is_a_dead_letter_and_the_worker_lives_on(
    yard: Yard,
) -> None:
    """DECODE, without a retry."""

    @yard.app.job()
    async def work(ctx: Context, n: int) -> int:
        return n

    found = yard.app.registry.named("work")
    assert found is not None
    broken = Envelope("work", "json", 1, b'{"n": "one"}')
    await yard.app.store.enqueue(
        [NewJob(tenant="acme", id="bad", queue="default", envelope=broken, rules=found.rules)]
    )
    id = await yard.put(work(n=1))
    yard.start(concurrency=1)

    assert await yard.result(id) == 1
    job = await yard.job("bad")
    assert (job.state, job.reason, job.attempt) == (State.FAILED, Reason.DECODE, 1)
    assert "$.n" in (job.error or "")


async def test_an_unknown_type_is_released_with_growing_delays_then_dead_lettered(
    yard: Yard,
) -> None:
    """Another worker may know it, today or after a deploy; but not for ever."""

    @yard.app.job()
    async def known(ctx: Context) -> None: ...

    stranger = Envelope("stranger", "json", 1, b"{}")
    found = yard.app.registry.named("known")
    assert found is not None
    await yard.app.store.enqueue(
        [NewJob(tenant="acme", id="j", queue="default", envelope=stranger, rules=found.rules)]
    )

    delays = []
    for _ in range(MISSES_MAX - 1):
        await drain(yard.app)
        job = await yard.job("j")
        assert (job.state, job.attempt) == (State.SCHEDULED, 0)
        delays.append((job.run_at - yard.clock.now()) / 1e6)
        yard.clock.advance(delays[-1])
    await drain(yard.app)

    assert delays == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    job = await yard.job("j")
    assert (job.state, job.reason) == (State.FAILED, Reason.UNKNOWN_TYPE)
    assert "stranger" in (job.error or "")


async def test_middleware_wraps_each_run_and_may_change_its_outcome(yard: Yard) -> None:
    """The first is the outermost, for coroutines and threads alike."""
    log: list[str] = []

    async def outer(ctx: Context, job: Job, call: Call) -> Any:
        log.append(f"outer {ctx.job_id}")
        return f"<{await call(ctx, job)}>"

    async def inner(ctx: Context, job: Job, call: Call) -> Any:
        log.append(f"inner {ctx.job_id}")
        try:
            return await call(ctx, job)
        except KeyError:
            raise Fail("translated") from None

    yard.app.middleware = (outer, inner)

    @yard.app.job()
    def fine(ctx: Context) -> str:
        return "fine"

    @yard.app.job()
    async def missing(ctx: Context) -> None:
        raise KeyError("x")

    await yard.put(fine(), id="a")
    await yard.put(missing(), id="b")
    yard.start(concurrency=1)

    assert await yard.result("a") == "<fine>"
    assert (await yard.facts(2))[1].state is State.FAILED
    assert log == ["outer a", "inner a", "outer b", "inner b"]
    assert (await yard.job("b")).error == "translated"


async def test_a_handler_may_enqueue_for_its_own_tenant(yard: Yard) -> None:
    """Follow-up work stays where it belongs."""

    @yard.app.job()
    async def child(ctx: Context) -> str:
        return ctx.tenant

    @yard.app.job()
    async def parent(ctx: Context) -> str:
        made = await ctx.enqueue(child(), priority=3)
        return str(made.id)

    yard.start()
    made = await yard.result(await yard.put(parent()))

    assert await yard.result(made) == "acme"


async def test_a_run_that_breaks_down_outside_its_handler_still_settles(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise heartbeats would hold the job for ever."""

    @yard.app.job(max_attempts=1)
    async def work(ctx: Context) -> None: ...

    id = await yard.put(work())
    monkeypatch.setattr(yard.app.registry, "named", lambda name: 1 / 0)
    worker = yard.start()

    assert (await yard.fact()).state is State.FAILED
    assert "ZeroDivisionError" in ((await yard.job(id)).error or "")
    assert len(worker.active_jobs) == 0


async def test_the_story_of_a_job_is_told_by_its_events(yard: Yard) -> None:
    """Stored facts, in order."""

    @yard.app.job(max_attempts=2)
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry(after=5)

    id = await yard.put(work())
    yard.start()
    await yard.fact()
    yard.clock.advance(5)
    await yard.fact()

    assert await yard.kinds(id) == [
        EventKind.ENQUEUED,
        EventKind.LEASED,
        EventKind.RETRYING,
        EventKind.LEASED,
        EventKind.COMPLETED,
    ]
