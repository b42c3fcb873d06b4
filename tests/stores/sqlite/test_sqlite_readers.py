"""Reads: a slow search of one tenant holds up nobody else, and ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core import bounds
from holdfast.core.bounds import SEARCHES_MAX
from holdfast.core.errors import InvalidInput, StoreUnavailable
from holdfast.core.job import State
from holdfast.store import Act, Watch
from holdfast.stores.sqlite import readers
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, GLOBEX, changing, finding, ids, job

MANY = 40_000
BOUND_S = 30.0

# Ended jobs of one tenant, each with long tags that a search has to look through.
FILL = """
WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
INSERT INTO jobs (seq, tenant, id, queue, type, codec, version, state, priority, run_at,
    max_attempts, created_at, updated_at, keep_us, rules, size, tags)
SELECT 1000 + n, ?2, 'old' || n, 'q', 't', 'json', 1, 'completed', 0, 0, 1, 0, 0, 1, '{}', 0, ?3
FROM numbers
"""


@pytest.fixture
async def filled(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    """Holds many jobs of ACME, which take long to search on any machine, and one of GLOBEX."""
    monkeypatch.setattr(bounds, "QUICK_READ_S", 0.005, raising=False)
    await store.enqueue([job("mine", tenant=GLOBEX)])
    tags = "[" + ", ".join(f'"{"x" * 50}{n}"' for n in range(20)) + "]"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(FILL, (MANY, ACME, tags))
    return store


SLOW = finding(ACME, tags=("absent",))


async def test_a_slow_search_does_not_hold_up_lists_of_others(filled: SqliteStore) -> None:
    """P19: lists, counts and histories of other tenants are read meanwhile."""
    searches = [asyncio.create_task(filled.find(SLOW)) for _ in range(3)]
    await asyncio.sleep(0)

    page = await filled.find(finding(GLOBEX))
    counts = await filled.count(GLOBEX)
    events = await filled.events(GLOBEX, 0, 10)

    assert not any(search.done() for search in searches)
    assert ids(page.jobs) == ["mine"]
    assert counts[0].counts == {State.ENQUEUED: 1}
    assert len(events.events) == 1
    assert [page.jobs for page in await asyncio.gather(*searches)] == [[], [], []]


async def test_a_search_that_takes_too_long_is_refused(
    filled: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: with words that say what to do; the store goes on."""
    monkeypatch.setattr(bounds, "READ_S_MAX", 0.01)

    with pytest.raises(InvalidInput) as caught:
        await filled.find(SLOW)

    assert caught.value.facts["field"] == "search"
    assert "narrow it" in str(caught.value)
    assert ids((await filled.find(finding(GLOBEX))).jobs) == ["mine"]
    await asyncio.wait_for(filled.wait(Watch(tenants=(GLOBEX,)), 30.0), 30.0)


async def test_a_read_that_is_given_up_at_its_end_leaves_no_open_transaction(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: one that is canceled, or too slow, does not break the reads after it."""
    monkeypatch.setattr(readers, "STEPS", 1)
    begun, ending = threading.Event(), threading.Event()
    assert store._readers is not None

    def read(connection: sqlite3.Connection, _: int) -> None:
        begun.set()
        assert ending.wait(BOUND_S)

    reading = asyncio.create_task(store._readers.page(read))
    assert await asyncio.to_thread(begun.wait, BOUND_S)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    ending.set()

    assert (await store.find(finding(ACME))).jobs == []


async def test_a_slow_change_does_not_hold_up_writes_of_others(filled: SqliteStore) -> None:
    """P19: what it would change is looked for where nobody waits for it."""
    change = asyncio.create_task(filled.change(changing(Act.DELETE, tags=("absent",))))
    await asyncio.sleep(0)

    (answer,) = await filled.enqueue([job("next", tenant=GLOBEX)])

    assert answer.created
    assert not change.done()
    assert (await change).done == {}


# -- shares ----------------------------------------------------------------------------------------

# Reads for ever, unless it is stopped.
ENDLESS = (
    "WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
)


def endless(connection: sqlite3.Connection, _: int) -> None:
    connection.execute(ENDLESS).fetchone()


@pytest.fixture
async def searching(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """As many searches of ACME as it may have, none of which ends by itself."""
    monkeypatch.setattr(bounds, "READ_S_MAX", 600.0)
    readers = store._mine(store._readers)
    searches = [asyncio.create_task(readers.page(endless, ACME)) for _ in range(SEARCHES_MAX)]
    async with asyncio.timeout(BOUND_S):
        while readers._slow[ACME] < SEARCHES_MAX:
            await readers.page(lambda connection, now: None)
    yield searches
    for search in searches:
        search.cancel()
    await asyncio.gather(*searches, return_exceptions=True)


async def test_a_tenant_has_so_many_slow_searches_at_most(
    store: SqliteStore, searching: list[asyncio.Task[None]]
) -> None:
    """P19: one more is refused at once; what is looked up by name is not a search."""
    await store.enqueue([job("a")])

    async with asyncio.timeout(BOUND_S):
        with pytest.raises(StoreUnavailable) as caught:
            await store.find(finding())
        page = await store.find(finding(ids=("a",)))
        news = await store.events(ACME, 0, 10)
        counts = await store.count(ACME)

    assert len(news.events) == len(counts) == 1
    assert "searches of tenant 'acme'" in str(caught.value)
    assert ids(page.jobs) == ["a"]


async def test_a_search_whose_caller_has_gone_ends(
    store: SqliteStore, searching: list[asyncio.Task[None]]
) -> None:
    """P19: the lane is free again for others."""
    for search in searching:
        search.cancel()

    async with asyncio.timeout(BOUND_S):
        await store._mine(store._readers)._searches.call(lambda connection: None)
