"""Apps on stores whose databases also have the tables of the handlers."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.servers.kinds import Missing

from holdfast import App
from holdfast.testing import ManualClock

if TYPE_CHECKING:
    from tests.servers.kinds import Servers

TABLES = (
    "CREATE TABLE accounts (id integer PRIMARY KEY, cents bigint NOT NULL, fence bigint)",
    "INSERT INTO accounts (id, cents) VALUES (1, 100), (2, 0)",
    "CREATE TABLE late (parent integer, FOREIGN KEY (parent) REFERENCES accounts (id)"
    " DEFERRABLE INITIALLY DEFERRED)",
)
DROPS = ("DROP TABLE IF EXISTS late", "DROP TABLE IF EXISTS accounts")


class Place:
    """A database with a store and two tables. The clock is the store's."""

    def __init__(self, url: str, dsn: str) -> None:
        self.url, self.dsn = url, dsn
        self.is_sqlite = url.startswith("sqlite")
        self.clock = ManualClock()
        self.app = App(url, clock=self.clock, max_attempts=2)
        self.mark = "?" if self.is_sqlite else "%s"

    def connect(self) -> Any:
        """A blocking connection of the plain driver."""
        return sqlite3.connect(self.dsn) if self.is_sqlite else psycopg.connect(self.dsn)

    def run(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def cents(self) -> list[int]:
        with closing(self.connect()) as connection:
            found = connection.execute("SELECT cents FROM accounts ORDER BY id").fetchall()
        return [row[0] for row in found]


@pytest.fixture(params=["sqlite", "postgres15"])
def where(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path
) -> Iterator[Callable[[], Place]]:
    """Makes the place; on its own, for tests without an event loop."""
    if request.param == "sqlite":
        path = f"{tmp_path}/jobs.db"
        yield lambda: Place(f"sqlite:///{path}", path)
        return
    try:
        server = servers.get(request.param)
    except Missing as missing:
        missing.end_test()
    yield lambda: Place(server.fresh("effects"), server.url)
    server.clear()


@pytest.fixture
async def place(where: Callable[[], Place]) -> AsyncIterator[Place]:
    place = where()
    async with place.app:
        place.run(*DROPS, *TABLES)
        yield place
        place.run(*DROPS)
