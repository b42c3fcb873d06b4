"""dramatiq on Redis: one actor and one queue per type, its threads on one core."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import dramatiq  # type: ignore[import-not-found,unused-ignore]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found,unused-ignore]
from dramatiq.middleware import (  # type: ignore[import-not-found,unused-ignore]
    AgeLimit,
    Retries,
    ShutdownNotifications,
    TimeLimit,
)

from bench.mix.child import Given, Notes, on_one_core, serve
from bench.mix.jobs import TYPES, MixJob


class Dramatiq:
    blocking = True

    def __init__(self, given: Given, notes: Notes) -> None:
        parts = urlsplit(given.url)
        self._broker = RedisBroker(
            url=urlunsplit((*parts[:3], "", "")),
            namespace=parse_qs(parts.query)["prefix"][0],
            middleware=[AgeLimit(), TimeLimit(), ShutdownNotifications(), Retries()],
        )
        dramatiq.set_broker(self._broker)
        self._threads = given.concurrency
        self._notes = notes
        self._actors = {each: self._actor(each) for each in TYPES}

    def _actor(self, name: str) -> Any:
        def handle(body: dict[str, Any]) -> None:
            self._notes.ran()

        return dramatiq.actor(handle, actor_name=name, queue_name=name)

    async def open(self) -> None:
        logging.basicConfig(level=logging.ERROR)

    async def prepare(self) -> None:
        pass

    def enqueue(self, job: MixJob) -> None:
        self._actors[job.type].send(job.body())

    async def start(self) -> None:
        on_one_core()
        self._worker = dramatiq.Worker(self._broker, worker_threads=self._threads)
        self._worker.start()


if __name__ == "__main__":
    serve(Dramatiq, asyncio.run)
