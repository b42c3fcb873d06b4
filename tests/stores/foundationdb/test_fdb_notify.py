"""Watches that end with an error are no news: their sleepers look for themselves, a while later."""

from __future__ import annotations

import asyncio

import pytest
from tests.foundationdb_engine import Database, Engine, Faults

from holdfast.store import Watch
from holdfast.stores.foundationdb import notify
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing.contract.builders import ACME, MAIL, job

CODES = [1009, 1031, 1032, 1101]
LINE = Watch(tenants=(ACME,), queues=(MAIL,))
LONG_S = 30.0
TURNS = 50
"""Of the event loop: enough for everything that is going to happen without time passing."""


async def _opened(database: Database) -> FoundationStore:
    store = FoundationStore(Options(prefix="c"), None, database)
    await store.open()
    return store


async def _settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleepers that are not told poll after a short while."""
    monkeypatch.setattr(notify, "POLL_S", 0.05)


@pytest.mark.parametrize("code", CODES)
async def test_a_watch_that_fails_at_once_does_not_wake_its_sleeper(code: int) -> None:
    """It would look, watch and fail again, without a pause."""
    engine = Engine()
    store = await _opened(engine.database())
    engine.faults.plan("read", code)

    sleeper = asyncio.create_task(store.wait(LINE, LONG_S))
    await _settle()

    assert engine.faults.told[code] == 1
    assert not sleeper.done()
    await store.enqueue([job("x")])  # Its own process tells it all the same.
    await asyncio.wait_for(sleeper, LONG_S / 2)
    await store.close()


@pytest.mark.usefixtures("soon")
async def test_a_watch_that_failed_at_once_is_polled_for() -> None:
    """The wait ends long before its time-out, and the next one watches."""
    engine = Engine()
    database = engine.database()
    store = await _opened(database)
    engine.faults.plan("read", 1009)

    await asyncio.wait_for(store.wait(LINE, LONG_S), LONG_S / 2)
    assert database.watching.count == 0

    sleeper = asyncio.create_task(store.wait(LINE, LONG_S))
    await _settle()
    assert database.watching.count == 1
    sleeper.cancel()
    await store.close()


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("code", CODES)
async def test_a_watch_that_breaks_lets_its_sleepers_look_a_while_later(code: int) -> None:
    """Not at once, as news would; and not never."""
    engine = Engine()
    store = await _opened(engine.database())
    sleepers = [asyncio.create_task(store.wait(LINE, LONG_S)) for _ in range(3)]
    await _settle()
    asked = engine.counts.version_requests

    assert engine.break_watches(code) == 1
    await _settle()

    assert not any(sleeper.done() for sleeper in sleepers)
    assert engine.counts.version_requests == asked
    await asyncio.wait_for(asyncio.gather(*sleepers), LONG_S / 2)
    await store.close()


async def test_a_sleeper_cancelled_while_it_arms_its_watch_leaves_nothing() -> None:
    """Neither a name that nobody watches, nor a watch that counts for ever."""
    engine = Engine()
    database = engine.database()
    store = await _opened(database)
    engine.faults = Faults(delay=1.0)

    for turns in range(12):
        sleeper = asyncio.create_task(store.wait(LINE, LONG_S))
        for _ in range(turns):
            await asyncio.sleep(0)
        sleeper.cancel()
        await asyncio.gather(sleeper, return_exceptions=True)
    engine.faults.heal()
    await _settle()

    assert database.watching.count <= 1
    sleeper = asyncio.create_task(store.wait(LINE, LONG_S))
    await _settle()
    assert database.watching.count == 1
    other = await _opened(engine.database())
    await other.enqueue([job("x")])
    await asyncio.wait_for(sleeper, LONG_S / 2)
    for each in (store, other):
        await each.close()


async def test_closing_breaks_no_watch_for_its_sleepers() -> None:
    """They are woken by the closing, once, and the connection has no watch left."""
    engine = Engine()
    database = engine.database()
    store = await _opened(database)
    sleeper = asyncio.create_task(store.wait(LINE, LONG_S))
    await _settle()
    assert database.watching.count == 1

    await store.close()

    await asyncio.wait_for(sleeper, LONG_S / 2)
    assert database.watching.count == 0
