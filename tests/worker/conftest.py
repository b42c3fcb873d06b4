"""A yard for workers: an app on a store that can fail, its clock, and what was confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, JobRecord
from holdfast.core.clock import Clock
from holdfast.core.job import EventKind
from holdfast.events import Confirmed
from holdfast.store import Watch
from holdfast.stores import open_store
from holdfast.tenant import Tenant
from holdfast.testing import Faults, ManualClock
from holdfast.worker import Worker

PATIENCE_S = 10.0
"""How long a test waits for what must happen; only a failure takes as long."""


class Yard:
    """Workers on the test's own loop. Every fact the store confirms can be awaited."""

    def __init__(self, url: str, clock: Clock | None, **settings: Any) -> None:
        self.clock: Any = clock
        self.faults = Faults(open_store(url, clock))
        self.app = App(self.faults.store, **{"poll_s": 0.02, "upkeep": False, **settings})
        self.app.subscribe(self._heard)
        self._facts: asyncio.Queue[Confirmed] = asyncio.Queue()
        self._workers: dict[Worker, asyncio.Task[None]] = {}

    def _heard(self, fact: Confirmed) -> None:
        self._facts.put_nowait(fact)

    @property
    def acme(self) -> Tenant:
        return self.app.tenant("acme")

    def start(self, **settings: Any) -> Worker:
        """A worker that runs from now on; the end of the test stops it."""
        worker = Worker(self.app, **settings)
        self._workers[worker] = asyncio.create_task(worker.run())
        return worker

    async def stop(self, worker: Worker) -> None:
        """Drains the worker and waits for it."""
        worker.stop()
        await self.join(worker)

    async def join(self, worker: Worker) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._workers.pop(worker)

    async def stop_all(self) -> None:
        for worker in list(self._workers):
            await self.stop(worker)

    async def fact(self) -> Confirmed:
        """The next outcome that the store confirmed to any of the workers."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._facts.get()

    async def facts(self, count: int) -> list[Confirmed]:
        return [await self.fact() for _ in range(count)]

    async def until(self, look: Callable[[], Awaitable[Any]]) -> Any:
        """The first answer that is not empty; looks again at the store's hints."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await look()):
                await self.faults.real.wait(Watch(news=True), 0.01)
            return found

    async def put(self, job: Any, **options: Any) -> str:
        return (await self.acme.enqueue(job, **options)).id

    async def result(self, id: str) -> Any:
        return await self.acme.wait(id, timeout=PATIENCE_S)

    async def job(self, id: str) -> JobRecord:
        return await self.acme.get(id)

    async def kinds(self, id: str) -> list[EventKind]:
        page = await self.app.store.events("acme", 0, 1000, job_id=id)
        return [event.kind for event in page.events]


MakeYard = Callable[..., Yard]


@pytest.fixture
async def make_yard(tmp_path: Path) -> AsyncIterator[MakeYard]:
    """Makes yards by store and settings: a manual clock unless `clock=None` asks for the real."""
    yards: list[Yard] = []

    def make(store: str = "memory", **settings: Any) -> Yard:
        url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
        yards.append(Yard(url, settings.pop("clock", ManualClock()), **settings))
        return yards[-1]

    yield make
    for yard in yards:
        await yard.stop_all()
        for _ in range(yard.app._users):
            await yard.app.close()


@pytest.fixture
async def yard(make_yard: MakeYard) -> Yard:
    """On memory, with a clock that stands still."""
    yard = make_yard()
    await yard.app.open()
    return yard
