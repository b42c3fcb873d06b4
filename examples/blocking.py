"""Blocking code, such as a Flask or Django view: `app.sync` has the same calls without await."""

from __future__ import annotations

import asyncio
import threading

from holdfast import App, Context
from holdfast.worker import Worker

app = App("memory://")


@app.job()
def resize(ctx: Context, width: int) -> int:
    """A plain function: it runs in a thread of the worker."""
    return width * 2


def view(width: int, answers: list[int]) -> None:
    """What a request handler would do, in whatever thread it runs."""
    acme = app.sync.tenant("acme")
    job = acme.enqueue(resize(width=width))
    answers.append(acme.wait(job.id, timeout=10))


async def work(until: threading.Event) -> None:
    worker = Worker(app)
    working = asyncio.create_task(worker.run())
    await asyncio.to_thread(until.wait)
    worker.stop()
    await working


def main() -> None:
    done = threading.Event()
    answers: list[int] = []
    with app.sync:
        worker = threading.Thread(target=lambda: asyncio.run(work(done)))
        worker.start()
        views = [threading.Thread(target=view, args=(width, answers)) for width in (1, 2, 3)]
        for thread in views:
            thread.start()
        for thread in views:
            thread.join()
        done.set()
        worker.join()
    print(sorted(answers))


if __name__ == "__main__":
    main()
