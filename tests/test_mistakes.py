"""Mistakes of the first day: each is met with an error that says what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, InvalidInput, Job
from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.testing import drain


class Measure(Job[float]):
    track: str

    def run(self, ctx: Context) -> float:
        return float(len(self.track))


def an_app() -> tuple[App, Any]:
    app = App("memory://")
    app.job(Measure)

    @app.job
    async def send(ctx: Context, to: str = "") -> tuple[str, int]:
        return to, len(to)

    return app, send


@pytest.mark.parametrize("store", [None, 3, Path("jobs.db"), b"memory://"])
def test_an_app_without_a_store_says_what_to_give(store: Any) -> None:
    """As when an environment variable is not set."""
    with pytest.raises(ConfigError, match=r"give a URL, for example App\('sqlite:///jobs.db'\)"):
        App(store)


async def test_a_type_that_was_not_called_is_told_from_a_job() -> None:
    """`enqueue(send)` instead of `enqueue(send(...))`, wherever a job is wanted."""
    app, send = an_app()
    async with app:
        acme = app.tenant("acme")
        for call in (
            lambda: acme.enqueue(send),
            lambda: acme.enqueue_many([send]),
            lambda: app.run_now(send),
        ):
            with pytest.raises(InvalidInput, match=r"call it, send\(...\)"):
                await call()
        with pytest.raises(InvalidInput, match=r"call it, Measure\(...\)"):
            await acme.enqueue(Measure)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="decorate an_app with"):
            await acme.enqueue(an_app)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="decorate its function"):
            await acme.enqueue(asyncio.sleep(0))  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="must be a job, not str"):
            await acme.enqueue("send")  # type: ignore[arg-type]


async def test_a_forgotten_async_with_is_named() -> None:
    """`it is not open` alone sends nobody to the right line."""
    app, send = an_app()

    with pytest.raises(StoreUnavailable, match="not open: use `async with app:`"):
        await app.tenant("acme").enqueue(send())


async def test_app_sync_inside_a_coroutine_is_refused() -> None:
    """It would stand still with everything else on the loop."""
    app, send = an_app()

    with pytest.raises(InvalidInput, match=r"inside a coroutine.*await app\.tenant"):
        app.sync.tenant("acme").enqueue(send())
    with pytest.raises(InvalidInput, match="inside a coroutine"), app.sync:
        pass
    assert await asyncio.to_thread(lambda: app.sync.tenant("acme").enqueue(send()).created)
    await asyncio.to_thread(app.sync.close)


def test_what_is_decorated_must_be_a_function_or_a_class() -> None:
    """`@app.job("mail")` looks as if it named the queue."""
    for wrong in (("mail",), (print, print)):
        with pytest.raises(ConfigError, match=r"give options by name: @app.job\(queue='mail'\)"):
            App("memory://").job(*wrong)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_result_comes_back_as_the_handler_says(store: str, tmp_path: Path) -> None:
    """What type checkers are told is true: a tuple is a tuple also after JSON."""
    app, send = an_app()
    if store == "sqlite":
        app.use_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    async with app:
        acme = app.tenant("acme")
        one = await acme.enqueue(send(to="Ada"))
        two = await acme.enqueue(Measure(track="abcd"))
        await drain(app)

        assert await acme.wait(one) == await acme.wait(one.id) == ("Ada", 3)
        assert await acme.wait(two) == 4.0
        assert isinstance(await acme.wait(two), float)


async def test_a_result_that_is_not_what_was_said_comes_back_plain(tmp_path: Path) -> None:
    """An annotation binds no handler."""
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job
    async def work(ctx: Context) -> int:
        return "seven"  # type: ignore[return-value]

    async with app:
        made = await app.tenant("acme").enqueue(work())
        await drain(app)

        assert await app.tenant("acme").wait(made.id) == "seven"
