"""The lifespan of an app: what handlers share is opened before they run and closed after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from holdfast import App, Context, Fail, InvalidInput, Job
from holdfast.context import Missing
from holdfast.core.errors import ConfigError
from holdfast.lifespan import opened
from holdfast.testing import ManualClock, drain


class Resources:
    """What a lifespan opens; it remembers what happened, in order."""

    def __init__(self) -> None:
        self.did: list[str] = []

    @asynccontextmanager
    async def later(self, app: App) -> AsyncGenerator[Resources, None]:
        await asyncio.sleep(0)
        self.did.append("open")
        yield self
        self.did.append("close")

    @contextmanager
    def at_once(self, app: App) -> Generator[Resources, None, None]:
        self.did.append("open")
        yield self
        self.did.append("close")


@pytest.fixture
def shared() -> Resources:
    return Resources()


def app_with(lifespan: Any) -> tuple[App, Any]:
    """An app and a job type that uses its state."""
    app = App("memory://", clock=ManualClock(), lifespan=lifespan)

    @app.job(name="use", max_attempts=1)
    async def use(ctx: Context[Resources], what: str) -> str:
        ctx.state.did.append(what)
        if what == "fail":
            raise Fail("as it should")
        return what

    return app, use


@pytest.mark.parametrize("kind", ["later", "at_once"])
async def test_run_now_opens_it_for_the_run(shared: Resources, kind: str) -> None:
    """Async or not: the handler finds it open, and it is closed when the call returns."""
    app, use = app_with(getattr(shared, kind))

    assert await app.run_now(use("a")) == "a"

    assert shared.did == ["open", "a", "close"]


async def test_it_closes_as_usual_after_a_handler_that_failed(shared: Resources) -> None:
    """Without try and finally in the lifespan: the error is the handler's own."""
    app, use = app_with(shared.later)

    with pytest.raises(Fail):
        await app.run_now(use("fail"))

    assert shared.did == ["open", "fail", "close"]


async def test_a_drain_opens_it_once_for_all_jobs(shared: Resources) -> None:
    """As a worker does."""
    app, use = app_with(shared.later)

    @app.job
    def threaded(ctx: Context[Resources]) -> None:
        ctx.state.did.append("thread")

    async with app:
        await app.tenant("acme").enqueue_many([use("a"), threaded(), use("b")])
        await drain(app)

    assert shared.did == ["open", "a", "thread", "b", "close"]


async def test_middleware_and_classes_have_the_state(shared: Resources) -> None:
    """Whatever runs around the handler."""

    async def around(ctx: Context[Any], job: Job, call: Any) -> Any:
        ctx.state.did.append("around")
        return await call(ctx, job)

    app = App("memory://", lifespan=shared.later, middleware=(around,))

    @app.job
    class Look(Job):
        def run(self, ctx: Context[Resources]) -> int:
            return len(ctx.state.did)

    assert await app.run_now(Look()) == 2


async def test_the_lifespan_is_given_the_app(shared: Resources) -> None:
    """It may read its configuration, or enqueue."""
    given: list[App] = []

    @contextmanager
    def lifespan(app: App) -> Generator[None, None, None]:
        given.append(app)
        yield

    app = App("memory://", lifespan=lifespan)

    @app.job
    async def nothing(ctx: Context[None]) -> str:
        return repr(ctx.state)

    assert await app.run_now(nothing()) == "None"
    assert given == [app]


async def test_state_without_a_lifespan_is_an_error_that_says_what_to_do() -> None:
    """At the access, so handlers that do not need it run."""
    app, use = app_with(None)

    with pytest.raises(InvalidInput, match=r"ctx\.state: this app opens none.*lifespan="):
        await app.run_now(use("a"))


async def test_a_cpu_handler_has_no_state_in_run_now_either(shared: Resources) -> None:
    """What works in a test works in the child process of a worker."""
    app, _ = app_with(shared.later)

    @app.job(cpu=True)
    def count(ctx: Context[Resources]) -> int:
        return len(ctx.state.did)

    with pytest.raises(InvalidInput, match="cpu=True runs in a child process"):
        await app.run_now(count())


@asynccontextmanager
async def broken(app: App) -> AsyncGenerator[None, None]:
    raise ConnectionRefusedError("no database")
    yield


def broken_at_once(app: App) -> Any:
    raise ConnectionRefusedError("no database")


@pytest.mark.parametrize("lifespan", [broken, broken_at_once])
async def test_a_failure_to_open_names_the_lifespan_and_the_cause(lifespan: Any) -> None:
    """The cause is kept; the log has its traceback."""
    app, use = app_with(lifespan)
    words = "setting 'lifespan': could not be opened: ConnectionRefusedError: no database"

    with pytest.raises(ConfigError, match=words) as raised:
        await app.run_now(use("a"))

    assert isinstance(raised.value.__cause__, ConnectionRefusedError)


async def test_a_failure_to_close_is_logged_and_the_result_counts(
    shared: Resources, caplog: pytest.LogCaptureFixture
) -> None:
    """What ran is done by then."""

    @contextmanager
    def lifespan(app: App) -> Generator[Resources, None, None]:
        yield shared
        raise OSError("torn")

    app, use = app_with(lifespan)

    assert await app.run_now(use("a")) == "a"

    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "the lifespan could not be closed"
    assert record.exc_info is not None
    assert record.exc_info[0] is OSError


async def test_a_lifespan_that_never_closes_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A deploy must not wait for it for ever."""
    monkeypatch.setattr("holdfast.lifespan.CLOSE_S", 0.01)

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncGenerator[Resources, None]:
        yield Resources()
        await asyncio.Event().wait()

    app, use = app_with(lifespan)

    assert await app.run_now(use("a")) == "a"
    assert "the lifespan could not be closed" in caplog.text


async def generator(app: App) -> AsyncGenerator[None, None]:
    yield


def plain_generator(app: App) -> Generator[None, None, None]:
    yield


@pytest.mark.parametrize(
    ("lifespan", "word"),
    [
        (generator, "decorate it with @contextlib.asynccontextmanager"),
        (plain_generator, "decorate it with @contextlib.asynccontextmanager"),
        (5, "must be a function that takes the app, not int"),
        (broken(App("memory://")), "give the function that makes it"),
    ],
)
def test_what_cannot_be_a_lifespan_is_refused_with_the_app(lifespan: Any, word: str) -> None:
    """Not when the worker starts."""
    with pytest.raises(ConfigError, match="'lifespan'") as raised:
        App("memory://", lifespan=lifespan)

    assert word in str(raised.value)


async def coroutine(app: App) -> Resources:
    return Resources()


@pytest.mark.parametrize("lifespan", [coroutine, lambda app: Resources(), lambda app: [app]])
async def test_what_returns_no_context_manager_is_refused_when_it_opens(lifespan: Any) -> None:
    """Before anything runs."""
    app, use = app_with(lifespan)

    with pytest.raises(ConfigError, match="not a context manager; decorate a generator"):
        await app.run_now(use("a"))


async def test_a_stop_ends_the_opening() -> None:
    """A worker that waits for a database can be stopped; what began to open cleans up."""
    began, stop, did = asyncio.Event(), asyncio.Event(), list[str]()

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncGenerator[None, None]:
        try:
            began.set()
            await asyncio.Event().wait()
            yield
        finally:
            did.append("cleaned up")

    async def use() -> object:
        async with opened(lifespan, App("memory://"), stop) as state:
            return state

    using = asyncio.create_task(use())
    await began.wait()
    stop.set()

    assert await using is Missing.LIFESPAN
    assert did == ["cleaned up"]
    assert await use() is Missing.LIFESPAN  # Stopped before: it is not even called.
    assert did == ["cleaned up"]


async def test_a_time_out_of_its_own_is_a_failure_to_open() -> None:
    """Not a stop."""

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncGenerator[None, None]:
        raise TimeoutError("no answer")
        yield

    with pytest.raises(ConfigError, match="TimeoutError: no answer"):
        async with opened(lifespan, App("memory://"), asyncio.Event()):
            pytest.fail("it is not open")
