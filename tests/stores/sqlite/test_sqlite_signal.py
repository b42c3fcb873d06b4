"""Signals: two processes never miss each other, and what a signal does not wake stays as it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.stores.sqlite.tables import rows

from holdfast.core.bounds import INSTANT_MAX, SIGNALS_MAX
from holdfast.core.errors import JournalFull
from holdfast.core.job import Completed, Lease, Parked, State
from holdfast.core.journal import Signal, await_signal
from holdfast.core.lifecycle import Transition, decide
from holdfast.core.scope import Scope, ScopeKind, ScopeSettings, encode
from holdfast.store import Claim, Put
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, LEASE, finding, job


async def claimed(store: SqliteStore, nonce: str) -> list[Lease]:
    return await store.claim(Claim(worker="w", nonce=nonce, limit=10, lease_us=LEASE))


def park(lease: Lease, awaits: str = await_signal("go")) -> Transition:
    parked = Parked(run_at=INSTANT_MAX, awaits=awaits)
    return decide(parked, lease.job, lease.token, 0.0)


async def test_a_signal_of_one_process_meets_the_park_of_another(
    store: SqliteStore, other: SqliteStore
) -> None:
    """P10: whichever of them commits first, the job becomes ready."""
    for number in range(30):
        await store.enqueue([job(f"j{number}")])
        [lease] = await claimed(store, f"a{number}")

        acked, sent = await asyncio.gather(
            store.ack([park(lease)]), other.signal([Signal(ACME, f"j{number}", "go", b"1")])
        )

        assert (acked[0].error, sent[0].stored) == (None, True)
        [again] = await claimed(other, f"b{number}")
        await other.ack([decide(Completed(), again.job, again.token, 0.0)])


@pytest.mark.parametrize("names", [("go", "other"), ("other", "go")])
async def test_signals_of_one_call_all_count(store: SqliteStore, names: tuple[str, str]) -> None:
    """P19: also if one of them wakes the job."""
    await store.enqueue([job("a")])
    [lease] = await claimed(store, "a")
    await store.ack([park(lease)])
    await store.signal([Signal(ACME, "a", name, b"1") for name in names])

    more = [Signal(ACME, "a", f"s{number}", b"1") for number in range(SIGNALS_MAX - 1)]
    answers = await store.signal(more)

    assert [answer.stored for answer in answers] == [True] * (SIGNALS_MAX - 2) + [False]
    assert isinstance(answers[-1].error, JournalFull)
    assert len((await claimed(store, "b"))[0].journal) == SIGNALS_MAX


async def test_a_signal_lets_no_job_past_its_group(store: SqliteStore) -> None:
    """P13: a job that waits for its group still does."""
    group = Scope(ACME, ScopeKind.GROUP, "g")
    await store.settings([Put(group.name, encode(ScopeSettings(ordered=True)), 0)])
    await store.enqueue([job("a", group="g"), job("b", group="g")])

    await store.signal([Signal(ACME, "b", "go", b"1")])

    assert [lease.job.id for lease in await claimed(store, "n")] == ["a"]
    assert {each.id: each.state for each in (await store.find(finding())).jobs} == {
        "a": State.PROCESSING,
        "b": State.ENQUEUED,
    }


async def test_parked_jobs_leave_the_file_alone(store: SqliteStore, path: Path) -> None:
    """P10: what waits for a signal costs idle claims nothing: they write nothing."""
    await store.enqueue([job(f"j{number}") for number in range(10)])
    await store.ack([park(lease) for lease in await claimed(store, "a")])
    log = path.with_name("jobs.db-wal")
    before = log.stat().st_size

    for number in range(20):
        assert await claimed(store, f"idle{number}") == []

    assert log.stat().st_size == before
    assert rows(path, "entries") == 0
