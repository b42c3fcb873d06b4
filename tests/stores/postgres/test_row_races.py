"""Jobs that several calls reach for at once: none is lost, doubled, ended twice or held up."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.postgres.row_jobs import (
    GONE,
    complete,
    done,
    exact,
    extension,
    ids,
    jobs,
    later,
    leased,
    names,
    step,
)

from holdfast.core.errors import JobCanceled, JobNotFound
from holdfast.core.job import EventKind, Failed
from holdfast.core.lifecycle import decide
from holdfast.core.scope import ScopeKind
from holdfast.store import Act, Change, Claim, Find, Ref, Selection
from holdfast.stores.postgres.ack import complete_jobs
from holdfast.stores.postgres.cancel import cancel_jobs
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.extend import extend_leases
from holdfast.testing.contract.builders import ACME, LEASE, job, rules

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

    from holdfast.stores.postgres.store import PostgresStore

BOUND_S = 20.0
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'"
    " AND pid <> pg_backend_pid()"
)


async def until_one_waits(connection: Any, schema: str) -> None:
    """Until a call in this schema waits for somebody's lock."""
    waits = 0
    while not waits:
        waits = await connection.fetchval(WAITS.format(schema))


async def test_a_call_repeated_while_its_first_try_is_under_way_makes_nothing(
    store: PostgresStore, connect: Connect
) -> None:
    """P12: it waits for the first, and finds its jobs."""
    first, second, watch = [await connect() for _ in range(3)]
    new = jobs(0, 200)
    async with asyncio.timeout(BOUND_S):
        async with first.transaction():
            assert await enqueue_jobs(step(store, first), new)
            again = asyncio.create_task(enqueue_jobs(step(store, second, again=True), new))
            await until_one_waits(watch, store.options.schema)
        answers = await again

    assert [(one.id, one.created) for one in answers] == [(id, False) for id in names(0, 200)]
    assert await ids(store, 400) == names(0, 200)
    await exact(store)


async def test_a_call_that_comes_after_its_own_repetition_makes_nothing(
    store: PostgresStore, connect: Connect
) -> None:
    """P12: also where its jobs were taken by then."""
    connection = await connect()
    new = jobs(0, 200)
    await enqueue_jobs(step(store, connection, again=True), new)
    await ids(store, 150)

    answers = await enqueue_jobs(step(store, connection), new)

    assert not any(one.created for one in answers)
    assert await ids(store, 400) == names(150, 50)
    await exact(store)


async def test_an_open_transaction_that_names_a_waiting_job_holds_up_nobody(
    store: PostgresStore, connect: Connect
) -> None:
    """P15: its enqueue finds the job, and leaves it to the claims."""
    await store.enqueue(jobs(0, 20))
    connection = await connect()
    async with asyncio.timeout(BOUND_S), connection.transaction():
        known = [job(names(3, 1)[0]), job("new")]
        answers = await enqueue_jobs(step(store, connection), known)
        assert [one.created for one in answers] == [False, True]

        assert await ids(store, 10) == names(0, 10)
        await store.cancel([Ref(ACME, names(15, 1)[0])])
        assert await ids(store, 2) == names(10, 2)

    assert await ids(store, 100) == [*names(12, 3), *names(16, 4), "new"]
    await exact(store)


async def test_claims_cancels_and_deletes_share_the_jobs_out(store: PostgresStore) -> None:
    """P2, P5: each job is leased once or canceled, deleted or seen on the way; none is lost."""
    number = 1200
    for first in range(0, number, 200):
        await store.enqueue(jobs(first, 200))
    taken: list[str] = []
    done = asyncio.Event()

    async def claim(worker: str) -> None:
        for turn in range(1000):
            leases = await store.claim(
                Claim(worker=worker, nonce=f"{worker}{turn}", limit=17, lease_us=LEASE)
            )
            taken.extend(lease.job.id for lease in leases)
            if not leases and done.is_set():
                return

    async def cancel() -> list[str]:
        asked = names(0, number)[7::60]
        answers = [(await store.cancel([Ref(ACME, id)]))[0] for id in asked]
        assert all(one.canceled for one in answers)
        return asked

    async def delete() -> list[str]:
        gone: list[str] = []
        for id in names(0, number)[13::90]:
            select = Selection(tenant=ACME, ids=(id,))
            changed = await store.change(Change(act=Act.DELETE, select=select, limit=5))
            gone += [ref.id for ref in changed.done]
        return gone

    async def look() -> None:
        for id in names(0, number)[3::40]:
            page = await store.find(Find(select=Selection(tenant=ACME, ids=(id,)), limit=5))
            assert len(page.jobs) <= 1

    async def others() -> tuple[list[str], list[str]]:
        canceled, gone, _ = await asyncio.gather(cancel(), delete(), look())
        done.set()
        return canceled, gone

    async with asyncio.timeout(BOUND_S * 3):
        (canceled, gone), *_ = await asyncio.gather(others(), claim("w1"), claim("w2"), claim("w3"))

    assert len(taken) == len(set(taken))
    assert not set(taken) & set(gone)
    assert set(taken) | set(canceled) | set(gone) == set(names(0, number))
    await exact(store)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_claim_does_not_wait_for_an_ack_of_lapsed_leases(
    store: PostgresStore, connect: Connect, commits: bool
) -> None:
    """P2, P15: it passes over the jobs of the ack; the next claim rescues them on rollback."""
    leases = await leased(store, 10)
    await store.enqueue([job("other")])
    connection = await connect()
    transaction = connection.transaction()
    async with asyncio.timeout(BOUND_S):
        await transaction.start()
        acked = await complete_jobs(step(store, connection), done(leases[:4]))
        later(store)

        assert acked == {0, 1, 2, 3}
        assert await ids(store, 100, nonce="b") == [*names(4, 6), "other"]
        assert {one.job.id for one in await store.expired(100)} == set(names(0, 4))
        await store.prune(100, 0)
        await (transaction.commit() if commits else transaction.rollback())

    assert await ids(store, 100, nonce="c") == ([] if commits else names(0, 4))
    await exact(store)


@pytest.mark.parametrize("commits", [True, False])
async def test_one_of_two_acks_of_a_job_ends_it(
    store: PostgresStore, connect: Connect, commits: bool
) -> None:
    """P4: the other hears that it is gone, or ends it if the first rolls back."""
    leases = await leased(store, 10)
    connection, watch = await connect(), await connect()
    transaction = connection.transaction()
    async with asyncio.timeout(BOUND_S):
        await transaction.start()
        await complete_jobs(step(store, connection), done(leases[:1]))
        second = asyncio.create_task(complete(store, leases[:2]))
        await until_one_waits(watch, store.options.schema)
        await (transaction.commit() if commits else transaction.rollback())
        answers = await second

    wrong = [type(one.error) for one in answers if one.error is not None]
    assert wrong == ([JobNotFound] if commits else [])
    await exact(store)


async def test_an_ack_completes_what_an_extension_renews_just_now(
    store: PostgresStore, connect: Connect
) -> None:
    """P4: it waits for the extension, whose token is its own."""
    leases = await leased(store, 10)
    connection, watch = await connect(), await connect()
    async with asyncio.timeout(BOUND_S):
        async with connection.transaction():
            asked = [extension(one) for one in leases[:5]]
            renewed = await extend_leases(step(store, connection), asked)
            second = asyncio.create_task(complete(store, leases[3:7]))
            await until_one_waits(watch, store.options.schema)
        answers = await second

    assert [one.error for one in renewed] == [None] * 5
    assert [one.error for one in answers] == [None] * 4
    await exact(store)


@pytest.mark.parametrize("keep", [True, False])
async def test_cancel_wins_over_an_ack_that_comes_while_it_is_under_way(
    store: PostgresStore, connect: Connect, keep: bool
) -> None:
    """P5: the ack is refused, whatever it saw when it began."""
    leases = await leased(store, 10, rules=rules() if keep else GONE)
    connection, watch = await connect(), await connect()
    async with asyncio.timeout(BOUND_S):
        async with connection.transaction():
            refs = [Ref(ACME, leases[2].job.id)]
            [canceled] = await cancel_jobs(step(store, connection), refs)
            second = asyncio.create_task(complete(store, leases[1:4]))
            await until_one_waits(watch, store.options.schema)
        answers = await second

    assert canceled.canceled
    wrong = JobCanceled if keep else JobNotFound
    assert [type(one.error) for one in answers] == [type(None), wrong, type(None)]
    await exact(store)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_cancel_waits_for_the_ack_of_its_job(
    store: PostgresStore, connect: Connect, commits: bool
) -> None:
    """P5, P6: it finds the job ended, or cancels it if the ack rolls back."""
    leases = await leased(store, 10, rules=rules())
    connection, watch = await connect(), await connect()
    transaction = connection.transaction()
    async with asyncio.timeout(BOUND_S):
        await transaction.start()
        await complete_jobs(step(store, connection), done(leases[:1]))
        second = asyncio.create_task(store.cancel([Ref(ACME, leases[0].job.id)]))
        await until_one_waits(watch, store.options.schema)
        await (transaction.commit() if commits else transaction.rollback())
        [answer] = await second

    assert (answer.canceled, answer.error) == (not commits, None)
    await exact(store)


async def test_each_job_ends_once_whoever_reaches_for_it(store: PostgresStore) -> None:
    """P2, P4, P5: workers that complete, fail, renew and fall silent, among cancels and looks."""
    number = 1500
    for first in range(0, number, 250):
        await store.enqueue(jobs(first, 250, rules=rules(keep_us=0, max_attempts=50)))
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
