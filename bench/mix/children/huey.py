"""huey on SQLite: one queue with five tasks, its threads on one core.

With the durability of our store: FULL is its default; it has no setting for NORMAL, so a subclass
of its storage sets that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import parse_qs, urlsplit

from huey import SqliteHuey  # type: ignore[import-not-found,unused-ignore]
from huey.storage import SqliteStorage  # type: ignore[import-not-found,unused-ignore]

from bench.mix.child import Given, Notes, on_one_core, serve
from bench.mix.jobs import TYPES, MixJob

POLL_FIRST_S, POLL_MOST_S = 0.005, 0.05


class NormalStorage(SqliteStorage):  # type: ignore[misc,unused-ignore]
    def _create_connection(self) -> Any:
        connection = super()._create_connection()
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection


class Huey:
    blocking = True

    def __init__(self, given: Given, notes: Notes) -> None:
        parts = urlsplit(given.url)
        full = parse_qs(parts.query).get("synchronous", ["full"])[0] == "full"
        self._huey = SqliteHuey(
            "bench",
            filename=parts.path.removeprefix("/"),
            results=False,
            storage_class=SqliteStorage if full else NormalStorage,
        )
        self._threads = given.concurrency
        self._notes = notes
        self._tasks = {each: self._task(each) for each in TYPES}

    def _task(self, name: str) -> Any:
        def handle(body: dict[str, Any]) -> None:
            self._notes.ran()

        return self._huey.task(name=name)(handle)

    async def open(self) -> None:
        logging.basicConfig(level=logging.ERROR)

    async def prepare(self) -> None:
        pass

    def enqueue(self, job: MixJob) -> None:
        self._tasks[job.type](job.body())

    async def start(self) -> None:
        on_one_core()
        self._consumer = self._huey.create_consumer(
            workers=self._threads,
            periodic=False,
            initial_delay=POLL_FIRST_S,
            max_delay=POLL_MOST_S,
            worker_type="thread",
        )
        self._consumer.start()


if __name__ == "__main__":
    serve(Huey, asyncio.run)
