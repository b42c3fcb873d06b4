"""Who waits for the end of a job is woken by whoever ends it, in whichever process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest

from holdfast.core.job import Completed, Failed, Lease, Outcome
from holdfast.core.lifecycle import decide
from holdfast.store import Act, Claim, Ref, Watch
from holdfast.stores.postgres import notify
from holdfast.stores.postgres import store as module
from holdfast.stores.postgres.step import Step
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import ACME, LEASE, changing, job

BOUND_S = 30.0
LONG_S = 60.0
"""A poll that is never reached."""


@pytest.fixture
async def other(url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another process, as far as the store can tell."""
    other = PostgresStore.from_url(url, store._clock)
    await other.open()
    yield other
    await other.close()


async def held(store: PostgresStore, id: str) -> Lease:
    [lease] = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=1, lease_us=LEASE))
    assert lease.job.id == id
    return lease


async def end(store: PostgresStore, lease: Lease, outcome: Outcome) -> None:
    [acked] = await store.ack([decide(outcome, lease.job, lease.token, 0.0)])
    assert acked.error is None


async def completes(store: PostgresStore, id: str) -> None:
    await end(store, await held(store, id), Completed())


async def fails(store: PostgresStore, id: str) -> None:
    await end(store, await held(store, id), Failed("no", retryable=False))


async def cancels(store: PostgresStore, id: str) -> None:
    [answer] = await store.cancel([Ref(ACME, id)])
    assert answer.canceled


async def deletes(store: PostgresStore, id: str) -> None:
    await store.change(changing(Act.DELETE, ids=(id,)))


Way = Callable[[PostgresStore, str], Awaitable[None]]


@pytest.mark.parametrize("way", [completes, fails, cancels, deletes])
async def test_a_sleeper_is_woken_by_the_end_of_its_job(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    """P8: by another process, without waiting for its own next look."""
    monkeypatch.setattr(module, "POLL_S", LONG_S)
    await store.enqueue([job("a")])
    looks = asyncio.Event()
    soonest = notify.next_wakeup

    async def look(step: Step, watch: Watch, hears: bool) -> float:
        delay_s = await soonest(step, watch, hears)
        looks.set()
        return delay_s

    monkeypatch.setattr(notify, "next_wakeup", look)
    async with asyncio.timeout(BOUND_S):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(store.wait(Watch(job=Ref(ACME, "a")), LONG_S))
            await looks.wait()
            await way(other, "a")


async def test_nobody_is_told_of_jobs_that_nobody_waits_for(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: an end costs no notification then."""
    heard: list[str] = []
    last = asyncio.Event()

    def hear(*given: object) -> None:
        heard.append(str(given[-1]))
        if "last" in heard[-1]:
            last.set()

    monkeypatch.setattr(store._notifications, "_heard", hear)
    await store._notifications.listen(BOUND_S)
    assert store._notifications.hears
    await other.enqueue([job("a")])
    await completes(other, "a")

    await other.enqueue([job("b", queue="last")])
    async with asyncio.timeout(BOUND_S):
        await last.wait()

    assert len(heard) == 2  # Both enqueues, and nothing else.
