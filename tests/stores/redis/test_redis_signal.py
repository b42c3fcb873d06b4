"""Signals: two connections never miss each other, and calls over several shards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.servers.cluster import Cluster
from tests.servers.redis_node import RedisNode
from tests.stores.redis.copies import one_of_each, sharded

from holdfast.core.bounds import INSTANT_MAX, SIGNALS_MAX
from holdfast.core.errors import InvalidInput, JobNotFound, JournalFull
from holdfast.core.job import Completed, Lease, Parked
from holdfast.core.journal import Entry, EntryKind, Signal, await_signal
from holdfast.core.lifecycle import Transition, decide
from holdfast.store import Claim, Extension
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.bench import Bench, by_key
from holdfast.testing.contract.builders import ACME, LEASE, job

Open = Callable[..., Awaitable[RedisStore]]


def park(lease: Lease, awaits: str = await_signal("go")) -> Transition:
    return decide(Parked(run_at=INSTANT_MAX, awaits=awaits), lease.job, lease.token, 0.0)


async def test_a_signal_of_one_connection_meets_the_park_of_another(bench: Bench) -> None:
    """P10: whichever of them comes first, the job becomes ready."""
    other = bench._make()
    await other.open()
    for number in range(30):
        lease = await bench.held(f"j{number}")

        [acked], [sent] = await asyncio.gather(
            bench.store.ack([park(lease)]), other.signal([Signal(ACME, f"j{number}", "go", b"1")])
        )

        assert (acked.error, sent.stored) == (None, True)
        await bench.end(await bench.one(), Completed())
    await other.close()


@pytest.mark.parametrize("names", [("go", "other"), ("other", "go")])
async def test_signals_of_one_call_all_count(bench: Bench, names: tuple[str, str]) -> None:
    """P19: also if one of them wakes the job, and if two have the same name."""
    await bench.ack(park(await bench.held("a")))
    sent = [Signal(ACME, "a", name, b"%d" % at) for at, name in enumerate((*names, names[0]))]

    answers = await bench.store.signal(sent)

    assert [answer.stored for answer in answers] == [True, True, False]
    more = [Signal(ACME, "a", f"s{number}", b"1") for number in range(SIGNALS_MAX - 1)]
    answers = await bench.store.signal(more)
    assert [answer.stored for answer in answers] == [True] * (SIGNALS_MAX - 2) + [False]
    assert isinstance(answers[-1].error, JournalFull)
    assert len((await bench.one()).journal) == SIGNALS_MAX


async def test_what_scripts_cannot_store_is_refused_alone(bench: Bench) -> None:
    """P15, P19: of signals and of entries; the others of the call are done."""
    lease, other = await bench.held("a"), await bench.held("b")

    sent = await bench.store.signal(
        [
            Signal(ACME, "a", "\ud800", b""),
            Signal(ACME, "\ud800", "s", b""),
            Signal(ACME, "a", "s", b""),
        ]
    )
    extended = await bench.store.extend(
        [
            Extension(tenant=ACME, id=one.job.id, token=one.token, lease_us=LEASE, entries=(entry,))
            for one, entry in (
                (lease, Entry(EntryKind.JOIN, "j", b"x")),
                (other, Entry(EntryKind.STEP, "s", b"\0\xff")),
            )
        ]
    )

    assert [type(each.error) for each in sent] == [InvalidInput, JobNotFound, type(None)]
    assert [type(each.error) for each in extended] == [InvalidInput, type(None)]
    assert await bench.journal("b") == {(EntryKind.STEP, "s"): b"\0\xff"}


async def journals_of_all_shards(store: RedisStore) -> None:
    tenants = one_of_each(store)
    await store.enqueue([job("a", tenant=tenant) for tenant in tenants])
    leases = await store.claim(Claim(worker="w", nonce="n", limit=100, lease_us=LEASE))
    await store.ack([park(lease) for lease in leases])
    names = [*tenants, "nobody"]

    answers = await store.signal([Signal(each, "a", "go", each.encode()) for each in names])

    assert [answer.stored for answer in answers] == [True] * len(tenants) + [False]
    assert isinstance(answers[-1].error, JobNotFound)
    leases = await store.claim(Claim(worker="w", nonce="m", limit=100, lease_us=LEASE))
    assert {lease.job.tenant: by_key(lease.journal) for lease in leases} == {
        tenant: {(EntryKind.SIGNAL, "go"): tenant.encode()} for tenant in tenants
    }
    again = await store.claim(Claim(worker="w", nonce="m", limit=100, lease_us=LEASE))
    assert {(one.token, one.journal) for one in again} == {
        (one.token, one.journal) for one in leases
    }


async def test_signals_and_journals_of_several_shards(node: RedisNode, opened: Open) -> None:
    """P15: of one call, each in its place; and a claim over all shards brings all journals."""
    await journals_of_all_shards(await opened(sharded(node.fresh())))


async def test_signals_and_journals_of_several_slots(cluster: Cluster, opened: Open) -> None:
    """P15: the same on the servers of a cluster."""
    await journals_of_all_shards(await opened(cluster.fresh()))
