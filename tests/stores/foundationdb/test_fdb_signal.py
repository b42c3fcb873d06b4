"""Signals and parks of several stores at once, and while the cluster fails."""

from __future__ import annotations

import asyncio

import pytest
from tests.foundationdb_engine import Engine, Faults

from holdfast.core.bounds import STEP_BYTES_MAX
from holdfast.core.job import Lease, Parked, State
from holdfast.core.journal import EntryKind, Signal, await_signal
from holdfast.core.lifecycle import decide
from holdfast.store import Claim
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench, by_key
from holdfast.testing.contract.builders import ACME, LEASE, job

SEEDS = range(30)
NUMBER = 5
YEAR = 366 * 24 * 3600 * 1_000_000


async def stores_at(engine: Engine, number: int) -> list[FoundationStore]:
    """Opened stores on one engine, whose clock stands still."""
    stores = [
        FoundationStore(Options(prefix="c"), engine.clock, engine.database()) for _ in range(number)
    ]
    for store in stores:
        await store.open()
    return stores


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_signal_and_a_park_of_two_stores_never_miss_each_other(seed: int) -> None:
    """P10: whichever is committed first, also where commits conflict or are not known."""
    faults = Faults(seed, conflict=0.1, unknown=0.1, delay=0.6)
    one, two = await stores_at(Engine(ManualClock(), faults=faults), 2)
    await one.enqueue([job(f"j{n}") for n in range(NUMBER)])
    claim = Claim(worker="w", nonce="n", limit=NUMBER, lease_us=LEASE)
    leases = await one.claim(claim)
    parked = Parked(delay_us=YEAR, awaits=await_signal("go"))

    await asyncio.gather(
        *(one.ack([decide(parked, each.job, each.token, 0.0)]) for each in leases),
        *(two.signal([Signal(ACME, each.job.id, "go", b"1")]) for each in leases),
    )

    faults.heal()
    again: list[Lease] = []
    for call in range(2 * NUMBER):  # The stores share the line.
        claim = Claim(worker="w", nonce=f"m{call}", limit=NUMBER, lease_us=LEASE)
        again += await (one, two)[call % 2].claim(claim)
    assert len(again) == NUMBER
    assert all(by_key(each.journal) == {(EntryKind.SIGNAL, "go"): b"1"} for each in again)
    for store in (one, two):
        await store.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_one_of_two_signals_of_a_name_is_stored(seed: int) -> None:
    """P16: and the others are told so."""
    faults = Faults(seed, unknown=0.1, delay=0.6)
    stores = await stores_at(Engine(ManualClock(), faults=faults), 3)
    await stores[0].enqueue([job("a")])

    answers = await asyncio.gather(
        *(each.signal([Signal(ACME, "a", "go", b"%d" % n)]) for n, each in enumerate(stores))
    )

    assert sum(answer.stored for [answer] in answers) == 1
    for store in stores:
        await store.close()


async def test_signals_of_one_call_are_more_than_one_transaction_takes(bench: Bench) -> None:
    """P15: two hundred of 64 KiB each."""
    number = 200
    await bench.store.enqueue([job(f"j{n}") for n in range(number)])
    value = b"x" * STEP_BYTES_MAX

    answers = await bench.store.signal([Signal(ACME, f"j{n}", "s", value) for n in range(number)])

    assert all(answer.stored for answer in answers)
    assert await bench.state("j0") is State.ENQUEUED
