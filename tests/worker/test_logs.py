"""What a worker does with jobs is logged by the library itself, for whoever configured logging."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Context, Fail, Retry
from holdfast.core.job import Envelope, NewJob
from holdfast.testing import drain

if TYPE_CHECKING:
    from tests.worker.conftest import Yard

BEAT_S = 0.04
SECRET = "s3cret"


class Lines(logging.Handler):
    """What the worker's logger said so far, by any thread; each line can be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._loop.call_soon_threadsafe(self._news.set)

    def of(self, words: str) -> list[logging.LogRecord]:
        """The lines with these words."""
        return [one for one in self.records if words in one.getMessage()]

    async def until(self, words: str) -> logging.LogRecord:
        """The first line with these words."""
        async with asyncio.timeout(5):
            while not (found := self.of(words)):
                self._news.clear()
                await self._news.wait()
            return found[0]


@pytest.fixture
async def lines() -> AsyncIterator[Lines]:
    """All that `holdfast.worker` says in the test, however unimportant."""
    logger, found = logging.getLogger("holdfast.worker"), Lines()
    logger.addHandler(found)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(found)


async def put_sealed(yard: Yard, id: str, type: str, codec: str = "json") -> None:
    found = yard.app.registry.named("work")
    assert found is not None
    sealed = Envelope(type, codec, 1, f'{{"n": "{SECRET}"}}'.encode())
    await yard.app.store.enqueue(
        [NewJob(tenant="acme", id=id, queue="default", envelope=sealed, rules=found.rules)]
    )


async def test_a_failure_is_logged_with_its_traceback_and_the_jobs_fields(
    yard: Yard, lines: Lines
) -> None:
    """An embedded worker, `serve --worker` and Sentry see it as `holdfast worker` does."""

    @yard.app.job(max_attempts=2, retry="brisk", queue="mail")
    async def work(ctx: Context) -> None:
        raise ValueError("no such address")

    await yard.put(work(), id="j")
    yard.start(name="w1", queues=["*"])
    await yard.fact()
    yard.clock.advance(1)
    await yard.fact()

    first, last = lines.of("failed")
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
    assert last.exc_info is not None
    assert isinstance(last.exc_info[1], ValueError)
    facts = {name: getattr(last, name) for name in ("tenant", "job_id", "type", "queue")}
    assert facts == {"tenant": "acme", "job_id": "j", "type": "work", "queue": "mail"}
    assert (last.attempt, last.worker) == (2, "w1")  # type: ignore[attr-defined]
    assert "attempt 2 of 2" in last.getMessage()


async def test_what_a_handler_wishes_is_told_as_loud_as_it_matters(
    yard: Yard, lines: Lines
) -> None:
    """A retry that is no accident is no warning; a job that is given up is an error."""

    @yard.app.job()
    async def work(ctx: Context, how: str) -> None:
        raise Retry("busy", after=5) if how == "retry" else Fail("gone")

    await yard.put(work(how="retry"), id="a")
    await yard.put(work(how="fail"), id="b")
    await drain(yard.app)

    [retry], [fail] = lines.of("job a"), lines.of("job b")
    assert (retry.levelname, retry.exc_info) == ("INFO", None)
    assert (fail.levelname, "gone" in fail.getMessage()) == ("ERROR", True)


async def test_a_timeout_is_logged(yard: Yard, lines: Lines) -> None:
    """Though nothing was raised."""

    @yard.app.job(timeout=0.01, max_attempts=1)
    async def work(ctx: Context) -> None:
        await asyncio.Event().wait()

    await yard.put(work(), id="j")
    await drain(yard.app)

    [line] = lines.of("failed")
    assert "not finished within 0.01 s" in line.getMessage()


async def test_payloads_are_never_logged(yard: Yard, lines: Lines) -> None:
    """Also where the payload is what is wrong; the job's own error says it."""

    @yard.app.job()
    async def work(ctx: Context, n: int) -> None: ...

    await put_sealed(yard, "unreadable", "work")
    await put_sealed(yard, "unknown", "stranger")
    await put_sealed(yard, "codec", "work", "rot13")
    await drain(yard.app)

    assert len(lines.of("")) >= 3
    texts = [logging.Formatter().format(one) for one in lines.records]
    assert not [text for text in texts if SECRET in text]


async def test_an_unknown_type_or_codec_is_a_warning_once_and_each_bounce_a_remark(
    yard: Yard, lines: Lines
) -> None:
    """A forgotten import is seen at once, and does not fill the log."""

    @yard.app.job()
    async def work(ctx: Context, n: int) -> None: ...

    for number in range(3):
        await put_sealed(yard, f"t{number}", "stranger")
        await put_sealed(yard, f"c{number}", "work", "rot13")
    await drain(yard.app)

    warnings = [one.getMessage() for one in lines.records if one.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "'stranger'" in warnings[0]
    assert "'rot13'" in warnings[1]
    bounced = lines.of(": released, ")
    assert len([one for one in bounced if one.levelno == logging.INFO]) == 6


async def test_a_lost_lease_is_a_warning_and_a_cancel_a_remark(yard: Yard, lines: Lines) -> None:
    """The one is trouble, the other a wish."""
    started = asyncio.Semaphore(0)

    @yard.app.job()
    async def work(ctx: Context) -> None:
        started.release()
        await asyncio.Event().wait()

    for id in ("canceled", "lost"):
        await yard.put(work(), id=id)
    worker = yard.start(heartbeat_s=BEAT_S, prefetch=0, concurrency=2)
    async with asyncio.timeout(5):
        await started.acquire()
        await started.acquire()
        await yard.acme.cancel("canceled")
        await lines.until("job canceled")
        worker.stop()
        yard.clock.advance(61)
        await lines.until("job lost")

    assert {one.levelname for one in lines.of("job canceled")} == {"INFO"}
    [line] = lines.of("job lost")
    assert (line.levelname, line.job_id) == ("WARNING", "lost")  # type: ignore[attr-defined]


async def test_a_drain_says_what_it_waits_for_and_what_it_gave_back(
    yard: Yard, lines: Lines
) -> None:
    """So that a slow deploy explains itself."""
    started = asyncio.Semaphore(0)

    @yard.app.job()
    async def work(ctx: Context) -> None:
        started.release()
        await asyncio.Event().wait()

    await yard.acme.enqueue_many(work() for _ in range(5))
    worker = yard.start(concurrency=3, prefetch=2, drain_s=0.02)
    for _ in range(3):
        await started.acquire()
    await yard.stop(worker)

    assert lines.of("waiting for 3 jobs")
    assert [one.levelname for one in lines.of("not finished after")] == ["WARNING"]
    assert lines.of("released 5 jobs")


async def test_a_blocked_event_loop_is_told_with_the_handler_that_blocks_it(
    yard: Yard, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread, while it is blocked; and for how long, once it is over."""
    monkeypatch.setattr("holdfast.worker.stall.BLOCKED_S", 0.05)
    heard = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "event loop is blocked" in record.getMessage():
                heard.set()

    @yard.app.job()
    async def block_it(ctx: Context) -> bool:
        return heard.wait(5)  # The fault that is injected: a call that blocks.

    listener: Any = Listener()
    logging.getLogger("holdfast.worker").addHandler(listener)
    try:
        await yard.put(block_it(), id="j")
        yard.start()
        assert await yard.result("j") is True
        await lines.until("event loop was blocked for")
    finally:
        logging.getLogger("holdfast.worker").removeHandler(listener)

    [line] = lines.of("event loop is blocked")
    assert (line.levelname, line.type) == ("WARNING", "block_it")  # type: ignore[attr-defined]
    assert "test_logs.py" in line.getMessage()
