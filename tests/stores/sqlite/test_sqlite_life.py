"""Opening, closing, and what an operator reads when it cannot work."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.errors import (
    ConfigError,
    HoldfastError,
    SchemaTooNew,
    StoreCorrupt,
    StoreUnavailable,
)
from holdfast.core.finding import Level
from holdfast.store import Watch
from holdfast.stores.sqlite.doctor import examine
from holdfast.stores.sqlite.layout import SCHEMA_VERSION
from holdfast.stores.sqlite.options import Options, parse
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, finding, job


async def _open_error(path: Path) -> HoldfastError:
    store = SqliteStore.from_url(f"sqlite:///{path}")
    with pytest.raises(HoldfastError) as caught:
        await store.open()
    await store.close()  # Works after a failed open too.
    assert str(path) in str(caught.value)
    return caught.value


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one() -> None:
    """As everywhere else that names SQLite files by URL."""
    assert parse("sqlite:///jobs.db") == Options(path="jobs.db")
    assert parse("sqlite:///data/my%20jobs.db").path == "data/my jobs.db"
    assert parse("sqlite:////var/lib/jobs.db").path == "/var/lib/jobs.db"


def test_options_of_the_url_are_read() -> None:
    """Each has a default that is safe."""
    assert parse("sqlite:///j?synchronous=normal&events=off&busy_s=2.5") == Options(
        path="j", synchronous="normal", events=False, busy_s=2.5
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://jobs.db", "three slashes"),
        ("sqlite:///j#1", "%23"),
        ("sqlite:///j?synchronos=full", "Did you mean 'synchronous'?"),
        ("sqlite:///j?synchronous=ful", "Did you mean 'full'?"),
        ("sqlite:///j?events=maybe", "on or off"),
        ("sqlite:///j?busy_s=soon", "seconds"),
        ("sqlite:///j?busy_s=nan", "seconds"),
        ("sqlite:///j?busy_s=-1", "seconds"),
    ],
)
def test_a_url_that_cannot_work_says_what_to_write(url: str, words: str) -> None:
    """A wrong URL fails when it is read, not when the first job comes."""
    with pytest.raises(ConfigError) as caught:
        SqliteStore.from_url(url)

    assert words in str(caught.value)


async def test_without_events_nothing_is_logged_and_the_store_says_so(path: Path) -> None:
    """The log costs time and room; who does not need it can leave it out."""
    store = SqliteStore.from_url(f"sqlite:///{path}?events=off")
    await store.open()
    await store.enqueue([job("a")])

    assert not store.capabilities.event_log
    assert (await store.events(ACME, 0, 10)).events == []
    await store.close()


async def test_the_file_stays_the_same_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path counts from where the store was made."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore.from_url("sqlite:///jobs.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.open()
    await store.close()

    assert (tmp_path / "jobs.db").exists()


async def test_a_file_of_a_newer_holdfast_is_refused(path: Path, store: SqliteStore) -> None:
    """An older version must not write what it does not understand."""
    await store.close()
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")

    assert isinstance(await _open_error(path), SchemaTooNew)


@pytest.fixture
def shopping(path: Path) -> Iterator[Path]:
    """A file that is no database; it must be left as it was."""
    text = "milk and bread\n" * 200
    path.write_text(text)
    yield path
    assert path.read_text() == text


async def test_a_file_that_is_no_database_is_refused(shopping: Path) -> None:
    """And it is left as it was."""
    error = await _open_error(shopping)

    assert isinstance(error, StoreCorrupt)
    assert "not an SQLite database" in str(error)


async def test_another_applications_database_is_refused(path: Path) -> None:
    """Nothing is written into it."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE invoices (id INTEGER)")
        file.commit()

    error = await _open_error(path)

    assert isinstance(error, StoreCorrupt)
    assert "another application" in str(error)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """The likeliest mistake has the plainest words."""
    error = await _open_error(tmp_path / "nowhere" / "jobs.db")

    assert isinstance(error, StoreUnavailable)
    assert "does not exist" in str(error)


async def test_calls_made_while_a_failing_open_runs_are_answered(tmp_path: Path) -> None:
    """Nobody waits for ever for a store that never came."""
    store = SqliteStore.from_url(f"sqlite:///{tmp_path / 'nowhere' / 'jobs.db'}")

    opened, added = await asyncio.gather(
        store.open(), store.enqueue([job("a")]), return_exceptions=True
    )

    assert isinstance(opened, StoreUnavailable)
    assert isinstance(added, StoreUnavailable)


async def test_a_directory_is_no_database(tmp_path: Path) -> None:
    """Nor is the error a riddle."""
    assert "it is a directory" in str(await _open_error(tmp_path))


async def test_an_sqlite_too_old_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RETURNING came with 3.35."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))

    assert "3.35.0 or newer" in str(await _open_error(path))


async def test_migrate_works_on_a_store_that_is_not_open(path: Path) -> None:
    """A deploy step can run it alone, twice."""
    store = SqliteStore.from_url(f"sqlite:///{path}")

    assert await store.migrate() == SCHEMA_VERSION
    assert await store.migrate() == SCHEMA_VERSION


async def test_a_closed_store_refuses_and_can_be_opened_again(store: SqliteStore) -> None:
    """Closing twice does no harm; what was confirmed is there afterwards."""
    await store.enqueue([job("a")])
    await store.close()
    await store.close()

    with pytest.raises(StoreUnavailable, match="not open"):
        await store.enqueue([job("b")])
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.find(finding())
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.wait(Watch(), 1.0)

    await store.open()
    assert [record.id for record in (await store.find(finding())).jobs] == ["a"]


async def test_closing_leaves_no_threads_and_no_journal(store: SqliteStore, path: Path) -> None:
    """The last one out folds the log into the database."""
    await store.enqueue([job("a")])
    await store.close()

    assert not path.with_name("jobs.db-wal").exists()
    assert not path.with_name("jobs.db-wake").exists()


async def test_a_forked_child_is_refused_with_words(store: SqliteStore) -> None:
    """Connections and threads do not survive a fork; using them would damage the file."""
    said = _said_by_a_fork(store)

    assert "before a fork" in said
    assert (await store.enqueue([job("b")]))[0].created


def _said_by_a_fork(store: SqliteStore) -> str:
    """What an enqueue says in a forked child, where no event loop runs."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        words = "no error"
        try:
            store.enqueue([job("a")]).send(None)
        except BaseException as error:
            words = str(error)
        os.write(write, words.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read) as pipe:
        return pipe.read()


async def test_the_doctor_finds_a_sound_file(store: SqliteStore) -> None:
    """Only the disk of the machine may give reason to worry."""
    findings = await examine(store)

    assert {finding.what for finding in findings if finding.level is not Level.OK} <= {"disk"}
