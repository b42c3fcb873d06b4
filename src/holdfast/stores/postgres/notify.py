"""Notify: one connection of a process listens for notifications of the others. Hints only."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from contextlib import suppress
from functools import partial
from typing import Any

import asyncpg
import msgspec

from holdfast.core.bounds import WAIT_S_MAX
from holdfast.core.clock import SECOND
from holdfast.store import Ref, Watch
from holdfast.stores import forks
from holdfast.stores.notifier import Line, Notifier
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.connection import CLOSE_S, Connection, connect
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.step import ANY_LINE, Step


class Notification(msgspec.Struct, array_like=True, frozen=True):
    """The sender, the lines where work may have come up, and the jobs that may have ended."""

    sender: str
    lines: list[Line]
    ended: list[tuple[str, str]] = []


WAITER_S = 60.0
"""How long the end of a job is notified to a process that waits for it, after it last asked."""
AGAIN_S = 5.0
"""How long a listener that lost its connection waits before it connects again."""


class Notifications:
    """Listens for what other processes notify, and wakes the sleepers of this one."""

    def __init__(self, options: Options, notifier: Notifier) -> None:
        self._options = options
        self._notifier = notifier
        self._lock = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        """Set when the task listens, or has failed to."""
        self._up = False
        self.sender = f"{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self.channel = options.channel
        forks.keep(self)

    @property
    def hears(self) -> bool:
        """Whether other processes can wake sleepers of this one, as far as is known."""
        return self._up

    async def listen(self, timeout_s: float) -> None:
        """Starts to listen on this event loop, unless another one does already. Returns when that
        works, or has failed: a caller that looked for work before would miss a notification.
        """
        if self.channel is None or self._up:
            return
        with self._lock:
            if not self._alive():
                self._tried = asyncio.Event()
                self._task = asyncio.create_task(self._listen(self._tried))
            task, tried = self._task, self._tried
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await tried.wait()

    def _alive(self) -> bool:
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    async def close(self) -> None:
        with self._lock:
            task, self._task = self._task, None
        if task is None or task.done():
            return
        loop = task.get_loop()
        if loop is asyncio.get_running_loop():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        else:
            with suppress(RuntimeError):  # The loop has closed, and the task with it.
                loop.call_soon_threadsafe(task.cancel)

    async def _listen(self, tried: asyncio.Event) -> None:
        while True:
            connection: Connection | None = None
            try:
                connection = await connect(self._options)
                ended = asyncio.Event()
                connection.add_termination_listener(partial(_set, ended))
                assert self.channel is not None, "listens only with a channel"
                await connection.add_listener(self.channel, self._heard)
                self._up = True
                self._notifier.notify_all()  # Earlier notifications are lost.
                tried.set()
                await ended.wait()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pass
            finally:
                self._up = False
                tried.set()
                if connection is not None:
                    with suppress(Exception):
                        await connection.close(timeout=CLOSE_S)
            await asyncio.sleep(AGAIN_S)

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        try:
            found = msgspec.json.decode(str(payload), type=Notification)
        except msgspec.MsgspecError:
            self._notifier.notify_all()
            return
        if found.sender == self.sender:
            return  # Its sleepers were woken when the call returned.
        if ANY_LINE in found.lines:
            self._notifier.notify_all()
        else:
            self._notifier.notify(found.lines, [Ref(tenant, id) for tenant, id in found.ended])


def _set(event: asyncio.Event, _connection: Any) -> None:
    event.set()


async def next_wakeup(step: Step, watch: Watch, hears: bool) -> float:
    """Seconds until something known will be worth a look; 0 when it already is."""
    if watch.news:
        return WAIT_S_MAX
    if watch.job is not None:
        if hears:
            await step.run(sql.WATCH_JOB, watch.job.tenant, watch.job.id, WAITER_S)
        ended = await step.value(sql.ENDED, watch.job.tenant, watch.job.id)
        return 0.0 if ended else WAIT_S_MAX
    delay = await step.value(sql.NEXT_WAKEUP, watch.tenants, watch.queues, step.given)
    return float(delay) / SECOND
