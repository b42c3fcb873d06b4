"""Calls for all or none, and jobs that end with their parents, beside the calls of others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.stores.sqlite.tables import rows

from holdfast.core.bounds import RELEASE_MAX
from holdfast.core.errors import BatchRefused
from holdfast.core.job import Completed, EventKind, Lease, NewJob, State
from holdfast.core.journal import Edge
from holdfast.core.lifecycle import decide
from holdfast.core.scope import Scope, ScopeKind, ScopeSettings, encode
from holdfast.store import Claim, Enqueued, Put
from holdfast.stores.sqlite import writer
from holdfast.stores.sqlite.joins import PASSES_MAX
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, LEASE, finding, job
from holdfast.testing.contract.ending_with_parents import counter
from holdfast.testing.contract.joins import node

BOUND_S = 20.0


def refused(start: str) -> list[NewJob]:
    """Jobs of everything that a call may leave behind, and the id `taken`."""
    return [
        node(f"{start}a", f"{start}b", key=f"{start}k", group="g", body=b"x" * 5000),
        node(f"{start}b", after=1, queue="beside"),
        job("taken"),
    ]


async def claimed(store: SqliteStore, nonce: str, limit: int = 1000) -> list[Lease]:
    return await store.claim(Claim(worker="w", nonce=nonce, limit=limit, lease_us=LEASE))


async def complete(store: SqliteStore, *leases: Lease) -> None:
    answers = await store.ack([decide(Completed(), x.job, x.token, 0.0) for x in leases])
    assert all(answer.error is None for answer in answers)


def told(answers: list[Enqueued]) -> list[type[Exception] | None]:
    assert not any(answer.created for answer in answers)
    return [None if answer.error is None else type(answer.error) for answer in answers]


async def stored(store: SqliteStore, path: Path, *ids: str) -> None:
    """Checks that there are these jobs and nothing of any other."""
    assert {each.id for each in (await store.find(finding())).jobs} == set(ids)
    page = await store.events(ACME, 0, 1000)
    assert sorted(event.job_id for event in page.events) == sorted(ids)
    assert [event.cursor for event in page.events] == list(range(1, len(ids) + 1))
    assert [rows(path, table) for table in ("edges", "joins", "bodies", "keys")] == [0] * 4
    [whole] = await store.count(ACME, by=ScopeKind.TENANT)
    assert whole.counts == {State.ENQUEUED: len(ids)}
    assert not any(each.correction for each in await store.count(ACME, recount=True))


async def test_a_refused_whole_call_leaves_the_calls_beside_it(store: SqliteStore) -> None:
    """P1, P12: they share a transaction, of which only its own part is undone."""
    put = Put(Scope(ACME).name, encode(ScopeSettings(max_running=100, max_queued=1000)), 0)
    await store.settings([put])
    await store.enqueue([job("taken")])
    names = [f"g{number}" for number in range(20)]
    calls = [store.enqueue([job(name)]) for name in names]
    for number in range(5):
        calls.insert(4 * number, store.enqueue(refused(f"w{number}"), whole=True))

    answers = await asyncio.gather(*calls)

    kinds = [told(answers[4 * number]) for number in reversed(range(5))]
    assert kinds == [[BatchRefused, BatchRefused, None]] * 5
    assert sum(answer[0].created for answer in answers) == 20
    page = await store.events(ACME, 0, 1000)
    kept = [event for event in page.events if event.kind is EventKind.ENQUEUED]
    assert {event.job_id for event in kept} == {"taken", *names}
    assert {lease.job.id for lease in await claimed(store, "n")} == {"taken", *names}


async def test_a_refused_whole_call_leaves_nothing(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1, P13: neither in the writer's thread nor in the caller's, where it is alone."""
    monkeypatch.setattr(writer, "INLINE_COMMIT_S_MAX", BOUND_S)
    await store.enqueue([job("taken")])
    for number in range(2 * writer.FAST_COMMITS):
        answers = await store.enqueue(refused(f"w{number}"), whole=True)
        assert told(answers) == [BatchRefused, BatchRefused, None]
        await store.enqueue([job(f"j{number}")])

    await stored(store, path, "taken", *(f"j{each}" for each in range(2 * writer.FAST_COMMITS)))


async def test_a_large_refused_whole_call_leaves_nothing(store: SqliteStore, path: Path) -> None:
    """P1, P13: it is undone beside calls whose counts were written before."""
    await store.enqueue([job("taken")])
    large = [job(f"w{number}", queue=f"q{number}", group=f"g{number}") for number in range(500)]

    first, answers, last = await asyncio.gather(
        store.enqueue([job("first")]),
        store.enqueue([*large, job("taken")], whole=True),
        store.enqueue([job("last")]),
    )

    assert told(answers) == [BatchRefused] * 500 + [None]
    assert first[0].created
    assert last[0].created
    await stored(store, path, "taken", "first", "last")


# -- jobs that end with their parents --------------------------------------------------------------


async def test_a_later_claim_ends_a_job_with_its_parents(store: SqliteStore) -> None:
    """P17: when it follows the last edge, which the ack has left to it."""
    edges = (*(Edge(f"no{each}") for each in range(RELEASE_MAX)), Edge("end"))
    await store.enqueue([job("a", edges=edges), counter(), node("last", after=1)])
    await complete(store, *await claimed(store, "first"))
    found = (await store.find(finding(ids=("end",)))).jobs
    assert [each.state for each in found] == [State.WAITING]

    assert await claimed(store, "second") == []

    found = (await store.find(finding(ids=("end",)))).jobs
    assert [each.state for each in found] == [State.COMPLETED]


async def test_a_long_chain_of_jobs_ends_in_several_calls(store: SqliteStore) -> None:
    """P15, P17: each follows so many, and nothing is lost in between."""
    number = 2 * PASSES_MAX + 10
    chain = [counter(f"c{each}", f"c{each + 1}") for each in range(number)]
    await store.enqueue([node("a", "c0"), *chain, node(f"c{number}", after=1)])
    await complete(store, *await claimed(store, "first"))

    leases = [lease for each in range(4) for lease in await claimed(store, f"n{each}")]

    assert [lease.job.id for lease in leases] == [f"c{number}"]
    tally = (await store.count(ACME, recount=True))[0]
    assert tally.counts == {State.COMPLETED: number + 1, State.PROCESSING: 1}
    assert tally.correction == 0
