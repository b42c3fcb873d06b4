"""Enqueue: jobs come in by one function, alone or in batches, whether ids are known or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast.core.errors import IdConflict, QueueFull
from holdfast.core.job import Completed, NewJob
from holdfast.core.lifecycle import decide
from holdfast.core.scope import TENANT_KINDS, Scope
from holdfast.scopes import ScopeHandle
from holdfast.store import Claim, Enqueued, Find, Selection
from holdfast.testing.contract.builders import ACME, AUDIO, HOUR, LEASE, job, rules

if TYPE_CHECKING:
    from holdfast.stores.postgres.store import PostgresStore

KEPT = rules(keep_us=HOUR)


def jobs(*ids: str, **options: Any) -> list[NewJob]:
    return [job(id, **{"rules": KEPT, **options}) for id in ids]


async def complete(store: PostgresStore, number: int) -> None:
    leases = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=number, lease_us=LEASE))
    await store.ack([decide(Completed(), lease.job, lease.token, 0.0) for lease in leases])


async def exact(store: PostgresStore) -> None:
    """The counts are those that counting the jobs gives."""
    kept = [await store.count(None, by=kind) for kind in TENANT_KINDS]
    await store.count(None, recount=True)
    assert [await store.count(None, by=kind) for kind in TENANT_KINDS] == kept


async def test_jobs_stand_in_the_order_of_the_call(store: PostgresStore) -> None:
    """First in, first out, and each has the payload that came with its id."""
    made = [job(id, body=id.encode()) for id in ("a", "b", "c")]

    assert await store.enqueue(made) == [Enqueued(one.id, True) for one in made]

    leases = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=9, lease_us=LEASE))
    assert [lease.job.id for lease in leases] == ["a", "b", "c"]
    assert [lease.job.envelope for lease in leases] == [one.envelope for one in made]
    await exact(store)


async def test_those_that_are_there_already_are_found_and_the_others_made(
    store: PostgresStore,
) -> None:
    """Also one that has ended; nothing of the others is left behind."""
    await store.enqueue(jobs("b"))
    await complete(store, 1)
    await store.enqueue(jobs("d"))

    answers = await store.enqueue(jobs("a", "b", "c", "d", "e"))

    assert [(one.id, one.created) for one in answers] == [
        ("a", True), ("b", False), ("c", True), ("d", False), ("e", True),
    ]  # fmt: skip
    page = await store.find(Find(select=Selection(tenant=ACME), limit=9))
    assert sorted(one.id for one in page.jobs) == ["a", "b", "c", "d", "e"]
    events = (await store.events(ACME, 0, 99)).events
    assert sorted(one.job_id for one in events if one.kind.value == "enqueued") == list("abcde")
    await exact(store)


async def test_an_ended_job_between_the_ids_of_a_call_is_in_nobodys_way(
    store: PostgresStore,
) -> None:
    """Ids that the caller chose may lie on both sides of one that has ended."""
    await store.enqueue(jobs("b"))
    await complete(store, 1)

    answers = await store.enqueue(jobs("a", "c"))

    assert [one.created for one in answers] == [True, True]
    await exact(store)


async def test_an_id_of_another_queue_is_a_conflict(store: PostgresStore) -> None:
    """The id stays the first job's."""
    await store.enqueue(jobs("a"))

    [answer] = await store.enqueue(jobs("a", queue=AUDIO))

    assert isinstance(answer.error, IdConflict)


async def test_a_cap_holds(store: PostgresStore) -> None:
    """A tenant with a cap fills up in the order of the call."""
    await ScopeHandle(store, Scope(ACME)).set(max_queued=2)

    answers = await store.enqueue(jobs("a", "b", "c"))

    assert [one.created for one in answers] == [True, True, False]
    assert isinstance(answers[2].error, QueueFull)
    await exact(store)


def alone(id: str, **options: Any) -> list[NewJob]:
    """One job whose id was made for the call."""
    return [job(id, **{"rules": KEPT, "fresh": True, **options})]


async def test_one_alone_is_kept_counted_and_recorded(store: PostgresStore) -> None:
    """A batch of one is a batch."""
    assert await store.enqueue(alone("a")) == [Enqueued("a", True)]

    events = (await store.events(ACME, 0, 99)).events
    assert [(one.kind.value, one.job_id) for one in events] == [("enqueued", "a")]
    await exact(store)
    [lease] = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=9, lease_us=LEASE))
    assert (lease.job.id, lease.job.attempt, lease.job.envelope) == (
        "a", 1, alone("a")[0].envelope,
    )  # fmt: skip
    await exact(store)


async def test_one_alone_whose_id_lives_is_found(store: PostgresStore) -> None:
    """Made for the call or not, no id stands for two jobs."""
    await store.enqueue(alone("a"))

    assert await store.enqueue(alone("a")) == [Enqueued("a", False)]
    [answer] = await store.enqueue(alone("a", queue=AUDIO))

    assert isinstance(answer.error, IdConflict)
    await exact(store)


async def test_a_cap_holds_for_one_alone(store: PostgresStore) -> None:
    """The cap is counted before anything is written."""
    await ScopeHandle(store, Scope(ACME)).set(max_queued=1)

    first, second = [(await store.enqueue(alone(id)))[0] for id in ("a", "b")]

    assert first.created
    assert isinstance(second.error, QueueFull)
    await exact(store)
