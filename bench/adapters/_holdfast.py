"""Holdfast as the harness of the peers runs it: the whole library, on the engine of each adapter.

Loaded in the harness's own environment, beside its `probe`; nothing of this project imports it.
Leases, heartbeats and tokens are on, as always; finished jobs are deleted at once. There is no log
of events, which no other queue here has: what it costs is among the rules of the store's own run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import probe  # type: ignore[import-not-found,unused-ignore]

from holdfast import App, Context
from holdfast.config import Config
from holdfast.loop import run
from holdfast.worker.worker import Worker

TENANT = "bench"


def system(url: str) -> tuple[type[Any], Callable[[], None], Callable[[], Any]]:
    """What an adapter must name: Client, worker and setup."""
    # The harness asks for a short one in its second run with kill -9.
    lease_s = float(probe.RECOVERY_S) or Config().lease_s
    url += "&events=off" if "?" in url else "?events=off"
    app = App(url, concurrency=1000, keep_s=0, lease_s=lease_s)

    @app.job(name="noop")
    async def noop(ctx: Context, p: dict[str, Any]) -> None:
        await probe.ajob(p)

    class Client:
        async def open(self) -> None:
            await app.__aenter__()
            self._tenant = app.tenant(TENANT)

        async def enqueue(self, p: dict[str, Any]) -> None:
            await self._tenant.enqueue(noop(p=p))

        async def enqueue_many(self, ps: list[dict[str, Any]]) -> None:
            await self._tenant.enqueue_many([noop(p=p) for p in ps])

        async def close(self) -> None:
            await app.__aexit__(None, None, None)

    def worker() -> None:
        run(Worker(app).run())  # as `holdfast worker` does

    async def setup() -> None:
        async with app:
            pass

    return Client, worker, setup
