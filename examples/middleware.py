"""Middleware wraps every run: timing here, tracing or a database session in your program."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from holdfast import App, Context, Job
from holdfast.middleware import Call

timings: list[tuple[str, bool]] = []


async def timed(ctx: Context, job: Job, call: Call) -> Any:
    started = time.perf_counter()
    try:
        return await call(ctx, job)
    finally:
        timings.append((type(job).__name__, time.perf_counter() - started < 10))


app = App("memory://", middleware=(timed,))


@app.job()
async def greet(ctx: Context, name: str) -> str:
    return f"hello {name}"


async def main() -> None:
    # run_now needs no store: the quickest way to test a handler with its middleware.
    print(await app.run_now(greet(name="Ada")))
    print(timings)


if __name__ == "__main__":
    asyncio.run(main())
