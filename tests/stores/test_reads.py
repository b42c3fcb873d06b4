"""Reads never write: find, count, explain, expired, events and wait leave a store as it was."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.foundationdb_engine import Engine, FDBError

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.scope import ScopeKind, ScopeSettings, encode
from holdfast.store import Claim, Put, Ref, Store, Take, Watch
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import (
    ACME,
    LEASE,
    finding,
    group_of,
    job,
    queue_of,
    type_of,
)

READS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "find": lambda store: store.find(finding()),
    "find by id": lambda store: store.find(finding(ids=("due", "held"))),
    "count by queue": lambda store: store.count(None),
    "count by group": lambda store: store.count(ACME, by=ScopeKind.GROUP),
    "explain due": lambda store: store.explain(Ref(ACME, "due")),
    "explain lapsed": lambda store: store.explain(Ref(ACME, "held")),
    "count of the platform": lambda store: store.count("", by=ScopeKind.TYPE),
    "explain aside": lambda store: store.explain(Ref(ACME, "aside")),
    "explain waiting": lambda store: store.explain(Ref(ACME, "second")),
    "expired": lambda store: store.expired(PAGE_MAX),
    "events": lambda store: store.events(None, 0, PAGE_MAX),
    "events of a tenant": lambda store: store.events(ACME, 3, PAGE_MAX),
    "settings": lambda store: store.settings(under=""),
    "holds": lambda store: store.hold(under=""),
    "wait": lambda store: store.wait(Watch(), 0.0),
}


async def fill(store: Store, clock: ManualClock) -> None:
    """Leaves work for a claim: due jobs, lapsed leases, an expired job, slots that have ended, and
    one job at a limit of the platform.
    """
    await store.settings([Put(group_of("g").name, encode(ScopeSettings(max_running=1)), 0)])
    await store.settings([Put(queue_of().name, encode(ScopeSettings(max_running=9)), 0)])
    await store.hold([Take(queue_of().slot("s"), "w", SECOND), Take("leader", "w", SECOND)])
    await store.enqueue([job("held", key="k"), job("first", group="g"), job("second", group="g")])
    await store.claim(Claim(worker="w", nonce="n", limit=2, lease_us=LEASE))
    await store.settings([Put(type_of("read").name, encode(ScopeSettings(max_running=1)), 0)])
    await store.enqueue([job(id, type="read", queue="audio") for id in ("runs", "aside")])
    audio = Claim(worker="w", nonce="n2", limit=2, lease_us=LEASE, queues=("audio",))
    assert len(await store.claim(audio)) == 1
    await store.enqueue([job("due", delay_us=SECOND), job("late", ttl_us=SECOND), job("ready")])
    clock.advance(LEASE / SECOND + 1)


def keys(engine: Engine) -> list[tuple[bytes, bytes]]:
    pairs = engine.database().get_range(b"", b"\xff")
    return [(bytes(key), bytes(value)) for key, value in pairs]


@pytest.mark.parametrize("read", READS)
async def test_a_read_leaves_foundationdb_as_it_was(read: str) -> None:
    """No key changes, and nothing is committed."""
    clock = ManualClock()
    engine = Engine(clock)
    store = FoundationStore(Options(prefix="c"), clock, engine.database())
    await store.open()
    await fill(store, clock)
    before = keys(engine)
    tries = store._open().tries

    await READS[read](store)

    assert keys(engine) == before
    assert store._open().tries == tries
    await store.close()


@pytest.mark.parametrize("read", READS)
async def test_a_read_leaves_memory_as_it_was(read: str) -> None:
    """Neither rows nor indexes change, not even entries that have become stale."""
    clock = ManualClock()
    store = MemoryStore(clock)
    await store.open()
    await fill(store, clock)

    before = seen(store)
    await READS[read](store)

    assert seen(store) == before


def seen(store: MemoryStore) -> dict[str, Any]:
    """A copy of all that the tables hold."""
    tables = store._tables
    rows = {name: (row.state, row.stamp, row.updated_at) for name, row in tables.rows.items()}
    names = ("due", "leases", "spent", "ttl", "finished", "reopen", "counts", "events")
    found = {name: copy.deepcopy(getattr(tables, name)) for name in names}
    found["rechecks"] = copy.copy(tables.rechecks._left)
    found["ages"] = copy.deepcopy(tables.ages._ages)
    found["aside"] = {line: list(tables.platform.aside(line)) for line in tables.counts}
    found["over all"] = dict(tables.platform.running)
    lines = {line: list(tables.lines.jobs(line)) for line in tables.counts}
    turns = (list(tables.lines.turns.items()), copy.deepcopy(tables.lines._rings))
    holds = (dict(store._holds._holds), copy.deepcopy(tables.limits.slots))
    return {"rows": rows, "lines": lines, "turns": turns, "holds": holds, **found}


async def test_cursors_are_the_same_before_and_after_events_are_numbered() -> None:
    """P14: versionstamps fix the order; numbering only moves the events."""
    clock = ManualClock()
    store = FoundationStore(Options(prefix="c"), clock, Engine(clock).database())
    await store.open()
    await fill(store, clock)

    pages = [await store.events(None, 0, PAGE_MAX), await store.events(ACME, 4, 3)]
    await store.prune(100, 3600 * SECOND)

    assert [await store.events(None, 0, PAGE_MAX), await store.events(ACME, 4, 3)] == pages
    cursors = [event.cursor for event in pages[0].events]
    assert cursors == list(range(1, len(cursors) + 1))
    assert pages[0].events
    await store.close()


async def test_a_store_numbers_its_events_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that readers need not count through all there are."""
    monkeypatch.setattr("holdfast.stores.foundationdb.store.NUMBER_AFTER", 3)
    clock = ManualClock()
    store = FoundationStore(Options(prefix="c"), clock, Engine(clock).database())
    await store.open()

    for number in range(10):
        await store.enqueue([job(f"j{number}")])

    events = (await store.events(None, 0, PAGE_MAX)).events
    assert [event.cursor for event in events] == list(range(1, 11))
    assert store._unnumbered < 3
    await store.close()


async def test_a_call_is_answered_though_its_events_cannot_be_numbered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P1: the job is kept; numbering is tried again after further events."""
    monkeypatch.setattr("holdfast.stores.foundationdb.store.NUMBER_AFTER", 1)
    clock = ManualClock()
    engine = Engine(clock)
    store = FoundationStore(Options(prefix="c"), clock, engine.database())
    await store.open()

    async def conflict(step: Any) -> int:
        raise FDBError(1020)

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.stores.foundationdb.store.number_events", conflict)
        [answer] = await store.enqueue([job("a")])
    assert answer.created

    assert [event.cursor for event in (await store.events(None, 0, PAGE_MAX)).events] == [1]
    await store.close()
