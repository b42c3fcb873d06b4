"""Limits over all tenants: what waits costs no claim anything, and other processes hear of room."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.stores.sqlite.cost import FILL, Cost
from tests.stores.sqlite.tables import rows

from holdfast.core.job import Completed
from holdfast.core.lifecycle import decide
from holdfast.core.scope import PLATFORM, Pause, Scope, ScopeKind, ScopeSettings, encode
from holdfast.store import Claim, Put, Watch
from holdfast.stores.sqlite.count import recount
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, LEASE, MAIL, job

QUEUE = Scope("", ScopeKind.QUEUE, MAIL)
TYPE = Scope("", ScopeKind.TYPE, "send")
PAUSED = ScopeSettings(paused=Pause("the mail provider is down", "ann"))
ONE = encode(ScopeSettings(max_running=1))
FEW, MANY = 100, 5000
SETTLING = 8
"""Claims after which everything that waits is aside: each sets ASIDE_MAX jobs aside at most."""
BOUND_S = 20.0
SLEEP_S = 50.0
each_scope = pytest.mark.parametrize("scope", [PLATFORM, QUEUE, TYPE], ids=lambda each: each.kind)

FILL_LINES = FILL.format(tenant="'t' || (n % 50)", queue="'mail'")
FILL_ONE_LINE = FILL.format(tenant=f"'{ACME}'", queue="'mail'")
FILL_QUEUES = FILL.format(tenant=f"'{ACME}'", queue="'q' || (n % 50)")


def claim(most: int, nonce: str) -> Claim:
    return Claim(worker="w", nonce=nonce, limit=most, lease_us=LEASE)


# -- flat ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "scope"),
    [
        (FILL_LINES, QUEUE),
        (FILL_ONE_LINE, QUEUE),
        (FILL_LINES, TYPE),
        (FILL_ONE_LINE, TYPE),
        (FILL_QUEUES, TYPE),
    ],
    ids=["a queue", "one line", "a type", "a type in one line", "a type in many queues"],
)
@pytest.mark.parametrize("queues", [None, (MAIL, AUDIO)], ids=["any", "listed"])
def test_a_claim_reads_nothing_of_what_is_aside(
    cost: Callable[[], Cost], fill: str, scope: Scope, queues: tuple[str, ...] | None
) -> None:
    """P9: over a hundred jobs of a paused queue or type, and over five thousand."""
    steps = []
    for number in (FEW, MANY):
        one = cost()
        one.fill(fill, number)
        others = [job(f"o{n}", queue=AUDIO, type="read") for n in range(10 * (SETTLING + 1))]
        one.connection.execute("UPDATE jobs SET type = 'send'")
        one.configure([scope], PAUSED)
        one.enqueue(others)
        options = {} if queues is None else {"queues": queues}
        for _ in range(SETTLING):
            one.claim_steps(**options)
        steps.append(one.claim_steps(**options))

    assert steps[1] <= 1.5 * steps[0]


def test_a_limit_rewrites_no_jobs(cost: Callable[[], Cost]) -> None:
    """P13: however many wait in the queue and of the type."""
    for settings in (PAUSED, None):
        steps = []
        for number in (FEW, MANY):
            one = cost()
            one.fill(FILL_ONE_LINE, number)
            one.configure([QUEUE, TYPE], PAUSED)
            one.enqueue([job(f"o{n}", queue=AUDIO, type="read") for n in range(10)])
            one.claim_steps()
            act = partial(one.put, scopes=[QUEUE, TYPE], settings=settings, version=1)
            steps.append(one.count(act))

        assert steps[1] <= 1.5 * steps[0]


def test_one_free_place_lets_in_one_tenant(cost: Callable[[], Cost]) -> None:
    """P19: whoever else waits is not looked at."""
    for scope in (QUEUE, TYPE):
        steps = []
        for number in (FEW, MANY):
            one = cost()
            one.fill(FILL.format(tenant="'t' || n", queue="'mail'"), number)
            one.connection.execute("UPDATE jobs SET type = 'send'")
            one.configure([scope], ScopeSettings(max_running=1))
            for _ in range(SETTLING):
                one.count(one.take)
            one.connection.execute("DELETE FROM jobs WHERE state = 'processing'")
            with one.transaction() as transaction:
                transaction.execute("UPDATE counts SET processing = 0 WHERE tenant = ''")
            steps.append(one.count(one.take))

        assert steps[1] <= 1.5 * steps[0]


# -- kept ------------------------------------------------------------------------------------------


@each_scope
async def test_a_recount_keeps_what_is_aside(store: SqliteStore, path: Path, scope: Scope) -> None:
    """P9, P13: what waits at a limit is found again after the counts were made anew."""
    await store.settings([Put(scope.name, ONE, 0)])
    for tenant in (ACME, GLOBEX):
        await store.enqueue([job(f"{tenant}{n}", tenant=tenant) for n in range(3)])
    (lease,) = await store.claim(claim(9, "a"))
    assert await store.claim(claim(9, "b")) == []
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE counts SET processing = 7 WHERE tenant = ''")

    await store.count(None, recount=True)
    assert await store.claim(claim(9, "c")) == []
    await store.ack([decide(Completed(), lease.job, lease.token, 0.0)])

    assert len(await store.claim(claim(9, "d"))) == 1


@each_scope
async def test_nothing_is_left_of_a_limit_that_is_gone(
    store: SqliteStore, path: Path, scope: Scope
) -> None:
    """P13: all jobs run, and no row of what waited stays."""
    await store.settings([Put(scope.name, ONE, 0)])
    for tenant in (ACME, GLOBEX):
        await store.enqueue([job(f"{tenant}{n}", tenant=tenant) for n in range(30)])
    first = await store.claim(claim(9, "a"))
    assert await store.claim(claim(9, "b")) == []
    assert rows(path, "aside") > 0 or scope == PLATFORM

    await store.settings([Put(scope.name, None, 1)])
    leases = [lease for n in range(9) for lease in await store.claim(claim(9, f"c{n}"))]

    assert len(first + leases) == 60
    assert rows(path, "aside") == 0
    assert await store.count("", by=scope.kind) == []


def test_a_recount_finds_what_is_aside_by_the_jobs(cost: Callable[[], Cost]) -> None:
    """P9: also where its rows of the table of what waits are lost."""
    one = cost()
    one.fill(FILL_LINES, FEW)
    one.connection.execute("UPDATE jobs SET type = 'send'")
    one.configure([TYPE], PAUSED)
    one.count(one.take)
    one.connection.execute("DELETE FROM aside")
    with one.transaction() as transaction:
        recount(transaction)

    with one.transaction() as transaction:
        one.put(transaction, [TYPE], None, version=1)
    with one.transaction() as transaction:
        assert len(one.claim(transaction)) == 10


# -- several processes -----------------------------------------------------------------------------


@each_scope
async def test_room_of_the_platform_wakes_other_processes(
    store: SqliteStore, other: SqliteStore, scope: Scope
) -> None:
    """P10: the datagram reaches who waits for another tenant's jobs."""
    await store.settings([Put(scope.name, ONE, 0)])
    await store.enqueue([job("a")])
    (lease,) = await store.claim(claim(1, "a"))
    await store.enqueue([job("b", tenant=GLOBEX)])
    assert await store.claim(claim(1, "b")) == []

    async with asyncio.timeout(BOUND_S):
        sleeper = asyncio.create_task(other.wait(Watch(tenants=(GLOBEX,)), SLEEP_S))
        await asyncio.sleep(0)
        await other._mine(other._readers).peek(lambda connection, now: None)
        assert not sleeper.done()
        await store.ack([decide(Completed(), lease.job, lease.token, 0.0)])
        await sleeper

    assert len(await other.claim(claim(1, "c"))) == 1
