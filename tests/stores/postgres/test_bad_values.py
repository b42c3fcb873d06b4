"""A job that PostgreSQL cannot keep fails by itself, not the call that it came in."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import BatchRefused, InvalidInput
from holdfast.core.job import NewJob
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import ACME, GLOBEX, finding, ids, job


def version(number: int) -> NewJob:
    made = job("bad")
    return msgspec.structs.replace(
        made, envelope=msgspec.structs.replace(made.envelope, version=number)
    )


BAD = {
    "version": lambda: version(2**31),
    "run_at": lambda: job("bad", run_at=2**63),
    "delay": lambda: job("bad", delay_us=2**63),
    "sum": lambda: job("bad", delay_us=2**63 - 1),
    "index": lambda: job("bad", queue=_salted(128), type=_salted(127), key=_salted(512)),
    "zero": lambda: job("bad", group="a\0b"),
    "surrogate": lambda: job("bad", group="a\ud800"),
}


def _salted(length: int) -> str:
    """A text that does not compress, so that it is too long for a row of an index."""
    chance = random.Random(length)
    return "".join(chr(chance.randrange(0x10000, 0x1FFFF)) for _ in range(length))


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("place", [0, 3, 6])
async def test_a_job_that_cannot_be_kept_fails_alone(
    store: PostgresStore, name: str, place: int
) -> None:
    """P19: others of the same batch, of other tenants, are kept."""
    batch: list[Any] = [job(f"j{n}", tenant=(ACME, GLOBEX)[n % 2]) for n in range(6)]
    batch.insert(place, BAD[name]())

    answers = await store.enqueue(batch)

    errors = [type(answer.error) for answer in answers]
    assert errors == [InvalidInput if n == place else type(None) for n in range(7)]
    found = (await store.find(finding(tenant=None, newest_first=False))).jobs
    assert ids(found) == [f"j{n}" for n in range(6)]


async def test_a_job_that_cannot_be_kept_is_refused_by_itself(store: PostgresStore) -> None:
    """P15: alone it has the same answer."""
    [answer] = await store.enqueue([BAD["version"]()])

    assert (answer.id, answer.created) == ("bad", False)
    assert isinstance(answer.error, InvalidInput)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("place", [0, 6])
async def test_a_job_that_cannot_be_kept_refuses_its_whole_call(
    store: PostgresStore, name: str, place: int
) -> None:
    """P15: the answer to that job says why; nothing is kept."""
    batch = [job(f"j{n}", key=f"k{n}") for n in range(6)]
    batch.insert(place, BAD[name]())

    for _ in range(2):
        answers = await store.enqueue(batch, whole=True)

        errors = [type(answer.error) for answer in answers]
        assert errors == [InvalidInput if n == place else BatchRefused for n in range(7)]
        assert (await store.find(finding(tenant=None))).jobs == []
        assert (await store.events(ACME, 0, 100)).events == []
