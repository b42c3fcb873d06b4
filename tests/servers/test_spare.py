"""A schema that serves again is exactly like a new one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from tests.servers.hands import has_words, installed
from tests.servers.kinds import KINDS, Servers
from tests.servers.postgres import Postgres
from tests.servers.spare import KEPT_BYTES

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed
from holdfast.core.rate import Rate
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import tenant_of

POSTGRES = [kind for kind in KINDS if kind.startswith("postgres")]
KEPT = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = %s"


@pytest.fixture(params=POSTGRES)
def server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Postgres]:
    installed(request.param)
    server = servers.get(request.param)
    assert isinstance(server, Postgres)
    yield server
    server.clear()


def schema_of(url: str) -> str:
    return url.rpartition("=")[2]


def content(server: Postgres, url: str) -> tuple[dict[str, list[str]], list[datetime]]:
    """Every row of every table and every sequence, and apart from them the moments in them."""
    rows: dict[str, list[str]] = {}
    moments: list[datetime] = []
    with server.connect() as connection:
        for kind, columns in (("r", "*"), ("S", "last_value, is_called")):
            for (name,) in connection.execute(KEPT, [schema_of(url), kind]).fetchall():
                query: Any = f'SELECT {columns} FROM "{schema_of(url)}"."{name}"'
                found = connection.execute(query).fetchall()
                moments += [each for row in found for each in row if isinstance(each, datetime)]
                rows[str(name)] = sorted(
                    str([each for each in row if not isinstance(each, datetime)]) for row in found
                )
    return rows, moments


async def opened(url: str) -> Bench:
    clock = ManualClock()
    bench = Bench(lambda: open_store(url, clock), clock)
    await bench.open()
    return bench


async def use(url: str) -> None:
    """Leaves rows in many tables, in one of them more than are deleted one by one."""
    bench = await opened(url)
    await bench.configure(tenant_of(), rate=Rate(1000, SECOND, 1000), max_running=50)
    await bench.put(*(f"job-{n}" for n in range(100)), body=b"x" * 1000)
    await bench.put("grouped", group="crawl")
    done, failed = await bench.claim(2)
    await bench.end(done, Completed())
    await bench.cancel("job-70")
    await bench.upkeep()
    assert failed
    await bench.close()


async def test_a_schema_that_serves_again_is_like_a_new_one(server: Postgres) -> None:
    """Row by row and sequence by sequence; its moments are not those of its first making."""
    first = server.lend()
    await use(first)
    used, _ = content(server, first)
    server.clear()
    before = _now(server)

    again, new = server.lend(), server.fresh()
    for url in (again, new):
        await (await opened(url)).close()

    assert again == first
    found, moments = content(server, again)
    expected, others = content(server, new)
    assert found == expected
    assert len(moments) == len(others)
    assert all(moment >= before for moment in moments)
    assert sum(used[name] != expected[name] for name in expected) >= 6
    assert sum(map(len, used["jobs"])) > KEPT_BYTES


async def test_a_schema_with_an_open_transaction_does_not_serve_again(server: Postgres) -> None:
    """Who left it open may still write; the schema goes, and so does the transaction."""
    url = server.lend()
    await (await opened(url)).close()
    table: Any = f'"{schema_of(url)}".jobs'
    with psycopg.connect(server.url) as forgotten:
        forgotten.execute(psycopg.sql.SQL("SELECT FROM ") + psycopg.sql.SQL(table))

        server.clear()

        assert not has_words(server, url)
        assert server.lend() != url
        with pytest.raises(psycopg.OperationalError):
            forgotten.execute("SELECT")


async def test_a_schema_with_something_more_in_it_does_not_serve_again(server: Postgres) -> None:
    """A test that changes the layout spoils no other."""
    url = server.lend()
    await (await opened(url)).close()
    with server.connect() as connection:
        more: Any = f'CREATE TABLE "{schema_of(url)}".more (word text)'
        connection.execute(more)

    server.clear()

    assert not has_words(server, url)
    assert server.lend() != url


def _now(server: Postgres) -> Any:
    with server.connect() as connection:
        row = connection.execute("SELECT now()").fetchone()
    assert row is not None
    return row[0]
