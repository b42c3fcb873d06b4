"""Steps under kill -9: every effect is done once, and every order ends (P16)."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path

import pytest
from tests.chaos.orders import Ledger, make_app, start

from holdfast import App, State
from holdfast.core.errors import Refused

BOUND_S = 120.0
STORES = ("sqlite", "postgres", "redis")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


async def opened(url: str, ledger: Ledger) -> App:
    app = make_app(url, ledger, lambda: None)
    await app.store.migrate()
    return app


async def enqueue(app: App, order: str) -> None:
    kind = app.registry.named("fulfil")
    assert kind is not None
    await app.tenant("acme").enqueue(kind.kind(order=order), id=order)


async def approve(app: App, orders: list[str]) -> None:
    """Sends the approvals again and again, as an impatient operator would."""
    while True:
        for order in orders:
            try:
                await app.tenant("acme").signal(order, "approved", True)
            except Refused:
                continue  # It has ended.
        await asyncio.sleep(0.1)


async def until_ended(app: App, orders: list[str]) -> None:
    async with asyncio.timeout(BOUND_S):
        while True:
            page = await app.tenant("acme").find(types=["fulfil"], limit=1000)
            if sum(job.finished_at is not None for job in page.jobs) == len(orders):
                return
            await asyncio.sleep(0.05)


async def check(app: App, ledger: Ledger, orders: list[str]) -> None:
    """Every order has ended well, and each of its effects was done under one key."""
    acme = app.tenant("acme")
    for order in orders:
        assert await acme.wait(order, timeout=1) == 3
    lines = [f"{order}/{number}" for order in orders for number in range(3)]
    done = ledger.asked()
    charges, mails = [[k for k in done if k.startswith(word)] for word in ("charge ", "mail ")]
    shipped = [key.split()[1] for key in done if key.startswith("ship ")]
    assert len(charges) == len(mails) == len(orders)
    assert sorted(shipped) == sorted(lines)


@pytest.mark.slow
@pytest.mark.parametrize("url", STORES, indirect=True)
async def test_a_worker_killed_at_every_point_loses_and_doubles_nothing(
    url: str, ledger: Ledger
) -> None:
    """P16: before and after each call to the store, and each effect."""
    app = await opened(url, ledger)
    orders: list[str] = []
    async with app:
        for point in range(1000):
            order = f"o{point}"
            orders.append(order)
            await enqueue(app, order)
            died = await killed_at(app, url, ledger, point, order)
            if not died:
                break
        assert 20 < len(orders) < 1000
        await check(app, ledger, orders)


async def killed_at(app: App, url: str, ledger: Ledger, point: int, order: str) -> bool:
    """Whether a worker came to this point; another one finishes what it left."""
    approving = asyncio.create_task(approve(app, [order]))
    worker = start(url, ledger.path, point)
    try:
        died = await _until(app, worker, order)
        if died:
            worker = start(url, ledger.path)
            assert not await _until(app, worker, order)
        return died
    finally:
        approving.cancel()
        worker.terminate()
        await asyncio.to_thread(worker.wait, 30)


async def _until(app: App, worker: subprocess.Popen[bytes], order: str) -> bool:
    """Waits until the order has ended or the worker has died; returns whether it died first."""
    async with asyncio.timeout(BOUND_S):
        while True:
            if (await app.tenant("acme").get(order)).state is State.COMPLETED:
                return False
            if worker.poll() is not None:
                return True
            await asyncio.sleep(0.02)


async def storm(url: str, ledger: Ledger, kills: int, number: int) -> None:
    """So many kills at random while orders are fulfilled by three workers."""
    chance = random.Random(19)
    app = await opened(url, ledger)
    orders = [f"o{n}" for n in range(number)]
    workers: list[subprocess.Popen[bytes]] = []
    async with app:
        approving = asyncio.create_task(approve(app, orders))
        try:
            for place in range(kills):
                for order in orders[place * number // kills : (place + 1) * number // kills]:
                    await enqueue(app, order)
                while len(workers) < 3:
                    workers.append(start(url, ledger.path))
                await asyncio.sleep(chance.uniform(0.1, 0.8))
                victim = workers.pop(chance.randrange(3))
                victim.kill()
                victim.wait()
            workers.append(start(url, ledger.path))
            await until_ended(app, orders)
            await check(app, ledger, orders)
        finally:
            approving.cancel()
            for worker in workers:
                worker.kill()
                worker.wait()


@pytest.mark.slow
@pytest.mark.parametrize("url", STORES, indirect=True)
async def test_two_hundred_kills_lose_and_double_nothing(url: str, ledger: Ledger) -> None:
    """P16: at random, of three workers."""
    await storm(url, ledger, kills=200, number=400)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_some_kills_lose_and_double_nothing(url: str, ledger: Ledger) -> None:
    """P16: the short form of the above."""
    await storm(url, ledger, kills=6, number=12)
