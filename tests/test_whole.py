"""Requests to create jobs all together share calls of the store, and have answers of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from holdfast.core.bounds import BATCH_MAX
from holdfast.core.errors import BatchRefused, StoreUnavailable
from holdfast.core.job import NewJob
from holdfast.store import Enqueued, Store
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.contract.builders import ACME, GLOBEX, job
from holdfast.whole import WholeCalls


class Counted(MemoryStore):
    """A memory store that notes its calls of enqueue."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.away = False

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        self.calls.append([job.id for job in jobs])
        await asyncio.sleep(0)  # Others call meanwhile.
        if self.away:
            raise StoreUnavailable(store="memory://", why="it is away")
        return await super().enqueue(jobs, whole=whole)


@pytest.fixture
async def store() -> Counted:
    store = Counted()
    await store.open()
    return store


async def created(store: Store, *requests: Sequence[NewJob]) -> list[Any]:
    """The answers to requests that are made at the same time, after one that is made before."""
    calls = WholeCalls(store)
    first = asyncio.create_task(calls.create([job("first")]))
    await asyncio.sleep(0)
    found = await asyncio.gather(*map(calls.create, requests), return_exceptions=True)
    await first
    return found


async def test_requests_of_one_tenant_share_a_call(store: Counted) -> None:
    """P15: and each has the answers for its own jobs, which take turns in the call."""
    one, two = await created(store, [job("a"), job("b")], [job("c")])

    assert [each.id for each in one] == ["a", "b"]
    assert [each.id for each in two] == ["c"]
    assert store.calls == [["first"], ["a", "c", "b"]]


async def test_requests_of_two_tenants_share_no_call(store: Counted) -> None:
    """P7, P19: no tenant's request is refused because of another's."""
    await created(store, [job("a")], [job("b", tenant=GLOBEX)], [job("c")])

    assert sorted(store.calls[1:]) == [["a", "c"], ["b"]]


async def test_a_request_that_cannot_be_done_is_refused_alone(store: Counted) -> None:
    """P15: the others are sent again without it."""
    await store.enqueue([job("x", key="taken")])

    answers = await created(
        store, [job("a")], [job("b"), job("c", key="taken")], [job("d")], [job("e")]
    )

    assert [[each.created for each in one] for one in answers] == [
        [True],
        [False, False],
        [True],
        [True],
    ]
    assert isinstance(answers[1][0].error, BatchRefused)
    assert (answers[1][1].id, answers[1][1].error) == ("x", None)


async def test_a_call_is_bounded_in_jobs(store: Counted) -> None:
    """P15."""
    large = [[job(f"{number}-{at}") for at in range(600)] for number in range(3)]

    answers = await created(store, *large)

    assert all(each.created for one in answers for each in one)
    assert max(map(len, store.calls)) <= BATCH_MAX


async def test_requests_of_a_store_that_is_away_fail_by_one_call(store: Counted) -> None:
    """P15: halves would be as many calls to a store that cannot answer."""
    calls = WholeCalls(cast(Store, store))
    store.away = True

    found = await asyncio.gather(
        *(calls.create([job(f"{n}", tenant=ACME)]) for n in range(5)), return_exceptions=True
    )

    assert all(isinstance(each, StoreUnavailable) for each in found)
    assert len(store.calls) <= 2
