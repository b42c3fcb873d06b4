"""Worker processes on one SQLite file, for tests that kill them. As a module, such a worker."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

from holdfast import App, Context, RetryPolicy
from holdfast.store import Store
from holdfast.worker import Worker
from holdfast.worker.signals import draining

ROOT = Path(__file__).parent.parent.parent


def make_app(url: str) -> App:
    """The app that the workers and the tests share."""
    app = App(url, lease_s=1.0, concurrency=10, leader_s=1.0, max_attempts=100)

    @app.job(retry=RetryPolicy(base_s=0.0, cap_s=0.0))
    async def step(ctx: Context, pause_s: float) -> int:
        await asyncio.sleep(random.random() * pause_s)
        return ctx.attempt

    @app.job(max_attempts=3)
    async def deadly(ctx: Context) -> None:
        os._exit(9)

    return app


class Herd:
    """Starts workers and kills them; leaves none behind."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.living: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.chaos.herd", self._url]
        self.living.append(subprocess.Popen(command, cwd=ROOT))

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait()
        self.living.remove(worker)

    def revive(self, number: int) -> None:
        """Replaces those that died by themselves and keeps `number` alive."""
        self.living = [worker for worker in self.living if worker.poll() is None]
        while len(self.living) < number:
            self.start()

    def stop(self) -> list[int]:
        """Drains all; returns their exit codes."""
        for worker in self.living:
            worker.terminate()
        return [worker.wait(timeout=60) for worker in self.living]

    def __enter__(self) -> Herd:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.living:
            worker.kill()
            worker.wait()


async def _work(url: str) -> None:
    worker = Worker(make_app(url))
    with draining(worker.stop):
        await worker.run()


async def until_present(store: Store, workers: int) -> None:
    """Waits, within bounds, until so many workers have said that they are there."""
    async with asyncio.timeout(60):
        while len(await store.hold(under="worker/")) < workers:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
