"""Pieces that several reach for at once: no job is lost, doubled, ended twice or held up."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.postgres.test_packs import alike, exact, ids, names, take
from tests.stores.postgres.test_packs_races import step, until_one_waits
from tests.stores.postgres.test_pieces import (
    GONE,
    complete,
    extension,
    later,
    pieces,
)

from holdfast.errors import InvalidLeaseToken, JobCanceled, JobNotFound
from holdfast.job import Completed, EventKind, Failed, Lease, State
from holdfast.lifecycle import Transition, decide
from holdfast.scope import ScopeKind
from holdfast.store import Claim, Find, Ref, Selection
from holdfast.stores.postgres import journey, will
from holdfast.testing.contract.builders import ACME, LEASE, job, rules

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

    from holdfast.stores.postgres.store import PostgresStore

BOUND_S = 20.0


def done(leases: list[Lease]) -> list[Transition]:
    return [decide(Completed(), one.job, one.token, 0.0) for one in leases]


async def held(store: PostgresStore, number: int, **options: Any) -> list[Lease]:
    """So many jobs in one piece."""
    await store.enqueue(alike(0, number, **{"rules": GONE, **options}))
    return await take(store, number)


# -- an ack that has not ended yet -----------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
async def test_a_claim_does_not_wait_for_an_ack_in_a_lapsed_piece(
    store: PostgresStore, connect: Connect, commits: bool
) -> None:
    """P2, P15: it passes the piece over; what the ack leaves is rescued by the next."""
    leases = await held(store, 10)
    await store.enqueue([job("other")])
    connection = await connect()
    transaction = connection.transaction()
    async with asyncio.timeout(BOUND_S):
        await transaction.start()
        acked = await journey.complete(step(store, connection), done(leases[:4]), None, "")
        later(store)

        assert acked == {0, 1, 2, 3}
        assert await ids(store, 100, nonce="b") == ["other"]
        assert await store.expired(100) == []
        await store.prune(100, 0)
        await (transaction.commit() if commits else transaction.rollback())

    assert await ids(store, 100, nonce="c") == names(4 if commits else 0, 6 if commits else 10)
    await exact(store)


async def test_two_acks_of_one_piece_wait_for_each_other(
    store: PostgresStore, connect: Connect
) -> None:
    """P4: the second adds to what the first has done."""
    leases = await held(store, 10)
    connection, watch = await connect(), await connect()
    async with asyncio.timeout(BOUND_S):
        async with connection.transaction():
            await journey.complete(step(store, connection), done(leases[:4]), None, "")
            second = asyncio.create_task(complete(store, leases[4:8]))
            await until_one_waits(watch, store.options.schema)
        answers = await second

    assert [one.error for one in answers] == [None] * 4
    assert await pieces(connect) == [(10, 2)]
    await exact(store)


@pytest.mark.parametrize("commits", [True, False])
async def test_one_of_two_acks_of_a_job_ends_it(
    store: PostgresStore, connect: Connect, commits: bool
) -> None:
    """P4: the other hears that it is gone, or ends it if the first came to nothing."""
    leases = await held(store, 10)
    connection, watch = await connect(), await connect()
    transaction = connection.transaction()
    async with asyncio.timeout(BOUND_S):
        await transaction.start()
        await journey.complete(step(store, connection), done(leases[:1]), None, "")
        second = asyncio.create_task(complete(store, leases[:2]))
        await until_one_waits(watch, store.options.schema)
        await (transaction.commit() if commits else transaction.rollback())
        answers = await second

    wrong = [type(one.error) for one in answers if one.error is not None]
    assert wrong == ([JobNotFound] if commits else [])
    assert await pieces(connect) == [(10, 8)]
    await exact(store)


# -- those who open --------------------------------------------------------------------------------


async def test_an_ack_finds_what_is_moved_to_rows_just_now(
    store: PostgresStore, connect: Connect
) -> None:
    """P4: what it waited for stands in a row by then, and what stayed is still in the piece."""
    leases = await held(store, 10)
    connection, watch = await connect(), await connect()
    async with asyncio.timeout(BOUND_S):
        async with connection.transaction():
            asked = [extension(one) for one in leases[:5]]
            renewed = await journey.extend(step(store, connection), asked)
            second = asyncio.create_task(complete(store, leases[3:7]))
            await until_one_waits(watch, store.options.schema)
        answers = await second

    assert [one.error for one in renewed] == [None] * 5
    assert [one.error for one in answers] == [None] * 4
    assert await pieces(connect) == [(10, 3)]
    await exact(store)


@pytest.mark.parametrize("keep", [True, False])
async def test_cancel_wins_over_an_ack_that_comes_while_it_is_under_way(
    store: PostgresStore, connect: Connect, keep: bool
) -> None:
    """P5: the ack is told, whatever it saw when it began."""
    leases = await held(store, 10, rules=rules() if keep else GONE)
    connection, watch = await connect(), await connect()
    async with asyncio.timeout(BOUND_S):
        async with connection.transaction():
            refs = [Ref(ACME, leases[2].job.id)]
            [canceled] = await will.cancel(step(store, connection), refs, None, "")
            second = asyncio.create_task(complete(store, leases[1:4]))
            await until_one_waits(watch, store.options.schema)
        answers = await second

    assert canceled.canceled
    wrong = JobCanceled if keep else JobNotFound
    assert [type(one.error) for one in answers] == [type(None), wrong, type(None)]
    assert await pieces(connect) == [(10, 7)]
    await exact(store)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_cancel_waits_for_the_ack_of_its_job(
    store: PostgresStore, connect: Connect, commits: bool
) -> None:
    """P5, P6: it finds the job ended, or cancels it if the ack came to nothing."""
    leases = await held(store, 10, rules=rules())
    connection, watch = await connect(), await connect()
    transaction = connection.transaction()
    async with asyncio.timeout(BOUND_S):
        await transaction.start()
        await journey.complete(step(store, connection), done(leases[:1]), None, "")
        second = asyncio.create_task(store.cancel([Ref(ACME, leases[0].job.id)]))
        await until_one_waits(watch, store.options.schema)
        await (transaction.commit() if commits else transaction.rollback())
        [answer] = await second

    assert (answer.canceled, answer.error) == (not commits, None)
    await exact(store)


async def test_two_who_open_one_piece_share_it(store: PostgresStore, connect: Connect) -> None:
    """P2: what the first took out the second finds in rows, and takes out what is left."""
    leases = await held(store, 10)
    connection, watch = await connect(), await connect()
    async with asyncio.timeout(BOUND_S):
        async with connection.transaction():
            await journey.extend(step(store, connection), [extension(one) for one in leases[:6]])
            second = asyncio.create_task(store.extend([extension(one) for one in leases[4:]]))
            await until_one_waits(watch, store.options.schema)
        answers = await second

    assert [one.error for one in answers] == [None] * 6
    assert await pieces(connect) == []
    assert [one.error for one in await complete(store, leases)] == [None] * 10
    assert await store.count(ACME) == []


# -- old snapshots ---------------------------------------------------------------------------------


async def test_a_job_in_a_piece_that_an_old_snapshot_did_not_see_gives_way(
    store: PostgresStore, connect: Connect
) -> None:
    """P12: once both are rows there is one, and the counts know; nothing fails over it."""
    connection = await connect()
    doubled = names(5, 1)[0]
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("SELECT count(*) FROM packs")
        leases = await held(store, 10)
        await journey.enqueue(step(store, connection), [job(doubled)], None, "")

    answers = await store.extend([extension(one) for one in leases])

    wrong = {one.id: type(one.error) for one in answers if one.error is not None}
    assert wrong == {doubled: InvalidLeaseToken}
    await exact(store)
    [tally] = await store.count(ACME, by=ScopeKind.TENANT)
    assert tally.counts == {State.PROCESSING: 9, State.ENQUEUED: 1}
    assert await ids(store, 10) == [doubled]


# -- everybody -------------------------------------------------------------------------------------


async def test_each_job_ends_once_whoever_reaches_for_it(store: PostgresStore) -> None:
    """P2, P4, P5: workers that complete, fail, renew and fall silent, among cancels and looks."""
    number = 1500
    for first in range(0, number, 250):
        await store.enqueue(alike(first, 250, rules=rules(keep_us=0, max_attempts=50)))
    chance = random.Random(7)
    left = asyncio.Event()

    async def work(worker: str) -> None:
        for turn in range(2000):
            leases = await store.claim(
                Claim(worker=worker, nonce=f"{worker}{turn}", limit=23, lease_us=LEASE)
            )
            if not leases:
                if not await store.count(ACME, by=ScopeKind.TENANT):
                    left.set()
                    return
                later(store)  # Whoever fell silent is rescued, and what failed is due.
                continue
            if chance.random() < 0.2:
                await store.extend([extension(one) for one in leases[::3]])
            # Of 23 jobs some are acked twice at once, and some not at all.
            changes = done(leases)
            for place, one in enumerate(leases):
                if one.job.attempt < 4 and chance.random() < 0.1:
                    changes[place] = decide(Failed(error="x"), one.job, one.token, 0.0)
            chance.shuffle(changes)
            await asyncio.gather(store.ack(changes[:7]), store.ack(changes[5:16]))

    async def cancel() -> None:
        for id in names(0, number)[7::60]:
            await store.cancel([Ref(ACME, id)])

    async def look() -> None:
        while not left.is_set():
            select = Selection(tenant=ACME, ids=(chance.choice(names(0, number)),))
            assert len((await store.find(Find(select=select, limit=5))).jobs) <= 1
            await store.expired(50)

    async with asyncio.timeout(BOUND_S * 4):
        await asyncio.gather(cancel(), look(), *(work(f"w{n}") for n in range(4)))

    ends: Counter[str] = Counter()
    after, more = 0, True
    while more:
        page = await store.events(ACME, after, 1000)
        for event in page.events:
            ends[event.job_id] += event.kind in (EventKind.COMPLETED, EventKind.CANCELED)
        more, after = bool(page.events), page.cursor
    assert set(ends.values()) == {1}
    assert len(ends) == number
    await exact(store)
