"""A worker with the usual settings on each store: cancels and progress do not wait for a heartbeat,
which would be 20 s away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast import App, Context, StopReason
from holdfast.core.clock import Clock
from holdfast.store import Store
from holdfast.worker import Worker

BOUND_S = 8.0
"""Well before the first heartbeat; only a failure takes as long."""


@pytest.mark.parametrize("keep_s", [60.0, 0.0], ids=["kept", "deleted"])
async def test_a_cancel_reaches_a_running_handler_long_before_a_heartbeat(
    make: Callable[[str, Clock | None], Store], keep_s: float
) -> None:
    """P5: the running handler is told, also where the cancel deletes the record."""
    app = App(make("cancels", None), keep_s=keep_s, upkeep=False)
    started, stopped = asyncio.Event(), asyncio.Event()
    seen: list[StopReason | None] = []

    @app.job()
    async def work(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.stopping)
            stopped.set()

    async with app:
        worker = Worker(app, drain_s=0.0)
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(BOUND_S):
                made = await app.tenant("acme").enqueue(work())
                await started.wait()
                assert await app.tenant("acme").cancel(made.id)
                await stopped.wait()
        finally:
            worker.stop()
            await running

    assert seen == [StopReason.CANCELED]
