"""Versions: who works on a schema that it was not written for stops, and files are brought up."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.clock import SECOND, SystemClock
from holdfast.errors import ConfigError, SchemaTooNew, SchemaTooOld
from holdfast.finding import Level
from holdfast.job import Completed, EventKind, State
from holdfast.lifecycle import decide
from holdfast.scope import Scope, ScopeKind, ScopeSettings, encode
from holdfast.store import Claim, Put, Ref, Take, Watch
from holdfast.stores.sql_rows import rules_text
from holdfast.stores.sqlite.doctor import examine
from holdfast.stores.sqlite.layout import APPLICATION_ID, SCHEMA_VERSION
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, finding, job, rules

pack = msgspec.msgpack.encode


def claim(limit: int = 1, nonce: str = "n") -> Claim:
    return Claim(worker="w", nonce=nonce, limit=limit, lease_us=LEASE)


def set_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


VERBS: dict[str, Callable[[SqliteStore], Awaitable[Any]]] = {
    "enqueue": lambda store: store.enqueue([job("a")]),
    "claim": lambda store: store.claim(claim()),
    "cancel": lambda store: store.cancel([Ref(ACME, "a")]),
    "find": lambda store: store.find(finding()),
    "events": lambda store: store.events(None, 0, 10),
    "settings": lambda store: store.settings(under=""),
    "wait": lambda store: store.wait(Watch(), 0.0),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_an_old_process_beside_a_migrated_file_stops(
    store: SqliteStore, path: Path, verb: str
) -> None:
    """P2: it says what to do, instead of empty claims and second leases."""
    set_version(path, SCHEMA_VERSION + 1)

    with pytest.raises(SchemaTooNew) as caught:
        await VERBS[verb](store)

    assert "upgrade holdfast" in str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_process_beside_a_file_put_back_stops(
    store: SqliteStore, path: Path, verb: str
) -> None:
    """P2: a backup of an older schema in the file's place is refused, not misread."""
    set_version(path, SCHEMA_VERSION - 1)

    with pytest.raises(SchemaTooOld) as caught:
        await VERBS[verb](store)

    assert "holdfast migrate" in str(caught.value)


# -- who migrates ----------------------------------------------------------------------------------


def make(path: Path, version: int) -> None:
    """An empty file of an earlier version."""
    folder = resources.files("holdfast.stores.sqlite").joinpath("migrations")
    with closing(sqlite3.connect(path)) as connection:
        for name in ("0001_jobs.sql", "0002_packs.sql")[:version]:
            connection.executescript(folder.joinpath(name).read_text("utf-8"))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")


async def test_an_older_file_is_left_alone_where_that_is_asked_for(path: Path) -> None:
    """P15: `migrate=never` refuses at open; `migrate()` brings it up all the same."""
    make(path, 2)
    store = SqliteStore.from_url(f"sqlite:///{path}?migrate=never")

    with pytest.raises(SchemaTooOld) as caught:
        await store.open()

    assert caught.value.facts["found"] == 2
    assert await store.migrate() == SCHEMA_VERSION
    await store.open()
    assert (await store.enqueue([job("a")]))[0].created
    await store.close()


async def test_a_missing_file_is_not_made_where_nothing_may_be_migrated(path: Path) -> None:
    """P15: nothing is left behind."""
    with pytest.raises(SchemaTooOld):
        await SqliteStore.from_url(f"sqlite:///{path}?migrate=never").open()

    assert list(path.parent.iterdir()) == []


def test_how_to_migrate_is_one_of_two() -> None:
    """P15: the error names the option and what it may be."""
    with pytest.raises(ConfigError) as caught:
        SqliteStore.from_url("sqlite:///a.db?migrate=yes")

    assert "migrate is 'yes', must be auto or never" in str(caught.value)


# -- files of earlier versions ---------------------------------------------------------------------


async def test_a_file_of_the_first_version_is_brought_up(path: Path) -> None:
    """It has no packs, and gets none."""
    make(path, 1)
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    await store.enqueue([job("a")])

    assert [one.job.id for one in await store.claim(claim(10))] == ["a"]
    await store.close()


def head(tenant: str, keep_us: int = 0) -> str:
    own = rules(keep_us=keep_us, max_attempts=1)
    shared = [tenant, "mail", "send", "json", 1, 0, 1, keep_us, rules_text(own)]
    return msgspec.json.encode(shared).decode()


def fill(path: Path) -> None:
    """A file of version 2 with a pack of four, of which one is done and one is held, and posts: of
    ids that are known, of one said twice, of another tenant, and of something that is no post.
    """
    make(path, 2)
    bodies = pack([b"{}"] * 4)
    ids, until = ["p0", "p1", "p2", "p3"], SystemClock().now() + 3600 * SECOND
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE heads SET seq = 4, cursor = 4")
        connection.execute(
            "INSERT INTO packs VALUES (1, 4, 2, 3, 4, ?, 'mail', 'send', 0, 0, 1, 'p0', 'p3')",
            (ACME,),
        )
        connection.execute(
            "INSERT INTO contents VALUES (1, ?, 7, ?, NULL, ?)", (head(ACME), pack(ids), bodies)
        )
        connection.execute(
            "INSERT INTO pieces VALUES (1, 1, 2, 'nonce.', ?, 'w', 8, ?, ?)",
            (until, pack([2, 2]), b"\x01"),
        )
        for tenant, names in ((ACME, ["p2", "a"]), (ACME, ["a", "a"]), (GLOBEX, ["a", "b"])):
            connection.execute(
                "INSERT INTO posted (head, at, size, number, ids, bodies)"
                " VALUES (?, 9, 4, 2, ?, ?)",
                (head(tenant), pack(names), pack([b"{}"] * 2)),
            )
        connection.execute(
            "INSERT INTO posted (head, at, size, number, ids, bodies) VALUES ('', 9, 4, 2, '', '')"
        )


async def test_the_packs_of_an_earlier_version_become_rows(path: Path) -> None:
    """P1, P12, P19: every job once, the held one held; what cannot be read stops nobody."""
    fill(path)
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()

    tallies = {each.tenant: each.counts for each in await store.count(None)}
    page = await store.find(finding(None, newest_first=False))
    leases = await store.claim(claim(10))
    new = await store.events(None, 4, 10)
    found = await examine(store)

    assert tallies == {
        ACME: {State.ENQUEUED: 3, State.PROCESSING: 1},
        GLOBEX: {State.ENQUEUED: 2},
    }
    assert [(each.tenant, each.id) for each in page.jobs] == [
        *((ACME, id) for id in ("p1", "p2", "p3", "a")),
        *((GLOBEX, id) for id in ("a", "b")),
    ]
    assert sorted(one.job.id for one in leases) == ["a", "a", "b", "p2", "p3"]
    told = [(each.tenant, each.job_id) for each in new.events if each.kind is EventKind.ENQUEUED]
    assert told == [(ACME, "a"), (GLOBEX, "a"), (GLOBEX, "b")]
    held = msgspec.structs.replace(page.jobs[0], attempt=1)
    (acked,) = await store.ack([decide(Completed(), held, "nonce.2", 0.0)])
    assert acked.state is State.COMPLETED
    assert [each.level for each in found if each.what == "batches"] == [Level.BAD]
    await store.close()


async def test_limits_and_slots_of_an_earlier_version_hold(path: Path) -> None:
    """P13: what is closed stays closed, and slots are counted for their tenant."""
    queue = Scope(ACME, ScopeKind.QUEUE, "mail")
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    value = encode(ScopeSettings(max_running=1, slots_count=True))
    await store.settings([Put(queue.name, value, 0)])
    await store.hold([Take(queue.slot("s"), "w", 3600 * SECOND)])
    await store.enqueue([job("a", queue="mail")])
    await store.close()
    _take_back(path)

    await store.open()

    assert await store.claim(claim()) == []
    await store.hold([Take(queue.slot("s"), "w", 0)])
    assert len(await store.claim(claim())) == 1
    await store.close()


def _take_back(path: Path) -> None:
    """Undoes the third migration."""
    with closing(sqlite3.connect(path)) as connection:
        for name in ("counts_insert", "counts_line", "counts_slots", "counts_delete"):
            connection.execute(f"DROP TRIGGER {name}")
        for name in ("tenants_turn", "lines_turn", "lines_ring", "lines_out", "counts_idle"):
            connection.execute(f"DROP INDEX {name}")
        connection.execute("DROP INDEX holds_tenant")
        connection.execute("DROP TABLE claims")
        for name in ("ring", "line_count", "queue_count", "group_count", "slot_count"):
            connection.execute(f"ALTER TABLE counts DROP COLUMN {name}")
        connection.execute("ALTER TABLE events DROP COLUMN signed")
        connection.execute("ALTER TABLE holds DROP COLUMN tenant")
        connection.executescript("""
            CREATE INDEX lines_turn ON counts (turn, part)
                WHERE kind = 'queue' AND open = 1 AND enqueued > blocked;
            CREATE INDEX lines_open ON counts (part, turn)
                WHERE kind = 'queue' AND open = 1 AND enqueued > blocked;
            CREATE INDEX counts_idle ON counts (kind) WHERE completed = 0;
        """)
        connection.execute("PRAGMA user_version = 1")
