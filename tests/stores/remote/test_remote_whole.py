"""Calls for all or none over HTTP, and jobs that end with their parents: checked as any enqueue."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.servers.service import Host, Place
from tests.stores.remote.conftest import Opened, Tokens

from holdfast.core.errors import (
    BatchRefused,
    HoldfastError,
    InvalidInput,
    JobNotFound,
    PayloadTooLarge,
    StoreError,
)
from holdfast.core.job import NewJob
from holdfast.core.journal import Edge
from holdfast.service.rights import Caller, Right
from holdfast.store import Enqueued
from holdfast.stores.remote import wire
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, MAIL, finding, ids, job

PRODUCE = frozenset({Right.PRODUCE})
CALLERS = (
    Caller(name="root", tenant=None, rights=frozenset(Right)),
    Caller(name="acme", tenant=ACME, rights=PRODUCE),
    Caller(name="mailer", tenant=ACME, rights=PRODUCE, queues=(MAIL,)),
    Caller(name="sender", tenant=ACME, rights=PRODUCE, types=("send",)),
)


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("whole", auth=Tokens(*CALLERS))


def counter(**options: Any) -> NewJob:
    return job("end", parents=1, ends_with_parents=True, **options)


def told(answers: list[Enqueued]) -> list[type[Exception] | None]:
    assert not any(answer.created for answer in answers)
    return [None if answer.error is None else type(answer.error) for answer in answers]


FORBIDDEN: dict[str, tuple[str, list[NewJob], type[HoldfastError]]] = {
    "another tenant": ("acme", [job("a"), job("b", tenant=GLOBEX)], StoreError),
    "two tenants": ("root", [job("a"), job("b", tenant=GLOBEX)], InvalidInput),
    "another queue": ("mailer", [job("a", queue=MAIL), counter(queue=AUDIO)], StoreError),
    "another type": ("sender", [job("a", type="send"), counter(type="pay")], StoreError),
    "a job of another queue awaits": (
        "mailer",
        [counter(queue=MAIL), job("a", queue=MAIL, edges=(Edge("beside"),))],
        JobNotFound,
    ),
    "no parents": (
        "acme",
        [job("a"), msgspec.structs.replace(counter(), parents=0)],
        InvalidInput,
    ),
}


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_a_whole_call_is_checked_as_any_enqueue(
    place: Place, opened: Opened, name: str
) -> None:
    """P7, P19: and nothing of one that is refused is created."""
    root = await opened(place, "root")
    await root.enqueue([job("beside", queue=AUDIO, parents=1)])
    token, jobs, error = FORBIDDEN[name]
    store = await opened(place, token)

    with pytest.raises(error):
        await store.enqueue(jobs, whole=True)

    assert ids((await root.find(finding(None))).jobs) == ["beside"]


async def test_a_token_that_may_only_enqueue_starts_a_whole(place: Place, opened: Opened) -> None:
    """P17: its parents need a worker, a job that ends with them does not."""
    root, acme = await opened(place, "root"), await opened(place, "acme")
    jobs = [job("a", edges=(Edge("end"),)), counter()]

    first = await acme.enqueue(jobs, whole=True)
    again = await acme.enqueue(jobs, whole=True)

    assert [answer.created for answer in first] == [True, True]
    assert [(answer.created, answer.error) for answer in again] == [(False, None)] * 2
    assert sorted(ids((await root.find(finding())).jobs)) == ["a", "end"]


async def test_a_whole_call_is_not_sent_in_parts(place: Place, opened: Opened) -> None:
    """P15: a larger one than a body is refused as a whole, and says why."""
    root = await opened(place, "root")
    number = root.hello.body_max // 200_000 + 1
    jobs = [job(f"j{each}", body=bytes(200_000)) for each in range(number)]

    assert set(told(await root.enqueue(jobs, whole=True))) == {PayloadTooLarge}
    assert (await root.find(finding())).jobs == []
    assert all(answer.created for answer in await root.enqueue(jobs))


async def test_a_payload_that_is_too_large_refuses_the_whole_call(
    place: Place, opened: Opened
) -> None:
    """P15: the answers tell which it was."""
    acme, root = await opened(place, "acme"), await opened(place, "root")
    large = job("b", body=bytes(place.service.payload_max + 1))

    answers = await acme.enqueue([job("a"), large, job("c")], whole=True)

    assert told(answers) == [BatchRefused, PayloadTooLarge, BatchRefused]
    assert (await root.find(finding())).jobs == []


def test_an_older_service_cannot_read_a_call() -> None:
    """P1: it would create some of the jobs of a whole call."""
    old = msgspec.msgpack.Decoder(list[NewJob])

    with pytest.raises(msgspec.ValidationError):
        old.decode(wire.encode(wire.NewJobs([job("a")], whole=True)))
