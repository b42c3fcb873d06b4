"""saq on Redis: its worker serves one queue, so the five types are five functions of one queue."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import orjson  # type: ignore[import-not-found,unused-ignore]
from saq import Job, Queue, Worker  # type: ignore[import-not-found,unused-ignore]

from bench.mix.child import Given, Notes, on_uvloop, serve
from bench.mix.jobs import TYPES, MixJob

NO_RESULT = -1


class Saq:
    blocking = False

    def __init__(self, given: Given, notes: Notes) -> None:
        parts = urlsplit(given.url)
        self._queue = Queue.from_url(
            urlunsplit((*parts[:3], "", "")),
            name=parse_qs(parts.query)["prefix"][0],
            dump=orjson.dumps,
            load=orjson.loads,
        )
        self._concurrency = given.concurrency
        self._notes = notes

    async def open(self) -> None:
        logging.basicConfig(level=logging.ERROR)
        await self._queue.connect()

    async def prepare(self) -> None:
        pass

    async def enqueue(self, job: MixJob) -> None:
        await self._queue.enqueue(Job(job.type, kwargs={"body": job.body()}, ttl=NO_RESULT))

    async def start(self) -> None:
        async def handle(ctx: Any, *, body: dict[str, Any]) -> None:
            self._notes.ran()

        functions = [(each, handle) for each in TYPES]
        self._worker = Worker(self._queue, functions, concurrency=self._concurrency)
        self._working = asyncio.create_task(self._worker.start())


if __name__ == "__main__":
    serve(Saq, on_uvloop)
