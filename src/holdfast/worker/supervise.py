"""`--processes N`: a parent that keeps N worker processes alive.

It opens no store and runs no job.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import msgspec

from holdfast.core.backoff import Delays

logger = logging.getLogger("holdfast.worker")

LIFELINE = "HOLDFAST_LIFELINE"
"""Environment variable with the pipe whose end tells a child that its parent has ended."""
CHILD = "HOLDFAST_CHILD"
"""Environment variable with the number of the child, which makes its worker name unique."""

BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0
STEADY_S = 60.0
"""After a life this long a child that crashes is started again after the first delay."""
LOOK_S = 0.2
"""How often the parent checks its children if none has ended."""
KILL_AFTER_S = 10.0
"""How long children may exceed the drain time before they are killed."""


class _Child(msgspec.Struct):
    number: int
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    delays: Delays = msgspec.field(default_factory=lambda: Delays(BACKOFF_FIRST_S, BACKOFF_MOST_S))


class Supervisor:
    """Starts the command N times, restarts crashed children, forwards signals, and ends after its
    children.
    """

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        drain_s: float,
        on_start: Callable[[int, int], None] | None = None,
    ) -> None:
        self._command = list(command)
        self._children = [_Child(number) for number in range(processes)]
        self._drain_s = drain_s
        self._on_start = on_start
        # Not an Event: setting one in a signal handler can wait for the thread that it interrupts.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._signals = 0
        self._stopped_at = 0.0
        self._lifeline: tuple[int, int] = (-1, -1)

    def run(self) -> int:
        """Returns 0 if every child drained and ended, 1 if one had to be killed."""
        before = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: self._wake.put(None))
        self._lifeline = os.pipe()
        try:
            while not self._turn():
                with contextlib.suppress(queue.Empty):
                    self._wake.get(timeout=LOOK_S)
            return 0 if all(_clean(child) for child in self._children) else 1
        finally:
            os.close(self._lifeline[0])
            os.close(self._lifeline[1])
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Starts the drain. A second call kills the children."""
        self._signals += 1
        self._stopped_at = self._stopped_at or time.monotonic()
        self._wake.put(None)
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.stop()

    def _turn(self) -> bool:
        """Checks each child once. True if all have ended."""
        now = time.monotonic()
        for child in self._children:
            if child.process is None or child.process.poll() is not None:
                if not self._signals:
                    self._revive(child, now)
            elif self._signals and now > self._stopped_at + self._drain_s + KILL_AFTER_S:
                child.process.kill()
        return bool(self._signals) and all(_over(child) for child in self._children)

    def _revive(self, child: _Child, now: float) -> None:
        if child.process is not None and child.start_at <= child.started_at:
            if now - child.started_at > STEADY_S:
                child.delays.reset()
            delay_s = child.delays.next_s()
            child.start_at = now + delay_s
            logger.error(
                "worker process %d (pid %d) ended with %s; starting another in %.1f s",
                child.number,
                child.process.pid,
                child.process.returncode,
                delay_s,
            )
        if now >= child.start_at:
            self._start(child, now)

    def _start(self, child: _Child, now: float) -> None:
        env = {CHILD: str(child.number)}
        child.process = start_tied(self._command, self._lifeline[0], env)
        child.started_at = child.start_at = now
        if (
            self._signals
        ):  # The signal came while the child was being started, so `stop` did not see the child.
            child.process.send_signal(signal.SIGTERM)
        if self._on_start is not None:
            self._on_start(child.number, child.process.pid)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _over(child: _Child) -> bool:
    return child.process is None or child.process.poll() is not None


def _clean(child: _Child) -> bool:
    # A child that SIGTERM ended was still starting and held no leases to drain.
    return child.process is None or child.process.returncode in (0, -signal.SIGTERM)


def start_tied(
    command: Sequence[str], lifeline: int, env: Mapping[str, str], stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts a command that calls `follow_parent` and gets the reading end of a pipe from us.

    It gets its own process group. So only the parent receives Ctrl-C from the terminal and forwards
    it; otherwise a child would count two signals.
    """
    return subprocess.Popen(
        command,
        env={**os.environ, **env, LIFELINE: str(lifeline)},
        pass_fds=(lifeline,),
        process_group=0,
        stderr=stderr,
    )


def follow_parent() -> None:
    """In a child: drains when the parent has ended, for whatever reason.

    Does nothing in a process without a supervising parent.
    """
    reader = os.environ.pop(LIFELINE, None)  # Do not pass it on to child processes.
    if reader is None:
        return

    def listen(fd: int) -> None:
        while os.read(fd, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, args=(int(reader),), daemon=True).start()


def this_command(arguments: Sequence[str]) -> list[str]:
    """The command that starts this program with other arguments."""
    return [sys.executable, "-m", "holdfast", *arguments]
