"""Life: open, close, migrate, and one store used from several threads and event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.core.job import Completed, Lease, State
from holdfast.core.lifecycle import decide
from holdfast.store import Claim
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, MAIL, finding, job
from holdfast.testing.contract.racing import in_threads


async def test_a_store_may_be_closed_twice(bench: Bench) -> None:
    """P15: closing is safe to repeat."""
    await bench.store.close()
    await bench.store.close()

    with pytest.raises(StoreUnavailable):
        await bench.claim(1)


async def test_a_closed_store_says_so(bench: Bench) -> None:
    """P1: an enqueue that was not kept does not look as if it were."""
    await bench.store.close()

    with pytest.raises(StoreUnavailable):
        await bench.put("a")
    with pytest.raises(StoreUnavailable):
        await bench.store.find(finding())


async def test_migrating_twice_gives_the_same_version(bench: Bench) -> None:
    """P15: migrate is safe to repeat, and keeps every job."""
    await bench.put("a")

    first, second = await bench.store.migrate(), await bench.store.migrate()

    assert first == second
    assert first >= 1
    assert await bench.state("a") is State.ENQUEUED


async def test_many_may_migrate_at_once(bench: Bench) -> None:
    """P15: a whole deployment starts together."""
    versions = await asyncio.gather(*(bench.store.migrate() for _ in range(8)))

    assert len(set(versions)) == 1


async def test_capabilities_are_declared(bench: Bench) -> None:
    """P15: every difference that a caller can notice has a value."""
    declared = bench.store.capabilities

    assert declared.time_precision_us >= 1
    assert declared.payload_max is None or declared.payload_max > 0


async def test_two_event_loops_may_use_one_store_at_once(bench: Bench) -> None:
    """P2: every verb may be called from any thread that runs an event loop."""
    rounds, width = 20, 5
    leased: list[tuple[str, str]] = []

    def worker(tenant: str) -> Callable[[], Awaitable[int]]:
        async def work() -> int:
            for n in range(rounds):
                jobs = [job(f"{n}-{k}", tenant=tenant) for k in range(width)]
                assert all(answer.created for answer in await bench.store.enqueue(jobs))
                leases: list[Lease] = await bench.store.claim(
                    Claim(
                        worker=tenant,
                        nonce=f"{tenant}-{n}",
                        limit=width,
                        lease_us=LEASE,
                        tenants=(tenant,),
                        queues=(MAIL,),
                    )
                )
                assert len(leases) == width
                leased.extend((lease.job.tenant, lease.job.id) for lease in leases)
                changes = [decide(Completed(), each.job, each.token, 0.0) for each in leases]
                answers = await bench.store.ack(changes)
                assert {answer.state for answer in answers} == {State.COMPLETED}
            return rounds

        return work

    await asyncio.to_thread(in_threads, [worker(ACME), worker(GLOBEX)])

    assert len(leased) == len(set(leased)) == 2 * rounds * width
    for tenant in (ACME, GLOBEX):
        [tally] = await bench.store.count(tenant)
        assert tally.counts == {State.COMPLETED: rounds * width}
