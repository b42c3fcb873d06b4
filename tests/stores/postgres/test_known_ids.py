"""An id is one job's, whoever says that it is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from tests.stores.postgres.row_jobs import step

from holdfast.core.job import Completed, NewJob
from holdfast.core.lifecycle import decide
from holdfast.store import Claim
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import ACME, LEASE, finding, job

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect


def fresh(*ids: str, **options: Any) -> list[NewJob]:
    return [job(id, fresh=True, **options) for id in ids]


async def run_all(store: PostgresStore) -> list[str]:
    """Claims and completes all there is."""
    claim = Claim(worker="w", nonce=uuid4().hex, limit=100, lease_us=LEASE)
    leases = await store.claim(claim)
    await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])
    return sorted(one.job.id for one in leases)


MANY = [f"0190-made-{n:03}" for n in range(12)]
"""Ids that begin alike, as those that the library makes."""


@pytest.mark.parametrize("ids", [MANY[:1], MANY[:3], MANY], ids=["one", "few", "pack"])
async def test_an_id_that_is_said_to_be_new_makes_one_job(
    store: PostgresStore, ids: list[str]
) -> None:
    """P12: sent twice, alone, with a few others or in a pack."""
    await store.enqueue(fresh(*ids))

    answers = await store.enqueue(fresh(*ids))

    assert [answer.created for answer in answers] == [False] * len(ids)
    assert await run_all(store) == ids
    assert await run_all(store) == []


@pytest.mark.parametrize("ids", [MANY[:1], MANY[:3], MANY], ids=["one", "few", "pack"])
async def test_the_id_of_an_ended_job_makes_no_second_one(
    store: PostgresStore, ids: list[str]
) -> None:
    """P12: as long as its record is kept. Only an id that was generated for the very call is not
    looked for, and no caller from outside can say that of one.
    """
    await store.enqueue(fresh(*ids))
    assert await run_all(store) == ids

    answers = await store.enqueue([job(id) for id in ids])

    assert [(answer.created, answer.error) for answer in answers] == [(False, None)] * len(ids)
    assert await run_all(store) == []
    assert len((await store.find(finding(tenant=ACME))).jobs) == len(ids)


@pytest.mark.parametrize("ended", [False, True], ids=["waits", "ended"])
async def test_known_ids_in_another_batch_are_known(store: PostgresStore, ended: bool) -> None:
    """P12: one that was in a pack comes alone, and others come in a pack of other ids."""
    await store.enqueue(fresh(*MANY))
    if ended:
        await run_all(store)
    more = [*MANY[6:], *(f"0190-made-{n:03}" for n in range(12, 20))]

    [alone] = await store.enqueue([job(MANY[5], fresh=not ended)])
    answers = await store.enqueue([job(id, fresh=not ended) for id in more])

    assert not alone.created
    assert [answer.created for answer in answers] == [False] * 6 + [True] * 8
    assert len((await store.find(finding(tenant=ACME))).jobs) == 20


async def test_a_whole_call_whose_answer_was_lost_is_done(
    store: PostgresStore, connect: Connect
) -> None:
    """P12: its repeat creates nothing, though the ids are said to be new, and tells of no error."""
    jobs = [*fresh("a", "b"), *fresh("c", key="k")]
    await store.enqueue(jobs, whole=True)
    again = step(store, await connect())
    again.again = True

    answers = await enqueue_jobs(again, jobs, whole=True)

    assert [(each.id, each.created, each.error) for each in answers] == [
        (job.id, False, None) for job in jobs
    ]
    assert await run_all(store) == ["a", "b", "c"]
