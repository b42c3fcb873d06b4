"""A schema without journals, and one with edges in a table of their own, become like a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.stores.postgres.row_jobs import complete, exact, take
from tests.stores.postgres.test_postgres_journal import done_step, write

from holdfast.core.job import Abandoned, State
from holdfast.core.journal import Edge, EntryKind, Join, OnFailure, join_of
from holdfast.core.lifecycle import decide
from holdfast.store import Find, Ref, Selection
from holdfast.stores.postgres import schema
from holdfast.stores.postgres.layout import SCHEMA_VERSION
from holdfast.stores.postgres.migrate import named
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, finding
from holdfast.testing.contract.joins import node

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

TABLES = "CREATE TABLE holdfast.schema_version (version integer PRIMARY KEY)"
JOB = (
    "INSERT INTO holdfast.jobs (seq, tenant, id, queue, type, codec, version, payload, rules,"
    " priority, run_at, state, created_at, updated_at, max_attempts, keep_us, size{more}) VALUES"
    " ({seq}, 'acme', '{id}', 'mail', 'send', 'json', 1, '{{}}', '{{}}', 0, 0,"
    " '{state}', 0, 0, 3, 0, 2{values})"
)
DELTA = (
    "INSERT INTO holdfast.deltas (tenant, queue, enqueued, waiting, bytes, head_rank, head_seq)"
    " VALUES ('acme', 'mail', {enqueued}, {waiting}, {bytes}, 0, 1)"
)
ENDED = (
    "INSERT INTO holdfast.history (seq, priority, run_at, created_at, updated_at, finished_at,"
    " keep_until, keep_us, version, attempt, max_attempts, fence, lapses, misses, size, state,"
    " tenant, id, queue, type, codec, rules, edges) VALUES (9, 0, 0, 0, 0, 0, 86400000000,"
    " 86400000000, 1, 1, 3, 1, 0, 0, 2, 'completed', 'acme', 'ended', 'mail', 'send', 'json',"
    " '{}', 3)"
)
EDGES = (
    "INSERT INTO holdfast.edges (seq, number, target, name, on_failure) VALUES"
    " (1, 0, 'child', '', 'run'), (1, 1, 'nobody', 'pages', 'skip'), (9, 0, 'nobody', '', 'fail'),"
    " (9, 1, 'child', '', 'fail'), (9, 2, 'child', 'all', 'run')"
)
WAITS = {"more": ", gate, awaits, journal", "values": ", 4, 'join:', '[1,0,1,0]'"}


class Old:
    """A schema of an older version, and a store that was not opened on it yet."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self.store = PostgresStore.from_url(server.fresh("old"), ManualClock())

    async def make(self, version: int, *jobs: str) -> PostgresStore:
        connection: Any = await asyncpg.connect(self._server.url)
        texts = [text for number, text in schema.schema_files() if number <= version]
        noted = f"INSERT INTO holdfast.schema_version VALUES ({version})"
        await connection.execute(f'CREATE SCHEMA "{self.store.options.schema}"')
        for text in (TABLES, *texts, noted, *jobs):
            await connection.execute(named(text, self.store.options))
        await connection.close()
        assert await self.store.migrate() == SCHEMA_VERSION
        await self.store.open()
        return self.store


@pytest.fixture
async def old(server: Postgres) -> AsyncIterator[Old]:
    old = Old(server)
    yield old
    await old.store.close()


async def test_jobs_of_a_version_without_journals_remember_and_await_others(old: Old) -> None:
    """P15, P16: after the upgrade they are like all others."""
    job = JOB.format(seq="nextval('holdfast.seqs')", id="old", state="enqueued", more="", values="")
    store = await old.make(20, job, DELTA.format(enqueued=1, waiting=0, bytes=2))

    [lease] = await take(store, 1)
    assert (lease.job.id, lease.journal) == ("old", ())
    assert (await write(store, lease, done_step("s"))).error is None
    await store.ack([decide(Abandoned(), lease.job, lease.token, 0.0)])
    await store.enqueue([node("p", "c"), node("c", after=1)])
    leases = await take(store, 10)

    assert {each.job.id: len(each.journal) for each in leases} == {"old": 1, "p": 0}
    await complete(store, leases)
    assert [each.job.id for each in await take(store, 10)] == ["c"]


async def test_edges_and_joins_of_a_version_with_tables_of_them_are_kept(old: Old) -> None:
    """P1, P17: of jobs that live, that have ended, and whose edges were followed in part."""
    store = await old.make(
        21,
        JOB.format(seq=1, id="a", state="enqueued", more=", edges", values=", 2"),
        JOB.format(seq=2, id="child", state="waiting", **WAITS),
        "INSERT INTO holdfast.joins (seq, at, total, due, name) VALUES (2, 0, 3, 2, ''),"
        " (2, 0, 1, 1, 'all')",
        ENDED,
        EDGES,
        "INSERT INTO holdfast.releasing VALUES (9, 3, 1, 'acme', 'ended', 'completed')",
        "SELECT setval('holdfast.seqs', 10)",
        DELTA.format(enqueued=1, waiting=1, bytes=4),
        "INSERT INTO holdfast.deltas (tenant, queue, completed) VALUES ('acme', 'mail', 1)",
    )
    find = Find(select=Selection(tenant=ACME), journals=True)
    found = (await store.find(find)).journals
    assert found[Ref(ACME, "a")].edges == (
        Edge("child", "", OnFailure.RUN),
        Edge("nobody", "pages", OnFailure.SKIP),
    )
    assert [edge.target for edge in found[Ref(ACME, "ended")].edges] == ["nobody", "child", "child"]
    joins = {each.name: join_of(each) for each in found[Ref(ACME, "child")].entries}
    assert joins == {"": Join(3, 2), "all": Join(1, 1)}
    assert {each.kind for each in found[Ref(ACME, "child")].entries} == {EntryKind.JOIN}

    await complete(store, await take(store, 10))

    [child] = await take(store, 10)
    assert {each.name: join_of(each) for each in child.journal} == {
        "": Join(3, 0),
        "all": Join(1, 0),
    }
    await complete(store, [child])
    assert {each.state for each in (await store.find(finding())).jobs} == {State.COMPLETED}
    await exact(store)
