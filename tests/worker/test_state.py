"""A worker and the lifespan of its app: open before the first claim, closed after the drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.worker.conftest import MakeYard, Yard

from holdfast import App, Context, State
from holdfast.core.errors import ConfigError
from holdfast.worker import Worker


class Life:
    """A lifespan under the control of a test."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    @asynccontextmanager
    async def open(self, app: App) -> AsyncGenerator[Life, None]:
        self.began.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        self.did.append("open")
        yield self
        self.did.append("close")


@pytest.fixture
def life() -> Life:
    return Life()


@pytest.fixture
async def yard(make_yard: MakeYard, life: Life) -> Yard:
    yard = make_yard(lifespan=life.open)
    await yard.app.open()
    return yard


def use_of(yard: Yard) -> Any:
    @yard.app.job(name="use", max_attempts=1)
    async def use(ctx: Context[Life], what: str = "run") -> None:
        ctx.state.did.append(what)

    return use


async def test_nothing_is_claimed_before_it_is_open(yard: Yard, life: Life) -> None:
    """Jobs wait in the store, where other workers can have them."""
    id = await yard.put(use_of(yard)())
    worker = yard.start()
    await life.began.wait()

    assert not worker.ready
    assert yard.faults.count("claim") == 0
    assert (await yard.job(id)).attempt == 0
    life.go.set()

    await yard.fact()
    assert (await yard.job(id)).state is State.COMPLETED


async def test_it_is_closed_after_the_drain(yard: Yard, life: Life) -> None:
    """Once for the worker; handlers that may finish still have it."""
    running, release = asyncio.Event(), asyncio.Event()

    @yard.app.job
    async def last(ctx: Context[Life]) -> None:
        running.set()
        await release.wait()
        ctx.state.did.append("last")

    life.go.set()
    use = use_of(yard)
    await yard.put(use("one"))
    await yard.put(use("two"))
    worker = yard.start()
    await yard.facts(2)
    await yard.put(last())
    await running.wait()

    worker.stop()
    release.set()
    await yard.join(worker)

    assert life.did == ["open", "one", "two", "last", "close"]


async def test_handlers_that_the_drain_stops_can_clean_up_with_it(yard: Yard, life: Life) -> None:
    """It is closed after them, also when the worker is cancelled itself."""
    running = asyncio.Event()

    @yard.app.job
    async def stuck(ctx: Context[Life]) -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            ctx.state.did.append("cleaned up")

    life.go.set()
    await yard.put(stuck())
    task = asyncio.create_task(Worker(yard.app).run())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert life.did == ["open", "cleaned up", "close"]


async def test_a_failure_to_open_stops_the_worker_before_it_claims(yard: Yard, life: Life) -> None:
    """With the reason; no attempt is spent and no lease is left behind."""
    id = await yard.put(use_of(yard)())
    life.error = ConnectionRefusedError("no database")
    life.go.set()

    with pytest.raises(ConfigError, match="could not be opened: ConnectionRefusedError"):
        await Worker(yard.app).run()

    job = await yard.job(id)
    assert (job.state, job.attempt, job.fence) == (State.ENQUEUED, 0, 0)
    assert yard.faults.count("claim") == 0


async def test_a_worker_can_be_stopped_while_it_opens(yard: Yard, life: Life) -> None:
    """It ends as after any drain, having claimed nothing."""
    id = await yard.put(use_of(yard)())
    worker = yard.start()
    await life.began.wait()

    await yard.stop(worker)

    assert life.did == []
    assert (await yard.job(id)).attempt == 0


async def test_each_worker_of_an_app_opens_its_own(yard: Yard, life: Life) -> None:
    """They may run on different loops, and pools belong to one."""
    life.go.set()
    use_of(yard)
    for _ in range(2):
        yard.start()
    await yard.until(lambda: _when(life.did == ["open", "open"]))

    await yard.stop_all()

    assert life.did == ["open", "open", "close", "close"]


async def _when(seen: bool) -> bool:
    return seen
