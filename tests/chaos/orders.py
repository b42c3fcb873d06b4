"""Orders that are fulfilled in steps, by workers that are killed. As a module, such a worker.

`python -m tests.chaos.orders URL LEDGER POINT` runs a worker that kills itself at this point: the
store calls and the effects of the worker are counted, and each has a point before and one after it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec

from holdfast import App, Context, RetryPolicy
from holdfast.core.capabilities import Capabilities
from holdfast.store import Store
from holdfast.stores import open_store
from holdfast.worker import Worker
from holdfast.worker.signals import draining

ROOT = Path(__file__).parent.parent.parent
COUNTED = frozenset({"claim", "extend", "ack", "enqueue", "find"})
"""Verbs whose calls are points. Others, such as waits, come in no certain number."""


class Ledger:
    """The outside: it does what it is told once for each key, and counts how often it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path, timeout=30)) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, asked INTEGER)")

    def do(self, key: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            db.execute(
                "INSERT INTO done VALUES (?, 1) ON CONFLICT DO UPDATE SET asked = asked + 1", (key,)
            )

    def asked(self) -> Counter[str]:
        """How often each effect was asked for; one that is there was done once."""
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            return Counter(dict(db.execute("SELECT key, asked FROM done")))


class Charge(msgspec.Struct):
    key: str
    lines: list[str]


def make_app(store: str | Store, ledger: Ledger, point: Callable[[], None]) -> App:
    """The app of the workers and the tests. `point` is called before and after each effect."""
    app = App(store, lease_s=0.6, heartbeat_s=0.1, leader_s=1.0, max_attempts=1000, poll_s=0.1)
    again = RetryPolicy(base_s=0.0, cap_s=0.0)

    async def effect(key: str) -> None:
        point()
        await asyncio.to_thread(ledger.do, key)
        point()

    async def take_payment(order: str, *, key: str) -> Charge:
        await effect(f"charge {key}")
        return Charge(key=key, lines=[f"{order}/{number}" for number in range(3)])

    @app.job(queue="lines", retry=again)
    async def ship_line(ctx: Context, line: str) -> str:
        await ctx.step("ship", effect, f"ship {line} {ctx.effect_key}")
        return line

    @app.job(queue="orders", retry=again)
    async def fulfil(ctx: Context, order: str) -> int:
        charge = await ctx.step("charge", take_payment, order, key=ctx.effect_key)
        await ctx.sleep("cooling off", seconds=0.05)
        if not await ctx.wait_for("approved", bool, timeout=60):
            return -1
        sent = await ctx.map("lines", ship_line, charge.lines)
        async for page in ctx.cursor("pages", _pages):
            ctx.log(f"page {page}")
        await ctx.step("mail", effect, f"mail {ctx.effect_key}")
        return len(sent)

    return app


async def _pages(position: int | None) -> tuple[int, int] | None:
    number = (position or 0) + 1
    return None if number > 2 else (number, number)


class Points:
    """Kills this process at the point with this number."""

    def __init__(self, number: int) -> None:
        self._left = number

    def reach(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class Watched:
    """A store each of whose calls has a point before it and one after it."""

    def __init__(self, real: Store, points: Points) -> None:
        self._real = real
        self._points = points

    @property
    def capabilities(self) -> Capabilities:
        return self._real.capabilities

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._real, verb)
        if verb not in COUNTED:
            return call

        async def counted(*args: Any, **kwargs: Any) -> Any:
            # A claim is a point only if it gives a job: idle ones come in no certain number.
            if verb != "claim":
                self._points.reach()
            answer = await call(*args, **kwargs)
            if verb != "claim" or answer:
                self._points.reach()
            return answer

        return counted


def start(url: str, ledger: Path, point: int = -1) -> subprocess.Popen[bytes]:
    """A worker process; it kills itself at this point, -1: never."""
    command = [sys.executable, "-m", "tests.chaos.orders", url, str(ledger), str(point)]
    return subprocess.Popen(command, cwd=ROOT)


async def _work(url: str, ledger: Path, number: int) -> None:
    points = Points(number)
    store = cast(Store, Watched(open_store(url).inner, points))
    worker = Worker(make_app(store, Ledger(ledger), points.reach), concurrency=4)
    with draining(worker.stop):
        await worker.run()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
