"""The app that the worker tests start: its handlers tell by files what they do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import App, Context, RetryPolicy
from holdfast.core.retry import Backoff, Jitter

app = App("memory://", retry=RetryPolicy(kind=Backoff.FIXED, base_s=0.05, jitter=Jitter.NONE))
other = App("memory://")
number = 42

LOOKS_MAX = 12_000


@app.job()
async def greet(ctx: Context, name: str, times: int = 1) -> str:
    return f"hello {name}" * times


@app.job()
async def fail(ctx: Context) -> None:
    raise ValueError("no good")


@app.job()
async def hold(ctx: Context, started: str, release: str) -> str:
    """Says that it runs, then waits until it is released."""
    _touch(started)
    for _ in range(LOOKS_MAX):
        if _is_there(release):
            return "released"
        await asyncio.sleep(0.01)
    raise TimeoutError("nobody released it")


def _touch(path: str) -> None:
    Path(path).touch()


def _is_there(path: str) -> bool:
    return Path(path).exists()
