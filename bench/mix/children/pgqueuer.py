"""pgqueuer on PostgreSQL: one entry point per type, a pool for its client.

Its cap on jobs in progress is the concurrency. Its batch is its default, or half of the cap where
that is less: the most that it accepts with a cap. BENCH_PGQUEUER=half makes it half of the cap
always; BENCH_PGQUEUER=uncapped makes it the concurrency, and jobs in progress have no bound.
"""

from __future__ import annotations

import asyncio
import os
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import orjson  # type: ignore[import-not-found,unused-ignore]
from pgqueuer import PgQueuer  # type: ignore[import-not-found,unused-ignore]
from pgqueuer.db import (  # type: ignore[import-not-found,unused-ignore]
    AsyncpgDriver,
    AsyncpgPoolDriver,
)
from pgqueuer.queries import Queries  # type: ignore[import-not-found,unused-ignore]

from bench.mix.child import Given, Notes, on_uvloop, serve
from bench.mix.jobs import TYPES, MixJob

CONNECTIONS = 10
BATCH = 10
"""The default of its `run`."""
WAY = os.environ.get("BENCH_PGQUEUER", "")


class Pgqueuer:
    blocking = False

    def __init__(self, given: Given, notes: Notes) -> None:
        parts = urlsplit(given.url)
        self._dsn = urlunsplit((*parts[:3], "", ""))
        self._schema = parse_qs(parts.query)["schema"][0]
        self._concurrency = given.concurrency
        self._notes = notes

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=CONNECTIONS,
            max_size=CONNECTIONS,
            server_settings={"search_path": self._schema},
        )
        self._queries = Queries(AsyncpgPoolDriver(self._pool))

    async def prepare(self) -> None:
        connection = await self._connection()
        await connection.execute(f'CREATE SCHEMA "{self._schema}"')
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def enqueue(self, job: MixJob) -> None:
        await self._queries.enqueue(job.type, orjson.dumps(job.body()))

    async def start(self) -> None:
        worker = PgQueuer(AsyncpgDriver(await self._connection()))
        for each in TYPES:
            worker.entrypoint(each)(self._handle)
        if WAY == "uncapped":
            running = worker.run(batch_size=self._concurrency)
        else:
            half = max(1, self._concurrency // 2)
            running = worker.run(
                batch_size=half if WAY == "half" else min(BATCH, half),
                max_concurrent_tasks=self._concurrency,
            )
        self._working = asyncio.create_task(running)

    async def _handle(self, job: object) -> None:
        orjson.loads(job.payload)  # type: ignore[attr-defined]
        self._notes.ran()

    async def _connection(self) -> asyncpg.Connection:  # type: ignore[type-arg,unused-ignore]
        return await asyncpg.connect(self._dsn, server_settings={"search_path": self._schema})


if __name__ == "__main__":
    serve(Pgqueuer, on_uvloop)
