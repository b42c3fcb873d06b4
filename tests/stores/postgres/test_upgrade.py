"""A database of format 16, the last one with packs and pieces, becomes one like a new one. On the
way it has format 17, with tables of ready and due jobs.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast.core.errors import SchemaTooOld
from holdfast.core.job import Completed, State
from holdfast.core.lifecycle import decide
from holdfast.store import Claim, Ref
from holdfast.stores.postgres.layout import SCHEMA_VERSION
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import ACME, LEASE, finding, job

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

FORMAT_16 = "8900346"
"""The last commit with `migrations/`."""
FOLDER = "src/holdfast/stores/postgres/migrations"
ROOT = Path(__file__).parents[3]
HOUR_US = 3_600_000_000
RULES = '{"keep_us":86400000000}'


def git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True
    ).stdout


def migrations() -> list[str]:
    """The SQL files of format 16; without the history of the project the test is skipped."""
    try:
        names = git("ls-tree", "--name-only", f"{FORMAT_16}:{FOLDER}").split()
        return [git("show", f"{FORMAT_16}:{FOLDER}/{name}") for name in sorted(names)]
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"there is no git history with commit {FORMAT_16}")


class Old:
    """A schema of format 16, filled by its own functions."""

    def __init__(self, connection: Any, schema: str, url: str) -> None:
        self.connection, self.schema, self.url = connection, schema, url

    async def value(self, statement: str, *values: Any) -> Any:
        return await self.connection.fetchval(self._named(statement), *values)

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        return list(await self.connection.fetch(self._named(statement), *values))

    def _named(self, statement: str) -> str:
        return statement.replace("holdfast.", f'"{self.schema}".')

    async def make(self) -> None:
        await self.connection.execute(f'CREATE SCHEMA "{self.schema}"')
        await self.connection.execute(
            self._named("CREATE TABLE holdfast.schema_version (version integer PRIMARY KEY)")
        )
        for number, text in enumerate(migrations(), 1):
            await self.connection.execute(self._named(text))
            await self.value("INSERT INTO holdfast.schema_version VALUES ($1)", number)

    async def pack(self, queue: str, ids: list[str]) -> None:
        bodies = [f'"{id}"'.encode() for id in ids]
        values = (ACME, queue, "send", "json", 1, RULES, 0, 3, 24 * HOUR_US, ids, bodies)
        numbers = ", ".join(f"${n}" for n in range(1, 12))
        statement = f"SELECT * FROM holdfast.enqueue_pack({numbers}, NULL, true, NULL, NULL, true)"
        assert await self.rows(statement, *values) == []

    async def row(self, queue: str, id: str, delay: int | None = None) -> None:
        statement = (
            "SELECT * FROM holdfast.enqueue(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY['send'],"
            " ARRAY['json'], ARRAY[1], ARRAY[$4::bytea], ARRAY[$5], ARRAY[0::bigint],"
            " ARRAY[$6::bigint], NULL, NULL, ARRAY['key-' || $2], NULL, NULL, NULL, NULL,"
            " ARRAY[3], ARRAY[$7::bigint], NULL, true, NULL, NULL)"
        )
        values = (ACME, id, queue, b"1", RULES, delay, 24 * HOUR_US)
        assert await self.rows(statement, *values) == []

    async def claim(self, queue: str, number: int, nonce: str) -> list[Any]:
        return await self.rows(
            "SELECT * FROM holdfast.claim('w', $1, $2, $3, NULL, ARRAY[$4], '{}', NULL, false,"
            " true, NULL, 200, 2, 8, 60000000)",
            nonce, number, LEASE, queue,
        )  # fmt: skip

    async def complete(self, seqs: list[int], ids: list[str], nonce: str) -> None:
        tokens = [f"{nonce}.{seq}" for seq in seqs]
        await self.rows(
            "SELECT * FROM holdfast.complete($1, $2, $3, $4, NULL, NULL, true, NULL, '')",
            seqs, tokens, [ACME] * len(seqs), ids,
        )  # fmt: skip


@pytest.fixture
async def old(server: Postgres) -> AsyncIterator[Old]:
    url = server.fresh("old")
    connection = await asyncpg.connect(server.url)
    old = Old(connection, url.rpartition("=")[2], url)
    await old.make()
    yield old
    await connection.close()


def dumped(server: Postgres, schema: str) -> str:
    """The schema as pg_dump writes it, without its name and the words of this run."""
    program = server.programs / "pg_dump"
    words = [str(program), "--schema-only", f"--schema={schema}", server.admin_url]
    found = subprocess.run(
        words, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout
    lines = [
        line
        for line in found.replace(schema, "holdfast").splitlines()
        if line and not line.startswith(("--", "\\restrict", "\\unrestrict"))
    ]
    # From 18 on a NOT NULL has a name, which a table keeps when it is renamed.
    return re.sub(r"CONSTRAINT \w+_not_null NOT NULL", "NOT NULL", "\n".join(lines))


async def test_an_upgraded_schema_equals_a_new_one(server: Postgres, old: Old) -> None:
    """P15: tables, columns, indexes, types, views and functions."""
    new = server.fresh("new")
    for url in (old.url, new):
        store = PostgresStore.from_url(url)
        assert await store.migrate() == SCHEMA_VERSION
        await store.close()

    upgraded = await asyncio.to_thread(dumped, server, old.schema)
    fresh = await asyncio.to_thread(dumped, server, new.rpartition("=")[2])
    assert sorted(upgraded.splitlines()) == sorted(fresh.splitlines())
    assert upgraded == fresh


async def test_jobs_of_every_state_survive_the_upgrade(old: Old) -> None:
    """P1, P2: those in rows, in packs, leased from packs; with their keys, leases and events."""
    waits = [f"wait-made-{n:03}" for n in range(20)]
    holds = [f"hold-made-{n:03}" for n in range(20)]
    await old.pack("waiting", waits)
    await old.pack("held", holds)
    whole = await old.claim("held", 12, "n")
    seqs = [seq for one in whole for seq in range(one["seq"], one["seq"] + len(one["ids"]))]
    await old.complete(seqs[:5], holds[:5], "n")
    await old.row("plain", "row")
    await old.row("plain", "later", HOUR_US)

    with pytest.raises(SchemaTooOld, match="holdfast migrate"):
        await PostgresStore.from_url(old.url.replace("migrate=auto&", "")).open()
    store = PostgresStore.from_url(old.url)
    await store.open()

    page = await store.find(finding(limit=100))
    states = {one.id: one.state for one in page.jobs}
    assert states == {
        **dict.fromkeys(waits, State.ENQUEUED),
        **dict.fromkeys(holds[:5], State.COMPLETED),
        **dict.fromkeys(holds[5:12], State.PROCESSING),
        **dict.fromkeys(holds[12:], State.ENQUEUED),
        "row": State.ENQUEUED,
        "later": State.SCHEDULED,
    }
    assert {one.id: one.envelope.body for one in page.jobs}[waits[3]] == f'"{waits[3]}"'.encode()
    tallies = {one.queue: one.counts for one in await store.count(ACME)}
    assert {one.queue: one.counts for one in await store.count(ACME, recount=True)} == tallies
    for id in (waits[7], holds[2], "row"):
        kinds = [one.kind.value for one in (await store.events(ACME, 0, 100, id)).events]
        assert kinds[0] == "enqueued"
        assert len(kinds) == (3 if id == holds[2] else 1)

    records = {one.id: one for one in page.jobs}
    acked = await store.ack(
        [
            decide(Completed(), records[id], f"n.{seq}", 0.0)
            for seq, id in zip(seqs[5:8], holds[5:8], strict=True)
        ]
    )
    assert [one.error for one in acked] == [None] * 3
    assert [one.canceled for one in await store.cancel([Ref(ACME, waits[0])])] == [True]
    assert not (await store.enqueue([job("row", queue="plain")]))[0].created
    assert not (await store.enqueue([job("new", queue="plain", key="key-row")]))[0].created
    leases = await store.claim(
        Claim(worker="w", nonce="m", limit=100, lease_us=LEASE, queues=("waiting", "held"))
    )
    assert sorted(one.job.id for one in leases) == sorted([*waits[1:], *holds[12:]])
    created = (await store.enqueue([job("after")]))[0]
    assert created.created
    await store.close()


async def test_other_functions_are_replaced_by_who_migrates(server: Postgres) -> None:
    """P15: who opens a schema with the functions of another program says what to do."""
    url = server.fresh("functions")
    store = PostgresStore.from_url(url)
    await store.migrate()
    connection = await asyncpg.connect(server.url)
    schema = url.rpartition("=")[2]
    await connection.execute(f"UPDATE {schema}.store_state SET functions = 'other'")
    await connection.execute(
        f"CREATE FUNCTION {schema}.left_over() RETURNS void LANGUAGE sql AS ''"
    )

    with pytest.raises(SchemaTooOld, match="functions other"):
        await PostgresStore.from_url(url.replace("migrate=auto&", "")).open()
    await asyncio.gather(*(PostgresStore.from_url(url).migrate() for _ in range(4)))

    plain = PostgresStore.from_url(url.replace("migrate=auto&", ""))
    await plain.open()
    await plain.close()
    gone = await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'left_over'")
    await connection.close()
    assert gone == 0
