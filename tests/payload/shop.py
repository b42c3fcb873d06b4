"""An app on SQLite with a folder of blobs, for tests of offloading."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from holdfast import App, BlobRef, Context, SyncContext
from holdfast.payload.bucket import Bucket

LARGE = "x" * 300_000
ROW_MAX = 2048


of_module = App("memory://")


@of_module.job(cpu=True)
def measured(ctx: Context, text: str) -> int:
    """A child process imports it."""
    return len(text)


class Shop:
    """An app on SQLite with a folder of blobs."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/jobs.db"
        self.app = App(self.url, blobs=f"file://{folder}/blobs", **settings)
        self.acme = self.app.tenant("acme")
        self.ran: list[str] = []

        @self.app.job
        async def echo(ctx: Context, text: str = "", size: int = 0, n: int = 0) -> str:
            self.ran.append(ctx.job_id)
            return text if size == 0 else "y" * size

        @self.app.job(max_attempts=2, retry="brisk")
        async def steps(ctx: Context, size: int) -> int:
            text = await ctx.step("large", lambda: "s" * size)
            if ctx.attempt == 1:
                raise RuntimeError("again")
            return len(text)

        @self.app.job(max_attempts=2, retry="brisk")
        def sync_steps(ctx: SyncContext, size: int) -> int:
            text = ctx.step("large", lambda: "s" * size)
            if ctx.attempt == 1:
                raise RuntimeError("again")
            return len(text)

        @self.app.job
        async def copy(ctx: Context, ref: BlobRef) -> BlobRef:
            return await ctx.blobs.put(ctx.blobs.read(ref))

        @self.app.job
        def sync_copy(ctx: SyncContext, ref: BlobRef) -> BlobRef:
            return ctx.blobs.put(ctx.blobs.read(ref))

        @self.app.job
        async def spread(ctx: Context, number: int, size: int) -> list[int]:
            made = await ctx.map("all", echo, [echo(size=size, n=n) for n in range(number)])
            return [len(each) for each in made]

        self.echo, self.steps, self.sync_steps = echo, steps, sync_steps
        self.copy, self.sync_copy, self.spread = copy, sync_copy, spread
        self.app.registry.add(of_module.registry.of_kind(measured.kind))

    @property
    def bucket(self) -> Bucket:
        assert self.app.app_blobs is not None
        return self.app.app_blobs.bucket

    def row(self, id: str) -> int:
        """The bytes of all columns of a job's row."""
        with sqlite3.connect(self.folder / "jobs.db") as database:
            [row] = database.execute("SELECT * FROM jobs WHERE id = ?", (id,)).fetchall()
        return sum(len(each) if isinstance(each, str | bytes) else 8 for each in row)

    async def files(self) -> list[str]:
        return [one.path async for page in self.bucket.under("blobs", 100) for one in page]
