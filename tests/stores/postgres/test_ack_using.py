"""The completion of a job in the caller's transaction: its locks, readers of events, and rights."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import msgspec
import pytest

from holdfast.core.bounds import COMMIT_S_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Envelope, EventKind, Lease, NewJob, Rules, State
from holdfast.core.journal import Entry, EntryKind
from holdfast.core.lifecycle import Transition, completion
from holdfast.store import Claim, Extension
from holdfast.stores.postgres.store import PostgresStore

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres
    from tests.stores.postgres.conftest import Connect

BOUND_S = 10.0
IDLE = "SHOW idle_in_transaction_session_timeout"


def new_job(id: str) -> NewJob:
    sealed = Envelope("send", "json", 1, b"{}")
    return NewJob(tenant="acme", id=id, queue="mail", envelope=sealed, rules=Rules())


async def leased(store: PostgresStore, *ids: str) -> list[Lease]:
    await store.enqueue([new_job(id) for id in ids])
    claim = Claim(worker="w", nonce=f"n-{ids[0]}", limit=len(ids), lease_us=60_000_000)
    return await store.claim(claim)


def done(lease: Lease) -> Transition:
    return completion(lease.job.tenant, lease.job.id, lease.token, b"1")


def longer(lease: Lease, *entries: Entry) -> Extension:
    job = lease.job
    return Extension(
        tenant=job.tenant, id=job.id, token=lease.token, lease_us=90_000_000, entries=entries
    )


async def test_an_open_completion_stops_no_other_call(
    store: PostgresStore, connect: Connect
) -> None:
    """P19: claims, heartbeats, enqueues and acks of other jobs; only the job itself is locked."""
    first, second, third = await leased(store, "a", "b", "c")
    caller = await connect()
    async with caller.transaction():
        assert (await store.ack_using(caller, done(first))).state is State.COMPLETED
        async with asyncio.timeout(BOUND_S):
            await store.enqueue([new_job("d")])
            assert [lease.job.id for lease in await leased(store, "e")] == ["d"]
            [answer] = await store.extend([longer(second)])
            assert answer.error is None
            [acked] = await store.ack([done(third)])
            assert acked.state is State.COMPLETED


async def test_readers_of_events_wait_for_the_commit_and_skip_nothing(
    store: PostgresStore, connect: Connect
) -> None:
    """P14: a transaction that has only begun, and written elsewhere, holds nobody up."""
    first, second = await leased(store, "a", "b")
    caller = await connect()
    async with caller.transaction():
        await caller.execute("CREATE TEMPORARY TABLE own (n int)")
        await store.ack([done(second)])
        before = await store.events("acme", 0, 100)
        assert before.events[-1].job_id == "b"
        await store.ack_using(caller, done(first))
        await store.enqueue([new_job("c")])
        during = await store.events("acme", before.cursor, 100)
        assert list(during.events) == []

    after = await store.events("acme", before.cursor, 100)
    assert [(event.job_id, event.kind) for event in after.events] == [
        ("a", EventKind.COMPLETED), ("c", EventKind.ENQUEUED),
    ]  # fmt: skip


async def test_a_heartbeat_during_the_transaction_does_not_matter(
    store: PostgresStore, connect: Connect
) -> None:
    """It writes a new version of the job's row, which the completion finds."""
    [lease] = await leased(store, "a")
    caller = await connect()
    async with caller.transaction():
        await caller.fetchval("SELECT txid_current()")
        await store.extend([longer(lease)])
        extending = asyncio.create_task(store.extend([longer(lease)]))
        answer = await store.ack_using(caller, done(lease))
        assert answer.error is None
    await extending

    assert (await store.ack([done(lease)]))[0].error is not None


async def test_a_commit_that_does_not_come_ends_the_session(
    store: PostgresStore, connect: Connect
) -> None:
    """P19: it would hold readers of events up. The setting is the transaction's own; a shorter one
    of the caller is kept.
    """
    leases = await leased(store, "a", "b", "c")
    caller = await connect()
    async with caller.transaction():
        await store.ack_using(caller, done(leases[0]))
        assert await caller.fetchval(IDLE) == f"{COMMIT_S_MAX:g}s"
    assert await caller.fetchval(IDLE) == "0"

    await caller.execute("SET idle_in_transaction_session_timeout = '100ms'")
    transaction = caller.transaction()
    await transaction.start()
    await store.ack_using(caller, done(leases[1]))
    assert await caller.fetchval(IDLE) == "100ms"
    ended = asyncio.Event()
    caller.add_termination_listener(lambda _: ended.set())
    async with asyncio.timeout(BOUND_S):
        await ended.wait()

    [answer] = await store.extend([longer(leases[1])])
    assert answer.error is None


async def test_a_role_without_rights_on_the_tables_completes_nothing(
    server: Postgres, store: PostgresStore, connect: Connect
) -> None:
    """P7: the function has the rights of its caller, whatever token he knows."""
    [lease] = await leased(store, "a")
    admin, owner = await asyncpg.connect(server.admin_url), await connect()
    schema = store.options.schema
    await admin.execute("CREATE ROLE guest LOGIN")
    await owner.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO guest')
    guest = await asyncpg.connect(server.url.replace("holdfast@", "guest@"))
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with guest.transaction():
                await store.ack_using(guest, done(lease))
    finally:
        await guest.close()
        await owner.execute(f'REVOKE USAGE ON SCHEMA "{schema}" FROM guest')
        await admin.execute("DROP ROLE guest")
        await admin.close()

    [answer] = await store.extend([longer(lease)])
    assert answer.error is None


async def test_journal_entries_are_no_part_of_it(store: PostgresStore, connect: Connect) -> None:
    """They are stored before, by an extension; the function would drop them."""
    [lease] = await leased(store, "a")
    change = completion("acme", "a", lease.token)
    entry = Entry(EntryKind.LOG, "", b'["line"]')
    caller = await connect()
    with pytest.raises(InvalidInput, match="without journal entries"):
        await store.ack_using(caller, msgspec.structs.replace(change, entries=(entry,)))
