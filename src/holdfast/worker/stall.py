"""Detects a blocked event loop: another thread checks it every second and logs the handler."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from contextlib import suppress
from os.path import basename

from holdfast.job_logger import log_fields
from holdfast.loop import sleep_unless
from holdfast.worker.lease import ActiveJob, ActiveJobs
from holdfast.worker.log import logger

EVERY_S = 1.0
BLOCKED_S = 1.0
"""A loop that has not answered for this long counts as blocked."""
FRAMES = 3
"""The number of innermost calls to log."""


class Stalls:
    """Watches the loop that created it, from the loop that runs it."""

    def __init__(self, active_jobs: ActiveJobs) -> None:
        self._active = active_jobs
        self._home = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._ask(stop)
            await sleep_unless(stop, EVERY_S)

    async def _ask(self, stop: asyncio.Event) -> None:
        here, answered = asyncio.get_running_loop(), asyncio.Event()

        def answer() -> None:
            with suppress(RuntimeError):  # The watching loop is closed.
                here.call_soon_threadsafe(answered.set)

        asked_s = time.monotonic()
        try:
            self._home.call_soon_threadsafe(answer)
        except RuntimeError:
            return  # The watched loop is closed: its worker has ended.
        await sleep_unless(answered, BLOCKED_S)
        if answered.is_set():
            return
        active = self._at_fault()
        who = "something" if active is None else f"job type {active.lease.job.type!r}"
        fields = {} if active is None else log_fields(active.lease.job)
        words = "the event loop is blocked by %s, at %s: other coroutines of this worker wait"
        logger.warning(words, who, self._place(), extra=fields)
        while not (answered.is_set() or stop.is_set()):
            await sleep_unless(answered, BLOCKED_S)
        blocked_s = time.monotonic() - asked_s
        fields = {**fields, "blocked_s": round(blocked_s, 3)}
        logger.warning("the event loop was blocked for %.1f s by %s", blocked_s, who, extra=fields)

    def _at_fault(self) -> ActiveJob | None:
        """The job whose handler the loop is running, if it runs one."""
        task = asyncio.current_task(self._home)
        for active in self._active.all():
            if task is not None and active.task is task and not active.acking:
                return active
        return None

    def _place(self) -> str:
        """The current calls of the loop's thread, innermost first."""
        frame = sys._current_frames().get(self._thread)
        calls = traceback.extract_stack(frame, limit=None)[-FRAMES:] if frame is not None else []
        named = (f"{basename(call.filename)}:{call.lineno} in {call.name}" for call in calls)
        return ", called by ".join(reversed(list(named))) or "an unknown place"
