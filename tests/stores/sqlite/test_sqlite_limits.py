"""Scopes over several processes on one file, and what they cost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.job import Completed, EventKind, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import Scope, ScopeKind, ScopeSettings, encode
from holdfast.store import Claim, Put, Tally
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, MAIL, PLATFORM_SCOPES, job

TENANT = Scope(ACME)
QUEUE = Scope(ACME, ScopeKind.QUEUE, MAIL)
GROUP = Scope(ACME, ScopeKind.GROUP, "crawl")
each_scope = pytest.mark.parametrize(
    "scope", [TENANT, QUEUE, GROUP, *PLATFORM_SCOPES], ids=lambda each: each.words
)


async def limit(store: SqliteStore, scope: Scope, most: int | None) -> None:
    """Sets the limit of a scope; None takes it away."""
    found = [one for one in await store.settings(under=scope.name) if one.name == scope.name]
    value = None if most is None else encode(ScopeSettings(max_running=most))
    await store.settings([Put(scope.name, value, found[0].version if found else 0)])


def claim(most: int, nonce: str = "nonce") -> Claim:
    return Claim(worker="w", nonce=nonce, limit=most, lease_us=LEASE)


async def recounted(store: SqliteStore) -> list[Tally]:
    return await store.count(None, recount=True)


@each_scope
async def test_another_process_sees_a_changed_limit_at_once(path: Path, scope: Scope) -> None:
    """P13: settings are read in the step that claims, whoever has put them."""
    one, two = (SqliteStore.from_url(f"sqlite:///{path}") for _ in range(2))
    await one.open()
    await two.open()
    await one.enqueue([job(f"j{number}", group="crawl") for number in range(9)])
    assert len(await two.claim(claim(1, "a"))) == 1

    for most, running in ((3, 3), (5, 5), (2, 5), (6, 6)):
        await limit(one, scope, most)
        await two.claim(claim(9, f"b{most}"))
        (tally,) = await one.count(scope.tenant, by=scope.kind)
        assert tally.counts[State.PROCESSING] == running

    await limit(one, scope, None)
    assert len(await two.claim(claim(9, "c"))) == 3
    await one.close()
    await two.close()


@each_scope
async def test_a_limit_is_kept_by_many_processes(
    store: SqliteStore, start: Any, scope: Scope
) -> None:
    """P13: four of them claim at the same time, together they get as many as the limit says; when
    they are killed no place is lost.
    """
    await limit(store, scope, 7)
    await store.enqueue([job(f"j{number}", group="crawl") for number in range(50)])
    children = [await start("hold_all", f"c{number}") for number in range(4)]
    for child in children:
        assert child.stdout is not None
        await child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")

    had: list[str] = []
    for child in children:
        assert child.stdout is not None
        had += (await child.stdout.readline()).decode().split()
    assert len(had) == len(set(had)) == 7

    for child in children:
        os.kill(child.pid, signal.SIGKILL)
    await asyncio.gather(*(child.wait() for child in children))
    assert await store.claim(claim(50)) == []
    assert {tally.correction for tally in await recounted(store)} == {0}


@each_scope
async def test_lapsed_leases_give_their_places_back(path: Path, scope: Scope) -> None:
    """P2, P13: a worker that died holds a place only as long as its lease."""
    clock = ManualClock()
    store = SqliteStore.from_url(f"sqlite:///{path}", clock)
    await store.open()
    await limit(store, scope, 2)
    await store.enqueue([job(f"j{number}", group="crawl") for number in range(6)])
    for number in range(3):
        assert len(await store.claim(claim(6, f"a{number}"))) == 2
        assert await store.claim(claim(6, f"b{number}")) == []
        clock.advance(60)

    assert {tally.correction for tally in await recounted(store)} == {0}
    await store.close()


async def test_a_recount_mends_what_was_damaged(store: SqliteStore, path: Path) -> None:
    """The counts are right again, and it is told by how much they were wrong."""
    await limit(store, QUEUE, 2)
    await store.enqueue([job(f"j{number}") for number in range(3)])
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE counts SET processing = 2 WHERE kind = 'queue'")
        file.execute("UPDATE counts SET open = 0")
    assert await store.claim(claim(3)) == []

    assert [tally.correction for tally in await recounted(store)] == [2]
    assert [tally.correction for tally in await recounted(store)] == [0]
    assert len(await store.claim(claim(3))) == 2


async def test_a_call_that_fails_leaves_counts_and_settings_as_they_were(
    store: SqliteStore,
) -> None:
    """Nothing is half written: the next call of the same transaction sees the state before."""
    await limit(store, QUEUE, 1)
    bad = store.settings(
        [
            Put(TENANT.name, encode(ScopeSettings(max_running=5)), 0),
            Put(QUEUE.name, encode(ScopeSettings(max_running=9)), 7),
        ]
    )
    calls = (store.enqueue([job("a"), job("b")]), bad, store.claim(claim(5)))
    _, refused, leases = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(refused, Exception)
    assert isinstance(leases, list)
    assert len(leases) == 1
    assert {tally.correction for tally in await recounted(store)} == {0}


async def test_blocked_jobs_are_in_no_index_that_a_claim_walks(
    store: SqliteStore, path: Path
) -> None:
    """P9: thousands wait for one place in front of a job of another group."""
    await limit(store, GROUP, 1)
    await store.enqueue([job(f"j{number}", group="crawl") for number in range(900)])
    await store.enqueue([job("other", group="other"), job("none")])

    with closing(sqlite3.connect(path)) as file:
        query = "SELECT count(*) FROM jobs INDEXED BY jobs_ready WHERE state = 'enqueued'"
        (ready,) = file.execute(f"{query} AND late = 0 AND gate = 0").fetchone()
    leases = await store.claim(claim(900))

    assert ready == 3
    assert [lease.job.id for lease in leases] == ["j0", "other", "none"]
    await store.ack([decide(Completed(), leases[0].job, leases[0].token, 0.0)])
    assert [lease.job.id for lease in await store.claim(claim(9, "b"))] == ["j1"]


async def test_a_scope_is_told_in_the_log(store: SqliteStore) -> None:
    """The log tells of the change in the order of what it did."""
    await limit(store, QUEUE, 1)
    await store.enqueue([job("a", group="crawl")])
    (lease,) = await store.claim(claim(5))
    await store.ack([decide(Completed(), lease.job, lease.token, 0.0)])

    kinds = [event.kind for event in (await store.events(ACME, 0, 10)).events]
    assert kinds == [
        EventKind.CONFIGURED,
        EventKind.ENQUEUED,
        EventKind.LEASED,
        EventKind.COMPLETED,
        EventKind.DRAINED,
    ]
