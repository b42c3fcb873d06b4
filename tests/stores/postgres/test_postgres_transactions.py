"""Open transactions of others: what they may hold up, and what not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast.core.job import Completed, EventKind, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import TENANT_KINDS, ScopeKind, ScopeSettings, encode
from holdfast.store import Claim, Put, Ref
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.step import Step
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import ACME, CRAWL, LEASE, group_of, job, tenant_of

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

BOUND_S = 10.0


@asynccontextmanager
async def enqueued_in_transaction(
    store: PostgresStore, connect: Connect, *ids: str, **options: Any
) -> AsyncIterator[Any]:
    """Somebody's transaction that has enqueued these jobs; commits at the end of the block."""
    connection = await connect()
    async with connection.transaction():
        step = Step(connection, store.options.schema, store._clock.now(), True)  # type: ignore[union-attr]
        await enqueue_jobs(step, [job(id, **options) for id in ids])
        yield connection


async def claim(store: PostgresStore, limit: int = 10) -> list[str]:
    leases = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=limit, lease_us=LEASE))
    return [lease.job.id for lease in leases]


async def test_an_open_enqueue_holds_up_nobody(store: PostgresStore, connect: Connect) -> None:
    """P15: others of the same tenant enqueue, claim, settle and count as if it were not there."""
    async with asyncio.timeout(BOUND_S), enqueued_in_transaction(store, connect, "open"):
        await store.enqueue([job("a"), job("b")])
        leases = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=1, lease_us=LEASE))
        await store.ack([decide(Completed(), leases[0].job, leases[0].token, 0.0)])
        await store.cancel([Ref(ACME, "b")])
        [tally] = await store.count(ACME, by=ScopeKind.TENANT, recount=True)
        assert tally.counts == {State.COMPLETED: 1, State.CANCELED: 1}
        assert tally.correction == 0
        assert await claim(store) == []

    assert await claim(store) == ["open"]


async def test_a_reader_of_events_passes_over_nothing(
    store: PostgresStore, connect: Connect
) -> None:
    """P14: facts that were numbered before but are committed after are read in their order."""
    await store.enqueue([job("first")])
    async with enqueued_in_transaction(store, connect, "open"):
        await store.enqueue([job("later")])
        page = await store.events(None, 0, 100)
        assert [event.job_id for event in page.events] == ["first"]
        assert (await store.events(None, -1, 100)).cursor == page.cursor

    page = await store.events(None, page.cursor, 100)
    assert [event.job_id for event in page.events] == ["open", "later"]


async def test_a_reader_of_facts_about_many_passes_over_none(
    store: PostgresStore, connect: Connect
) -> None:
    """P14: the numbers of all jobs of a pack are taken before the next fact takes one."""
    many = [f"pack-000000-{n:03}" for n in range(150)]
    await store.enqueue([job("first")])
    async with enqueued_in_transaction(store, connect, *many, fresh=True):
        await store.enqueue([job("later")])
        page = await store.events(None, 0, 1000)
        assert [event.job_id for event in page.events] == ["first"]

    page = await store.events(None, page.cursor, 100)
    assert [event.job_id for event in page.events] == many[:100]
    page = await store.events(None, page.cursor, 100)
    assert [event.job_id for event in page.events] == [*many[100:], "later"]
    assert (await store.events(None, page.cursor, 100)).events == []


async def test_a_transaction_that_is_rolled_back_leaves_nothing(
    store: PostgresStore, connect: Connect
) -> None:
    """P1: no job, no count, no event; and the log goes on."""
    connection = await connect()
    transaction = connection.transaction()
    await transaction.start()
    step = Step(connection, store.options.schema, store._clock.now(), True)  # type: ignore[union-attr]
    await enqueue_jobs(step, [job("gone", key="k")])
    await transaction.rollback()

    await store.enqueue([job("a", key="k")])

    assert await claim(store) == ["a"]
    page = await store.events(None, 0, 100)
    assert [event.job_id for event in page.events] == ["a", "a"]


async def test_settings_that_change_under_an_enqueue_strand_nothing(
    store: PostgresStore, connect: Connect
) -> None:
    """P13: a limit that came after a job was written holds for it, and one that went frees it."""
    async with enqueued_in_transaction(store, connect, "a", "b", group=CRAWL):
        limit = encode(ScopeSettings(max_running=1))
        [setting] = await store.settings([Put(group_of().name, limit, 0)])
    assert await claim(store) == ["a"]

    async with enqueued_in_transaction(store, connect, "c", "d", group=CRAWL):
        await store.settings([Put(group_of().name, None, setting.version)])
    assert sorted(await claim(store)) == ["b", "c", "d"]


async def test_a_cap_holds_for_enqueues_at_the_same_time(
    store: PostgresStore, connect: Connect
) -> None:
    """P15: the second waits for the first to commit, then is told that the tenant is full."""
    cap = encode(ScopeSettings(max_queued=1))
    await store.settings([Put(tenant_of().name, cap, 0)])
    async with asyncio.timeout(BOUND_S):
        async with enqueued_in_transaction(store, connect, "open"):
            second = asyncio.create_task(store.enqueue([job("second")]))
            done, _ = await asyncio.wait([second], timeout=0.2)
            assert not done
        [answer] = await second
    assert answer.error is not None


async def test_two_last_ends_at_a_time_drain_a_group_once(store: PostgresStore) -> None:
    """P14: whichever commits last tells it."""
    for turn in range(20):
        names = [f"{turn}-{n}" for n in range(4)]
        await store.enqueue([job(name, group=CRAWL) for name in names])
        leases = await store.claim(Claim(worker="w", nonce=f"n{turn}", limit=4, lease_us=LEASE))
        ends = [decide(Completed(), lease.job, lease.token, 0.0) for lease in leases]
        await asyncio.gather(*(store.ack([end]) for end in ends))
    page = await store.events(ACME, 0, 1000)
    assert sum(event.kind is EventKind.DRAINED for event in page.events) == 20


async def test_counts_are_exact_whenever_they_are_added_up(
    store: PostgresStore, connect: Connect
) -> None:
    """P13: before, while and after deltas go into the counts."""
    connection = await connect()
    for turn in range(3):
        await store.enqueue([job(f"{turn}-{n}", group=CRAWL) for n in range(5)])
        assert len(await claim(store, 2)) == 2
        await connection.execute("SELECT fold_deltas(7)")
        for kind in TENANT_KINDS:
            [tally] = await store.count(ACME, by=kind)
            assert tally.counts == {
                State.ENQUEUED: 3 * (turn + 1), State.PROCESSING: 2 * (turn + 1),
            }  # fmt: skip
            [tally] = await store.count(ACME, by=kind, recount=True)
            assert tally.correction == 0


async def test_a_transaction_that_wrote_something_else_holds_no_delta_back(
    store: PostgresStore, connect: Connect
) -> None:
    """P15: claims read only what came since the last fold, however long it stays open."""
    other, connection = await connect(), await connect()
    async with other.transaction():
        await other.fetchval("SELECT pg_current_xact_id()")
        await store.enqueue([job(f"{n}") for n in range(5)])
        assert len(await claim(store, 2)) == 2
        head = await connection.fetchval("SELECT last_value FROM cursors")
        await connection.execute("SELECT fold_deltas(1000)")

        assert await connection.fetchval("SELECT deltas_floor FROM store_state") > head
        assert await connection.fetchval("SELECT count(*) FROM deltas") == 0
        assert len(await claim(store, 5)) == 3


async def test_a_transaction_that_enqueued_and_stays_open_loses_no_delta(
    store: PostgresStore, connect: Connect
) -> None:
    """P13: folds of others stop before what it has not committed yet."""
    async with enqueued_in_transaction(store, connect, "open"):
        for turn in range(3):
            await store.enqueue([job(f"{turn}")])
            assert await claim(store) == [f"{turn}"]
            await (await connect()).execute("SELECT fold_deltas(1000)")

    assert await claim(store) == ["open"]
    [tally] = await store.count(ACME, by=ScopeKind.TENANT, recount=True)
    assert tally.correction == 0
