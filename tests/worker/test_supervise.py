"""The parent of worker processes, and the signals of a deploy."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest

from holdfast.worker import supervise
from holdfast.worker.signals import draining
from holdfast.worker.supervise import Supervisor

FOREVER = [sys.executable, "-c", "import signal; signal.pause()"]
CRASHES = [sys.executable, "-c", "raise SystemExit(3)"]


def test_a_child_that_crashes_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the parent is told to stop."""
    monkeypatch.setattr(supervise, "BACKOFF_MOST_S", 0.02)
    started: list[int] = []

    def on_start(number: int, pid: int) -> None:
        started.append(pid)
        if len(started) == 3:
            supervisor.stop()

    supervisor = Supervisor(CRASHES, 1, drain_s=5.0, on_start=on_start)
    supervisor.run()

    assert len(set(started)) == 3


def test_a_stop_that_comes_while_a_child_is_made_reaches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would outstay the whole drain and be killed."""
    make = supervise.start_tied

    def stopped_meanwhile(*args: Any) -> Any:
        process = make(*args)
        supervisor.stop()
        return process

    monkeypatch.setattr(supervise, "start_tied", stopped_meanwhile)
    supervisor = Supervisor(FOREVER, 1, drain_s=60.0)
    began = time.monotonic()

    assert supervisor.run() == 0
    assert time.monotonic() - began < 30


def test_signals_are_passed_on_and_the_old_handlers_come_back() -> None:
    """A storm of them does not lock the parent up."""
    before = signal.getsignal(signal.SIGTERM)
    children: list[int] = []

    def on_start(number: int, pid: int) -> None:
        children.append(pid)
        for _ in range(200):
            os.kill(os.getpid(), signal.SIGCHLD)
        if len(children) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    assert Supervisor(FOREVER, 2, drain_s=5.0, on_start=on_start).run() == 0

    assert signal.getsignal(signal.SIGTERM) is before
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_starts_the_drain(number: signal.Signals) -> None:
    """On the loop; afterwards the old handlers are back."""
    before = signal.getsignal(number)
    heard = asyncio.Event()

    with draining(heard.set):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(5):
            await heard.wait()

    assert signal.getsignal(number) is before
