"""The short way in: its log is made long at once, and it is left for slow disks only."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from tests.stores.parcels import check_counts, fresh, named
from tests.stores.sqlite.tables import rows

from holdfast.errors import StoreFull
from holdfast.stores.sqlite import posting
from holdfast.stores.sqlite.connection import LOG_BYTES
from holdfast.stores.sqlite.store import SqliteStore


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No disk is too slow for these tests."""
    monkeypatch.setattr(posting, "SLOW_S", 60.0)


@pytest.fixture
def looker(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Another process's connection to the open store."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def _log(path: Path) -> Path:
    return Path(f"{path}-wal")


def _length(path: Path) -> int:
    """Of the log."""
    return _log(path).stat().st_size


def _pages(looker: sqlite3.Connection) -> tuple[int, int]:
    """Of the database: all, and those that are free."""
    pages: int = looker.execute("PRAGMA page_count").fetchone()[0]
    free: int = looker.execute("PRAGMA freelist_count").fetchone()[0]
    return pages, free


async def test_who_posts_again_finds_the_log_as_long_as_it_gets(
    store: SqliteStore, path: Path, looker: sqlite3.Connection
) -> None:
    """No later enqueue pays for a file that grows, and the database does not grow with its log."""
    await store.enqueue(fresh("a"))
    short, pages = _length(path), _pages(looker)

    await store.enqueue(fresh("b"))
    long = _length(path)
    for id in named(0, 300):
        await store.enqueue(fresh(id))

    assert short < LOG_BYTES <= long
    assert _length(path) == long
    assert _pages(looker)[0] < pages[0] + 100
    assert looker.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    await check_counts(store, enqueued=302)


async def test_a_log_made_long_leaves_nothing_in_the_database(
    store: SqliteStore, path: Path, looker: sqlite3.Connection
) -> None:
    """What makes it long is no frame: no page more, none free, no row."""
    await store.enqueue(fresh("a"))
    before = _pages(looker)

    await store.enqueue(fresh("b"))

    assert _length(path) >= LOG_BYTES
    assert _pages(looker) == before
    assert rows(path, "bodies") == 0


async def test_a_log_made_long_is_read_after_a_crash(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    """P1: whoever finds the files, without the memory that was shared, sees all jobs."""
    for id in named(0, 20):
        await store.enqueue(fresh(id))
    left = tmp_path / "left.db"
    shutil.copy(path, left)
    shutil.copy(_log(path), _log(left))

    after = SqliteStore.from_url(f"sqlite:///{left}")
    await after.open()

    await check_counts(after, enqueued=20)
    await after.close()


async def test_the_next_start_makes_the_log_long_again(store: SqliteStore, path: Path) -> None:
    """The last who closes deletes the log."""
    for _ in range(2):
        for id in ("a", "b"):
            await store.enqueue(fresh(f"{id}{time.monotonic_ns()}"))
        assert _length(path) >= LOG_BYTES
        await store.close()
        assert not _log(path).exists()
        await store.open()


async def test_where_no_commit_is_flushed_the_log_grows_as_it_is_used(path: Path) -> None:
    """There it costs nothing to grow."""
    store = SqliteStore.from_url(f"sqlite:///{path}?synchronous=normal")
    await store.open()

    for id in ("a", "b", "c"):
        await store.enqueue(fresh(id))

    assert _length(path) < LOG_BYTES
    await store.close()


async def test_a_disk_with_little_room_keeps_what_fits(store: SqliteStore, path: Path) -> None:
    """That the log could not be made long is nobody's error; a job without room is."""
    await store.enqueue(fresh("a"))
    assert store._poster is not None
    poster = store._poster._connection
    (pages,) = poster.execute("PRAGMA page_count").fetchone()
    poster.execute(f"PRAGMA max_page_count = {pages}")

    await store.enqueue(fresh("b"))

    assert rows(path, "posted") == 2
    assert poster.execute("PRAGMA cache_size").fetchone() == (-2000,)
    with pytest.raises(StoreFull):
        await store.enqueue(fresh(*named(0, 999)))
    await check_counts(store, enqueued=2)


async def test_while_others_write_the_log_stays_as_it_is(
    store: SqliteStore, path: Path, looker: sqlite3.Connection
) -> None:
    """To make it long waits for nobody."""
    await store.enqueue(fresh("a"))
    short = _length(path)
    assert store._poster is not None

    looker.execute("BEGIN IMMEDIATE")
    parcels = store._poster.parcels(fresh("b"))
    assert parcels is not None
    assert store._poster.post(parcels) is None  # The writer has to see to it.

    assert _length(path) == short
    looker.execute("ROLLBACK")
    await store.enqueue(fresh("b"))
    await check_counts(store, enqueued=2)


async def test_a_few_writes_that_are_slow_by_chance_change_nothing(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk is slow when many of its writes are."""
    monkeypatch.setattr(posting, "_starved_s", lambda: 0.0)
    assert store._poster is not None
    chance_s = 10 * posting.SLOW_S

    for _ in range(4):
        store._poster._rest(time.monotonic() - chance_s)
    await store.enqueue(fresh("a"))
    assert rows(path, "posted") == 1

    for _ in range(4):
        store._poster._rest(time.monotonic() - chance_s)
    await store.enqueue(fresh("b"))
    assert rows(path, "posted") == 0


async def test_a_busy_machine_is_no_slow_disk(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited for a processor would wait for it in another thread, too."""
    assert store._poster is not None
    slow_s = 10 * posting.SLOW_S
    starved = count(slow_s, slow_s)
    monkeypatch.setattr(posting, "_starved_s", lambda: next(starved))

    for _ in range(100):
        store._poster._rest(time.monotonic() - slow_s)
    await store.enqueue(fresh("a"))

    assert rows(path, "posted") == 1


def test_the_system_says_how_long_a_thread_waited_or_nothing() -> None:
    """A length of time that only grows; zero where nobody counts it."""
    before = posting._starved_s()

    assert 0 <= before <= posting._starved_s()


async def test_one_who_posts_all_the_time_lets_others_run(store: SqliteStore) -> None:
    """An enqueue that need not wait for anything would keep the loop for itself."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for id in named(0, 4 * posting.IN_A_ROW_MAX):
        await store.enqueue(fresh(id))
    task.cancel()

    assert turns >= 4
