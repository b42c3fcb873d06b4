"""An app with a lifespan, which tells what it did by files in the folder of SHOP_TOLD."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast import App, Context


def _told() -> Path:
    return Path(os.environ["SHOP_TOLD"])


@contextmanager
def lifespan(app: App) -> Generator[int, None, None]:
    if "SHOP_BROKEN" in os.environ:
        raise ConnectionRefusedError("no database")
    (_told() / f"open-{os.getpid()}").touch(exist_ok=False)
    yield os.getpid()
    (_told() / f"close-{os.getpid()}").touch(exist_ok=False)


app = App("memory://", lifespan=lifespan)


@app.job()
async def greet(ctx: Context[int], name: str) -> int:
    return ctx.state
