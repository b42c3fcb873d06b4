"""S4.19 and S4.41 in a storm: late commits, deletions during a poll, 429s, garbage, slow and
repeated pages, and pollers that are killed anywhere. At the end the shadow is the source, and each
change was applied once.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import types
from asyncio.subprocess import Process
from collections.abc import Coroutine, Generator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.sources.storm import NAME, TENANT, Weather, make_app, weather

from holdfast import App, Context, Snooze
from holdfast.code_sources import Source
from holdfast.core.clock import SECOND
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Completed, Lease
from holdfast.core.lifecycle import decide
from holdfast.sources.poll import Poll
from holdfast.store import Claim
from holdfast.stores import open_store
from holdfast.testing import ManualClock, drain

ROOT = Path(__file__).parents[2]
BOUND_S = 90.0


class Killed(BaseException):
    """The process is gone."""


@types.coroutine
def killed_at(work: Coroutine[Any, Any, Any], at: int) -> Generator[Any, Any, bool]:
    """Runs the work until it waits for the time `at`, and kills it there. True: it ended before."""
    sent: Any = None
    for number in count(1):
        try:
            awaited = work.send(sent)
        except StopIteration:
            return True
        if number == at:
            with suppress(Killed):
                work.throw(Killed())
            return False
        try:
            sent = yield awaited
        except BaseException as error:
            awaited = work.throw(error)
            sent = yield awaited
    raise AssertionError


class Storm:
    """An app on a clock of its own, whose polls a test runs itself."""

    def __init__(self, tmp_path: Path, found: Weather) -> None:
        self.clock = ManualClock()
        self.weather = found
        self.app: App
        self.source: Source
        store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}", self.clock)
        self.app, self.source = make_app(store, found.url)
        self.handle = self.app.default.source(NAME)

    async def claim(self) -> Lease:
        """A poll, claimed by a worker that may die."""
        await self.handle.poll_now()
        nonce = secrets.token_hex(8)
        while True:
            claim = Claim(worker="w", nonce=nonce, limit=1, lease_us=60 * SECOND, queues=("polls",))
            if leases := await self.app.store.claim(claim):
                return leases[0]
            self.clock.advance(10)
            nonce = secrets.token_hex(8)

    def poll(self, lease: Lease) -> Poll:
        return Poll(self.app.store, Context(lease.job), self.source.reader, self.source.plan())

    async def end(self, lease: Lease) -> None:
        """The job of a poll that has ended, however it did: the next one is asked for anew."""
        await self.app.store.ack([decide(Completed(), lease.job, lease.token, 0.0)])

    async def settle(self) -> None:
        """The storm is over: polls and changes until nothing is left."""
        self.weather.calm = True
        for _ in range(30):
            self.clock.advance(61)
            if await drain(self.app, queues=["changes", "polls", "holdfast.ticks"]) == []:
                break
        self.clock.advance(61)
        await self.handle.reconcile_now()
        await drain(self.app, queues=["changes", "polls"])

    async def check(self) -> None:
        self.weather.check()
        found: dict[int, object] = {}
        after = ""
        while True:
            page = await self.handle.objects(after=after)
            found |= {int(one.id): one.version for one in page.objects if not one.gone}
            if page.after is None:
                break
            after = page.after
        assert found == self.weather.objects
        totals = (await self.handle.status()).totals
        assert totals.created + totals.updated + totals.deleted == len(self.weather.applied)


@pytest.mark.parametrize("seed", [1, 2])
async def test_pollers_killed_between_any_two_awaits_lose_and_double_nothing(
    tmp_path: Path, seed: int
) -> None:
    """S4.19, S4.41: wherever a poll waits, for the source or for the store, it is killed once."""
    async with weather(seed) as found:
        storm = Storm(tmp_path, found)
        async with storm.app:
            at, ended, kills = 1, 0, 0
            while ended < 12 or kills < 60:
                lease = await storm.claim()
                try:
                    if await killed_at(storm.poll(lease).run(), at):
                        at, ended = 1, ended + 1
                    else:
                        at, kills = at + 1, kills + 1
                        storm.clock.advance(61)
                        continue  # Its lease ends, and the next claim takes its job again.
                except (Snooze, Exception):
                    ended += 1
                storm.clock.advance(2)
                with suppress(HoldfastError):
                    await storm.end(lease)
                await drain(storm.app, queues=["changes"])
            await storm.settle()
            await storm.check()

    assert len(found.served) == 8, found.served


async def test_three_pollers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    """S4.19, S4.41: of one job, as after two lost leases, and each in its own pace."""
    async with weather(3) as found:
        storm = Storm(tmp_path, found)
        async with storm.app:
            for _ in range(15):
                lease = await storm.claim()
                runs = [storm.poll(lease).run() for _ in range(3)]
                await asyncio.gather(*runs, return_exceptions=True)
                storm.clock.advance(2)
                with suppress(HoldfastError):
                    await storm.end(lease)
                await drain(storm.app, queues=["changes"])
            await storm.settle()
            await storm.check()


async def test_workers_killed_by_kill_9_lose_and_double_nothing(tmp_path: Path) -> None:
    """S4.37, S4.41: three processes on one file, one of which dies again and again."""
    chance = random.Random(4)
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with weather(4) as found:
        app, _ = make_app(store, found.url, lease_s=1.0, poll_s=0.05)

        async def start() -> Process:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.sources.storm", store, found.url, cwd=ROOT,
                stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip

        workers = [await start() for _ in range(3)]
        try:
            async with app, asyncio.timeout(BOUND_S):
                for kill in range(6):
                    pages = sum(found.served.values())
                    await until(lambda pages=pages: sum(found.served.values()) >= pages + 6)
                    victim = workers[kill % 3]
                    victim.kill()
                    await victim.wait()
                    workers[kill % 3] = await start()
                    await asyncio.sleep(chance.random() / 10)  # A fault that is injected.
                found.calm = True
                await quiet(app, found)
        finally:
            for worker in workers:
                with suppress(ProcessLookupError):
                    worker.kill()
                await worker.wait()
        found.check()


async def until(holds: Any) -> None:
    """Waits until the condition holds; the caller bounds the time."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.02)  # Of other processes nothing else can be waited for.


async def quiet(app: App, found: Weather) -> None:
    """Waits until two full listings in the calm have found nothing new, and no change is left."""
    acme = app.tenant(TENANT)
    for _ in range(2):
        before = (await acme.source(NAME).status()).listed_at or 0
        while True:
            status = await acme.source(NAME).status()
            if (status.listed_at or 0) > before and status.fault is None:
                break
            await asyncio.sleep(0.05)  # Of other processes nothing else can be waited for.
    while (await acme.find(queues=["changes"])).jobs:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # Of other processes nothing else can be waited for.
    totals = (await acme.source(NAME).status()).totals
    await until(lambda: len(found.applied) >= totals.created + totals.updated + totals.deleted)
