"""PostgreSQL alone: a server, an app or a store in a schema of its own, plain SQL beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.servers.kinds import KINDS, Missing

from holdfast import App, Context
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock

if TYPE_CHECKING:
    from tests.servers.kinds import Servers
    from tests.servers.postgres import Postgres

Connect = Callable[[], Awaitable[Any]]

POSTGRES = [kind for kind in KINDS if kind.startswith("postgres")]


@pytest.fixture(params=POSTGRES)
def server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Postgres]:
    try:
        server = servers.get(request.param)
    except Missing as missing:
        missing.end_test()
    yield server  # type: ignore[misc]
    server.clear()


class Desk:
    """An app on a schema of its own, with one job type."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.url = server.fresh("desk")
        self.dsn = server.url
        self.schema = self.url.rpartition("=")[2]
        self.app = App(self.url)

        @self.app.job(queue="mail")
        async def send(ctx: Context, to: str) -> str:
            return to

        self.send = send

    async def claimable(self) -> list[str]:
        """The ids of all jobs that wait."""
        page = await self.app.tenant("acme").find(newest_first=False)
        return [job.id for job in page.jobs]


@pytest.fixture
async def desk(server: Postgres) -> AsyncIterator[Desk]:
    desk = Desk(server)
    async with desk.app:
        yield desk


@pytest.fixture
def url(server: Postgres) -> str:
    return server.fresh("own")


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """On a clock that stands still."""
    store = PostgresStore.from_url(url, ManualClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def connect(server: Postgres, store: PostgresStore) -> AsyncIterator[Connect]:
    """Makes connections of somebody else, who works in the same schema."""
    made: list[Any] = []

    async def connect() -> Any:
        made.append(await asyncpg.connect(server.url))
        await made[-1].execute(f'SET search_path = "{store.options.schema}"')
        return made[-1]

    yield connect
    for connection in made:
        await connection.close()
