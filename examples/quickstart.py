"""The whole path in one file: define a job, enqueue it, run a worker, get the result."""

from __future__ import annotations

import asyncio
import tempfile

from holdfast import App, Context
from holdfast.worker import Worker

folder = tempfile.TemporaryDirectory()
app = App(f"sqlite:///{folder.name}/jobs.db")


@app.job(queue="mail", max_attempts=5, timeout=30)
async def send_email(ctx: Context, to: str, subject: str) -> str:
    ctx.logger.info("attempt %s", ctx.attempt)
    return f"sent {subject!r} to {to}"


async def main() -> None:
    async with app:
        worker = Worker(app)
        working = asyncio.create_task(worker.run())

        acme = app.tenant("acme")
        job = await acme.enqueue(send_email(to="ada@example.com", subject="hello"), key="hello:ada")
        again = await acme.enqueue(send_email(to="ada@example.com", subject="hi"), key="hello:ada")
        print("created", job.created, "then", again.created, "same job", job.id == again.id)
        print(await acme.wait(job.id))

        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
    folder.cleanup()
