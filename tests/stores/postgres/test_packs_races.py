"""Packs that several reach for at once: no job is doubled, lost or held up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.stores.postgres.test_packs import alike, exact, ids, names, packs

from holdfast.job import State
from holdfast.scope import ScopeKind
from holdfast.store import Act, Change, Claim, Find, Ref, Selection
from holdfast.stores.postgres import journey
from holdfast.stores.postgres.step import Step
from holdfast.testing.contract.builders import ACME, LEASE, job

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

    from holdfast.stores.postgres.store import PostgresStore

BOUND_S = 20.0
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'"
    " AND pid <> pg_backend_pid()"
)


def step(store: PostgresStore, connection: Any, again: bool = False) -> Step:
    now = store._clock.now()  # type: ignore[union-attr]
    return Step(connection, store.options.schema, now, True, again)


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
    jobs = alike(0, 200)
    async with asyncio.timeout(BOUND_S):
        async with first.transaction():
            assert await journey.enqueue(step(store, first), jobs, None, "")
            again = asyncio.create_task(
                journey.enqueue(step(store, second, again=True), jobs, None, "")
            )
            await until_one_waits(watch, store.options.schema)
        answers = await again

    assert [(one.id, one.created) for one in answers] == [(id, False) for id in names(0, 200)]
    assert await packs(connect) == [(128, 0), (72, 0)]
    assert await ids(store, 400) == names(0, 200)
    await exact(store)


async def test_a_call_that_comes_after_its_own_repetition_makes_nothing(
    store: PostgresStore, connect: Connect
) -> None:
    """P12: also where its jobs were taken by then; the first try believes that its ids are new."""
    connection = await connect()
    jobs = alike(0, 200)
    await journey.enqueue(step(store, connection, again=True), jobs, None, "")
    await ids(store, 150)

    answers = await journey.enqueue(step(store, connection), jobs, None, "")

    assert not any(one.created for one in answers)
    assert await ids(store, 400) == names(150, 50)
    await exact(store)


async def test_an_open_transaction_that_names_a_job_in_a_pack_holds_up_nobody(
    store: PostgresStore, connect: Connect
) -> None:
    """P15: its enqueue finds the job, and leaves the pack to the claims."""
    await store.enqueue(alike(0, 20))
    connection = await connect()
    async with asyncio.timeout(BOUND_S), connection.transaction():
        known = [job(names(3, 1)[0]), job("new")]
        answers = await journey.enqueue(step(store, connection), known, None, "")
        assert [one.created for one in answers] == [False, True]

        assert await ids(store, 10) == names(0, 10)
        await store.cancel([Ref(ACME, names(15, 1)[0])])
        assert await ids(store, 2) == names(10, 2)

    assert await ids(store, 100) == [*names(12, 3), *names(16, 4), "new"]
    await exact(store)


async def test_a_job_that_an_old_snapshot_did_not_see_is_there_once(
    store: PostgresStore, connect: Connect
) -> None:
    """P12: whoever took its id without seeing the pack keeps it; no claim fails over it."""
    connection = await connect()
    doubled = names(5, 1)[0]
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("SELECT count(*) FROM packs")
        await store.enqueue(alike(0, 20))
        await journey.enqueue(step(store, connection), [job(doubled)], None, "")

    assert sorted(await ids(store, 100)) == names(0, 20)

    await exact(store)
    [tally] = await store.count(ACME, by=ScopeKind.TENANT)
    assert tally.counts == {State.PROCESSING: 20}


async def test_claims_and_those_who_open_packs_share_them_out(store: PostgresStore) -> None:
    """P2, P5: each job is leased once or canceled, deleted or seen on the way; none is lost."""
    number = 1200
    for first in range(0, number, 200):
        await store.enqueue(alike(first, 200))
    leased: list[str] = []
    done = asyncio.Event()

    async def claim(worker: str) -> None:
        for turn in range(1000):
            leases = await store.claim(
                Claim(worker=worker, nonce=f"{worker}{turn}", limit=17, lease_us=LEASE)
            )
            leased.extend(lease.job.id for lease in leases)
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

    assert len(leased) == len(set(leased))
    assert not set(leased) & set(gone)
    assert set(leased) | set(canceled) | set(gone) == set(names(0, number))
    await exact(store)
