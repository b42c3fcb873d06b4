"""A client and a worker in processes of their own, which tell how much memory they took.

`python -m tests.payload.stream base|client|worker STORE BUCKET FILE`
"""

from __future__ import annotations

import asyncio
import hashlib
import resource
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from holdfast import App, BlobRef, Context
from holdfast.worker import Worker

TENANT = "acme"


def the_app(store: str, bucket: str) -> App:
    app = App(store, blobs=bucket, concurrency=1)

    @app.job
    async def digest(ctx: Context, ref: BlobRef) -> BlobRef:
        """Reads all of it, and writes a blob of the same size."""
        sha = hashlib.sha256()

        async def passed() -> AsyncIterator[bytes]:
            async for chunk in ctx.blobs.read(ref):
                sha.update(chunk)
                yield chunk

        made = await ctx.blobs.put(passed())
        assert made.sha256 == sha.hexdigest() == ref.sha256
        return made

    return app


async def client(app: App, file: Path) -> None:
    job_type = app.registry.named("digest")
    assert job_type is not None
    async with app:
        acme = app.tenant(TENANT)
        ref = await acme.blobs.put(file)
        job = await acme.enqueue(job_type.kind(ref=ref), id="j")
        made = await acme.wait(job.id, as_=BlobRef, timeout=120)
        await acme.blobs.read_to(made, file.with_suffix(".copy"))


async def worker(app: App) -> None:
    running = Worker(app)
    app.subscribe(lambda _: running.stop())
    await running.run()


async def base(app: App) -> None:
    """What both do, with a blob of one byte."""
    async with app:
        acme = app.tenant(TENANT)
        ref = await acme.blobs.put(b"1")
        assert await acme.blobs.read_bytes(ref) == b"1"
        running = Worker(app)
        running.stop()
        await running.run()


def most() -> int:
    """The most memory of this process, in bytes. On Linux `ru_maxrss` begins with the memory of the
    process that forked it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    what, store, bucket, file = sys.argv[1:]
    app = the_app(store, bucket)
    works: dict[str, Callable[[], Coroutine[Any, Any, None]]]
    works = {"base": lambda: base(app), "client": lambda: client(app, Path(file)),
             "worker": lambda: worker(app)}  # fmt: skip
    asyncio.run(works[what]())
    print(most())


if __name__ == "__main__":
    main()
