"""Opening, losing and finding the server again; and who may write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast.core.errors import ConfigError, SchemaTooNew, StoreReadOnly, StoreUnavailable
from holdfast.core.finding import Level
from holdfast.store import Claim, Watch
from holdfast.stores.postgres.doctor import examine
from holdfast.stores.postgres.layout import SCHEMA_VERSION
from holdfast.stores.postgres.options import parse
from holdfast.stores.postgres.schema import schema_files
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import LEASE, MAIL, job

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

BOUND_S = 20.0


def test_the_newest_schema_file_is_the_version() -> None:
    """P1: numbers go up by one, and the code knows the last."""
    numbers = [number for number, _ in schema_files()]
    assert numbers == list(range(numbers[0], SCHEMA_VERSION + 1))


async def test_many_may_open_an_empty_schema_at_once(url: str) -> None:
    """P15: one makes the tables, the others wait for it."""
    stores = [PostgresStore.from_url(url) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.close() for store in stores))

    assert await PostgresStore.from_url(url).migrate() == SCHEMA_VERSION


async def test_a_newer_schema_is_refused(store: PostgresStore, connect: Connect, url: str) -> None:
    """P15: with what to do about it."""
    connection = await connect()
    await connection.execute("INSERT INTO schema_version VALUES (9999)")

    with pytest.raises(SchemaTooNew) as caught:
        await PostgresStore.from_url(url).open()

    assert caught.value.facts["found"] == 9999


async def test_a_killed_connection_is_made_anew(store: PostgresStore, connect: Connect) -> None:
    """P15: the call that finds it dead is tried again, and its caller hears nothing of it."""
    await store.enqueue([job("a")])
    connection = await connect()
    for _ in range(3):
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND usename = current_user"
        )
        [answer] = await store.enqueue([job("a")])
        assert answer.error is None
        [answer] = await store.enqueue([job("a")], whole=True)
        assert answer.error is None
    leases = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=5, lease_us=LEASE))
    assert [lease.job.id for lease in leases] == ["a"]


async def test_who_may_only_read_is_told(store: PostgresStore, connect: Connect, url: str) -> None:
    """P15: StoreReadOnly, when it is opened."""
    connection = await connect()
    await connection.execute("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on")
    try:
        with pytest.raises(StoreReadOnly):
            await PostgresStore.from_url(url).open()
    finally:
        await connection.execute("ALTER ROLE CURRENT_USER RESET default_transaction_read_only")


async def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    """P15: after the time that the URL gives it."""
    store = PostgresStore.from_url("postgresql://shop:sesame@127.0.0.1:1/shop?retry_s=0.2")

    with pytest.raises(StoreUnavailable) as caught:
        await store.open()

    assert "127.0.0.1:1/shop" in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("scheme=x", "schema"),
        ("schema=A-b", "schema"),
        ("notify=maybe", "notify"),
        ("connections=0", "connections"),
        ("timeout_s=never", "timeout_s"),
        ("retry_s=0", "retry_s"),
    ],
)
def test_a_wrong_option_is_named(query: str, word: str) -> None:
    """P15: what it is, and what it may be."""
    with pytest.raises(ConfigError) as caught:
        parse(f"postgresql://localhost/shop?{query}")

    assert word in str(caught.value)


def test_what_is_not_ours_goes_to_the_driver() -> None:
    """P15: sslmode and the like are the driver's."""
    options = parse("postgres://ann:pw@db/shop?sslmode=require&schema=s&events=off")

    assert options.dsn == "postgresql://ann:pw@db/shop?sslmode=require"
    assert (options.schema, options.events) == ("s", False)


async def test_another_process_is_heard(url: str) -> None:
    """P10: a store of its own wakes who sleeps here, long before the next look."""
    here, there = PostgresStore.from_url(url), PostgresStore.from_url(url)
    await here.open()
    await there.open()
    try:
        async with asyncio.timeout(BOUND_S):
            while not here._notifications.hears:
                await here.wait(Watch(queues=(MAIL,)), 0.1)
            sleeper = asyncio.create_task(here.wait(Watch(queues=(MAIL,)), 50.0))
            await there.enqueue([job("a")])
            await sleeper
        leases = await here.claim(Claim(worker="w", nonce=uuid4().hex, limit=1, lease_us=LEASE))
        assert len(leases) == 1
    finally:
        await here.close()
        await there.close()


async def test_it_works_without_session_state(url: str) -> None:
    """P15: as a pooler by transaction needs it."""
    joiner = "&" if "?" in url else "?"
    store = PostgresStore.from_url(f"{url}{joiner}prepared=off&notify=off")
    await store.open()
    try:
        await store.enqueue([job("a")])
        leases = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=1, lease_us=LEASE))
        assert len(leases) == 1
    finally:
        await store.close()


async def test_the_doctor_finds_its_way(store: PostgresStore) -> None:
    """P15: nothing bad about a fresh store; each finding says something."""
    findings = await examine(store)

    assert all(finding.words for finding in findings)
    assert not [finding for finding in findings if finding.level is Level.BAD]


async def test_ids_of_transactions_that_start_over_lose_no_count(
    store: PostgresStore, connect: Connect
) -> None:
    """P13: a dump that is restored elsewhere has higher ids in it than the new server gives out."""
    await store.enqueue([job("a")])
    connection = await connect()
    await connection.execute("UPDATE store_state SET last_refresh = '999999999999:999999999999:'")
    await store.close()
    await store.open()

    leases = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=1, lease_us=LEASE))
    assert [lease.job.id for lease in leases] == ["a"]
