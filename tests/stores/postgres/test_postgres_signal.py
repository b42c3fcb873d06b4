"""Signals: two processes never miss each other, and what a signal does not wake stays so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from tests.stores.postgres.row_jobs import complete, exact, step, take
from tests.stores.postgres.test_flat_claims import a_claim
from tests.stores.postgres.test_flat_tiers import TOUCHED

from holdfast.core.bounds import INSTANT_MAX, SIGNALS_MAX
from holdfast.core.errors import JournalFull
from holdfast.core.job import EventKind, Lease, Parked, State
from holdfast.core.journal import Signal, await_signal
from holdfast.core.lifecycle import Transition, decide
from holdfast.core.scope import Scope, ScopeKind, ScopeSettings, encode
from holdfast.store import Put
from holdfast.stores.postgres.claim import claim_jobs
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import ACME, finding, job

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect


@pytest.fixture
async def other(url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another process, as far as the store can tell."""
    other = PostgresStore.from_url(url, store._clock)
    await other.open()
    yield other
    await other.close()


def park(lease: Lease) -> Transition:
    parked = Parked(run_at=INSTANT_MAX, awaits=await_signal("go"))
    return decide(parked, lease.job, lease.token, 0.0)


async def test_a_signal_of_one_process_meets_the_park_of_another(
    store: PostgresStore, other: PostgresStore
) -> None:
    """P10: whichever of them commits first, the job becomes ready, once."""
    for number in range(30):
        await store.enqueue([job(f"j{number}")])
        [lease] = await take(store, 1)

        acked, sent, again = await asyncio.gather(
            store.ack([park(lease)]),
            other.signal([Signal(ACME, f"j{number}", "go", b"1")]),
            store.signal([Signal(ACME, f"j{number}", "go", b"2")]),
        )

        assert acked[0].error is None
        assert sent[0].stored is not again[0].stored
        [ready] = await take(other, 10)
        assert ready.journal[0].value == (b"1" if sent[0].stored else b"2")
        await complete(other, [ready])
    kinds = [event.kind for event in (await store.events(ACME, 0, 1000)).events]
    assert kinds.count(EventKind.SIGNALED) == 30
    await exact(store)


@pytest.mark.parametrize("names", [("go", "other"), ("other", "go")])
async def test_signals_of_one_call_all_count(store: PostgresStore, names: tuple[str, str]) -> None:
    """P19: also if one of them wakes the job."""
    await store.enqueue([job("a")])
    [lease] = await take(store, 1)
    await store.ack([park(lease)])
    await store.signal([Signal(ACME, "a", name, b"\0\xff") for name in names])

    more = [Signal(ACME, "a", f"s{number}", b"1") for number in range(SIGNALS_MAX - 1)]
    answers = await store.signal(more)

    assert [answer.stored for answer in answers] == [True] * (SIGNALS_MAX - 2) + [False]
    assert isinstance(answers[-1].error, JournalFull)
    assert len((await take(store, 1))[0].journal) == SIGNALS_MAX


async def test_a_signal_lets_no_job_past_its_group(store: PostgresStore) -> None:
    """P13: a job that waits for its group still does."""
    group = Scope(ACME, ScopeKind.GROUP, "g")
    await store.settings([Put(group.name, encode(ScopeSettings(ordered=True)), 0)])
    await store.enqueue([job("a", group="g"), job("b", group="g")])

    await store.signal([Signal(ACME, "b", "go", b"1")])

    assert [lease.job.id for lease in await take(store, 10)] == ["a"]
    assert {each.id: each.state for each in (await store.find(finding())).jobs} == {
        "a": State.PROCESSING,
        "b": State.ENQUEUED,
    }


async def test_idle_claims_do_not_read_parked_jobs(store: PostgresStore, connect: Connect) -> None:
    """P10: what waits for a signal costs them nothing."""
    await store.enqueue([job(f"j{number}") for number in range(50)])
    await store.ack([park(lease) for lease in await take(store, 50)])
    await take(store, 1)  # It adds the deltas up.
    connection = await connect()
    async with connection.transaction():
        assert (await claim_jobs(step(store, connection), a_claim(10), True)).leases == []
        found = {table: rows for table, *rows in await connection.fetch(TOUCHED)}

    assert found["jobs"] == [0, 0]
