"""Versions: who works on a schema that it was not written for stops, and files are brought up."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import ConfigError, SchemaTooNew, SchemaTooOld, StoreUnsupported
from holdfast.core.job import Completed
from holdfast.core.journal import Join, join_of
from holdfast.core.lifecycle import decide
from holdfast.core.scope import BlockerKind
from holdfast.core.tiers import Defaults, encode, name_of
from holdfast.store import Claim, Put, Ref, Watch
from holdfast.stores.sqlite.layout import APPLICATION_ID, SCHEMA_VERSION
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, finding, job


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


async def test_an_empty_file_is_left_alone_where_that_is_asked_for(path: Path) -> None:
    """P15: `migrate=never` refuses at open; `migrate()` makes the tables all the same."""
    sqlite3.connect(path).close()
    store = SqliteStore.from_url(f"sqlite:///{path}?migrate=never")

    with pytest.raises(SchemaTooOld) as caught:
        await store.open()

    assert caught.value.facts["found"] == 0
    assert "holdfast migrate" in str(caught.value)
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


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_of_an_earlier_version_is_refused_and_left_as_it_is(
    store: SqliteStore, path: Path, version: int
) -> None:
    """P1: the error says what to do, and no job is lost."""
    await store.enqueue([job("a")])
    await store.close()
    set_version(path, version)

    for act in (store.open, store.migrate):
        with pytest.raises(StoreUnsupported, match="finish its jobs with the version that wrote"):
            await act()

    set_version(path, SCHEMA_VERSION)
    await store.open()
    assert [lease.job.id for lease in await store.claim(claim())] == ["a"]


def make(path: Path, version: int, change: str = "") -> None:
    """Makes a file of an earlier version."""
    script = Path(__file__).parent / f"version_{version}.sql"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script.read_text("utf-8"))
        connection.executescript(change)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    set_version(path, version)


@pytest.mark.parametrize("version", [3, 4, 5, 6])
async def test_a_file_of_a_later_version_is_upgraded(
    tmp_path: Path, store: SqliteStore, version: int
) -> None:
    """P1, P13: its jobs, leases and limits stay, and its tables are those of a new file."""
    path = tmp_path / "old.db"
    make(path, version)
    old = SqliteStore.from_url(f"sqlite:///{path}", ManualClock())
    await old.open()
    try:
        await old.enqueue([job("new", queue="audio")])
        leases = await old.claim(claim(9, "another"))
        (gate,) = (await old.explain(Ref(ACME, "b"))).gates
        await old.settings([Put(name_of(""), encode(Defaults(max_running=4)), 0)])
        await old.enqueue([job(f"n{n}", queue="audio") for n in range(5)])
        more = await old.claim(claim(9, "a third"))
    finally:
        await old.close()

    mine = [lease.job.id for lease in leases if lease.job.tenant != "flows"]
    assert sorted(mine) == ["c", "d", "new"]
    assert (gate.kind, gate.holders) == (BlockerKind.LIMIT, ("a",))
    assert [lease.job.tenant for lease in more] == [ACME]  # It runs a, c and new already.
    assert tables(path) == tables(Path(store.options.path))


@pytest.mark.parametrize("change", ["", "UPDATE edges SET target = x'ff' WHERE number = 7"])
async def test_a_flow_goes_on_after_the_upgrade(tmp_path: Path, change: str) -> None:
    """P17: joins and edges of version 6 had rows of their own; a bad one stops nothing."""
    path = tmp_path / "old.db"
    make(path, 6, change)
    store = SqliteStore.from_url(f"sqlite:///{path}", ManualClock())
    await store.open()
    mine = msgspec.structs.replace(claim(9), tenants=("flows",))
    try:
        found, joins = list[list[str]](), list[Join]()
        for turn in range(3):
            leases = await store.claim(msgspec.structs.replace(mine, nonce=f"n{turn}"))
            found.append([lease.job.id for lease in leases])
            joins += [join_of(entry) for lease in leases for entry in lease.journal]
            done = [decide(Completed(), each.job, each.token, 0.0) for each in leases]
            await store.ack(done)
    finally:
        await store.close()

    assert found == [["second"], ["end", "child0", "child59"], []]
    assert joins == [Join(2, 0), Join(1, 0), Join(1, 0)]


def tables(path: Path) -> set[tuple[str, ...]]:
    """The columns of every table, and every index and trigger as it was written."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        made = {
            (name, " ".join((sql or "").split())) for type, name, sql in rows if type != "table"
        }
        names = [name for type, name, _ in rows if type == "table"]
        return made | {
            (name, *map(str, column[1:]))
            for name in names
            for column in connection.execute(f"PRAGMA table_info({name})")
        }
